// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check how long the walks of chunked KDA are said to take, against what `lathe_bench
// kda --instructions` counted, and as the shape grows.
#include <doctest/doctest.h>

#include "codegen/device_facts.h"
#include "codegen/launch_shape.h"
#include "ops/kda/chunked_kernels.h"

using namespace lathe;

namespace {

DeviceFacts h100() { return *facts_of_gpu("h100"); }

KdaProblem problem_of(int width, bool fused, bool backward) {
  KdaProblem problem;
  problem.key_dim = problem.value_dim = width;
  problem.forward = !backward, problem.backward = backward;
  problem.gate = Dtype::bf16;
  if (fused) problem.l2norm = problem.A_log = problem.sigmoid = true, problem.gate_kind = 1;
  return problem;
}

double cycles_of(const KdaProblem& problem, const KdaChunkedShape& shape,
                 const DeviceFacts& facts = h100()) {
  const auto kernels = kda_chunked_kernels(problem, facts);
  REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
  return static_cast<double>(kda_chain_cycles(problem, *kernels, shape, facts));
}

// One head of one sequence.
KdaChunkedShape of(int64_t tokens) { return {1, 1, 1, tokens, 1}; }

}  // namespace

TEST_CASE("kda: a walk takes what its instructions were counted to take") {
  // Cycles of a thread block for 16 tokens, alone on its multiprocessor.
  const struct {
    int width;
    bool fused;
    double cycles;
  } rows[] = {{64, false, 1311},  {64, true, 1670},  {128, false, 2135}, {128, true, 2789},
              {192, false, 2904}, {192, true, 3845}, {256, false, 3747}, {256, true, 5069}};
  for (const auto& row : rows) {
    CAPTURE(row.width);
    CAPTURE(row.fused);
    const double told = cycles_of(problem_of(row.width, row.fused, false), of(1600)) / 100;
    CHECK(told > 0.85 * row.cycles);
    CHECK(told < 1.15 * row.cycles);
  }
}

TEST_CASE("kda: time grows with the length, and with heads once the device is full") {
  const KdaProblem problem = problem_of(128, false, false);
  const double one = cycles_of(problem, of(4096));
  CHECK(cycles_of(problem, of(8192)) == doctest::Approx(2 * one));
  CHECK(cycles_of(problem, {1, 132, 132, 4096, 1}) == doctest::Approx(one));
  CHECK(cycles_of(problem, {2, 132, 132, 4096, 1}) == doctest::Approx(2 * one));
  CHECK(cycles_of(problem, {1, 133, 133, 4096, 1}) == doctest::Approx(2 * one));
  // Packed: the mean of the lengths.
  KdaProblem packed = problem;
  packed.packed = true;
  CHECK(cycles_of(packed, {4, 1, 1, 16384, 1}) == doctest::Approx(one));
  CHECK(cycles_of(problem, of(0)) == 0);
}

TEST_CASE("kda: segments take a walk of the summaries more, each as long as a segment") {
  KdaProblem problem = problem_of(128, false, false);
  problem.segmented = true;
  const double whole = cycles_of(problem, {1, 12, 12, 8192, 1});
  // 12 heads of 4 segments: 12 * (3 + 2) blocks that work, then 48; both at once on 132.
  const double cut = cycles_of(problem, {1, 12, 12, 8192, 4});
  CHECK(cut > 2 * whole / 4);
  CHECK(cut < 2.2 * whole / 4);
  // 30 heads: 150 blocks, two rounds of them.
  CHECK(cycles_of(problem, {1, 30, 30, 8192, 4}) > 2.9 * whole / 4);
}

TEST_CASE("kda: few heads are bound by the walk, many by nothing but what they issue") {
  const KdaProblem problem = problem_of(128, false, false);
  const auto kernels = kda_chunked_kernels(problem, h100());
  const KdaChunkedShape shape = {1, 4, 4, 2048, 1};
  Cost cost = kda_chunked_cost(problem, *kernels, shape, 64);
  cost.chain_cycles = kda_chain_cycles(problem, *kernels, shape, h100());
  const Prediction told = predict(cost, 1, h100());
  CHECK(std::string(told.bound) == "chain");
  CHECK(told.microseconds > 20 * told.memory_microseconds);
}

TEST_CASE("kda: a backward takes longer than the forward of the same shape") {
  const double forward = cycles_of(problem_of(128, true, false), {1, 96, 96, 8192, 1});
  const double backward = cycles_of(problem_of(128, true, true), {1, 96, 96, 8192, 1});
  CHECK(backward > 1.5 * forward);
  CHECK(backward < 8 * forward);
}
