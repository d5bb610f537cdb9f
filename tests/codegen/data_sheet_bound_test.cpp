// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests compute the data sheet's bound of a call by hand, and what attention takes from
// memory behind a cache.
#include <doctest/doctest.h>

#include <string>

#include "codegen/launch_shape.h"
#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;

namespace {

DeviceFacts device(double bytes_per_second, double ops_per_second) {
  DeviceFacts facts;
  facts.memory_bytes_per_second = bytes_per_second;
  facts.tensor_ops_per_second = ops_per_second;
  return facts;
}

Cost cost(uint64_t bytes, uint64_t tensor_ops) {
  Cost made;
  made.bytes = bytes;
  made.tensor_ops = tensor_ops;
  return made;
}

AttentionProblem forward_of(int width) {
  AttentionProblem problem;
  problem.forward = true;
  problem.head_dim = problem.value_dim = width;
  return problem;
}

}  // namespace

TEST_CASE("data sheet: the longest of memory, products and launches is the bound") {
  const DeviceFacts facts = device(1e12, 1e14);
  const DataSheetBound memory = data_sheet_bound(cost(30'000'000, 1'000'000'000), 1, facts);
  CHECK(memory.memory_microseconds == doctest::Approx(30));
  CHECK(memory.tensor_microseconds == doctest::Approx(10));
  CHECK(memory.microseconds == doctest::Approx(30));
  CHECK(std::string(memory.bound) == "memory");
  const DataSheetBound tensor = data_sheet_bound(cost(30'000'000, 10'000'000'000), 1, facts);
  CHECK(tensor.microseconds == doctest::Approx(100));
  CHECK(std::string(tensor.bound) == "tensor");
  const DataSheetBound launch = data_sheet_bound(cost(3'000'000, 100'000'000), 3, facts);
  CHECK(launch.microseconds == launch.launch_microseconds);
  CHECK(launch.launch_microseconds > launch.memory_microseconds);
  CHECK(std::string(launch.bound) == "launch");
}

TEST_CASE("data sheet: nothing is claimed of a device whose rates nobody published") {
  const DataSheetBound unknown = data_sheet_bound(cost(1'000'000, 1'000'000), 1, device(0, 0));
  CHECK(unknown.microseconds == 0);
  const DataSheetBound nothing = data_sheet_bound(cost(0, 0), 0, device(1e12, 1e14));
  CHECK(nothing.microseconds == 0);
}

TEST_CASE("attention: a multiprocessor holds the blocks that its shared memory and 8 warps allow") {
  const struct {
    int width;
    const char* arch;
    int blocks;
  } rows[] = {
      {64, "sm_80", 2},    // 4 warps, 32 KiB
      {64, "sm_86", 2},    // 100 KiB
      {128, "sm_90a", 2},  // 64 KiB
      {128, "sm_80", 1},   // 8 warps
      {256, "sm_86", 1},   // 4 warps, but 96 KiB
  };
  for (const auto& row : rows) {
    CAPTURE(row.width);
    CAPTURE(row.arch);
    const DeviceFacts facts = *facts_of_arch(row.arch);
    const KernelSpec spec = *kernel_problems::forward_kernels(forward_of(row.width), facts)->kernel;
    CHECK(attention_resident_blocks(spec, facts) == row.blocks);
  }
}

TEST_CASE("attention: keys and values come from memory once while a cache holds them") {
  const AttentionProblem problem = forward_of(128);
  DeviceFacts facts = *facts_of_arch("sm_90a");
  const KernelSpec spec = *kernel_problems::forward_kernels(problem, facts)->kernel;
  const int64_t kTokens = 16384;  // 8 MiB of keys and values a head
  const AttentionShape shape{1, 8, 2, kTokens, kTokens};
  const std::vector<AttentionSequences> sequences{{{kTokens, kTokens, -1, -1}}};
  const AttentionCost whole = attention_forward_cost(problem, spec, shape, sequences);
  CHECK(attention_memory_bytes(problem, spec, shape, sequences, facts) == whole.minimum_bytes);

  // Too small a cache: once for each round of the blocks that run at the same time. A key head's
  // 4 heads have 512 tiles of 128 rows, for 264 blocks at a time.
  facts.l2_bytes = 4 << 20;
  const uint64_t keys = 2ull * kTokens * 256 * 2;
  CHECK(attention_memory_bytes(problem, spec, shape, sequences, facts) ==
        whole.minimum_bytes + keys);

  // Never more than each tile reading its own, nor anything for a sequence without rows.
  const AttentionShape few{1, 8, 8, 100, kTokens};
  const std::vector<AttentionSequences> short_rows{{{100, kTokens, -1, -1}}};
  CHECK(attention_memory_bytes(problem, spec, few, short_rows, facts) ==
        attention_forward_cost(problem, spec, few, short_rows).bytes);
}

TEST_CASE("attention: a backward moves what lies between its launches, and walks rows once") {
  AttentionProblem problem = forward_of(64);
  problem.forward = false;
  problem.backward = true;
  DeviceFacts facts = *facts_of_arch("sm_90a");
  const auto kernels = kernel_problems::backward_kernels(problem, facts, {true, false});
  const int64_t kTokens = 65536, kHeads = 4;
  const AttentionShape shape{1, kHeads, kHeads, kTokens, kTokens};
  const std::vector<AttentionSequences> sequences{{{kTokens, kTokens, -1, -1}}};
  const AttentionBackwardLaunch launch = kernels->plan(shape, {true, true, true, false});
  const AttentionCost cost = attention_backward_cost(problem, *kernels, shape, launch, sequences);
  const auto memory = [&] {
    return attention_backward_memory_bytes(problem, *kernels, shape, launch, sequences, cost,
                                           facts);
  };
  // Two float32 and the float32 sums of a row of dq, written and read.
  const uint64_t between = 2ull * kTokens * kHeads * (2 * 4 + 64 * 4);
  facts.l2_bytes = 1 << 30;
  CHECK(memory() == cost.minimum_bytes + between);
  // 512 blocks of 128 keys a head, 264 at a time: two rounds over rows of q and dout in 16 bits,
  // two float32 and the sums, which are read and written.
  facts.l2_bytes = 1 << 20;
  const uint64_t row = 2 * 64 * 2 + 2 * 4 + 2 * 4 * 64;
  CHECK(memory() == cost.minimum_bytes + between + kTokens * kHeads * row);
  CHECK(memory() < cost.bytes);
}
