// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover matrix products as kernels write them, for sm_80 and for sm_90a: exact, and
// without a finding, whenever asynchronous operations happen.
#include "sim/tests/gemm/gemm.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr AsyncPolicy kPolicies[] = {AsyncPolicy::lazy, AsyncPolicy::random, AsyncPolicy::eager};

Settings settings_of(AsyncPolicy policy, uint64_t seed) {
  Settings s;
  s.async_policy = policy;
  s.seed = seed;
  s.instruction_limit = 20'000'000;
  return s;
}

void expect_exact(const GemmRun& run) {
  INFO(texts(run.outcome));
  REQUIRE(run.outcome.error == 0);
  CHECK(run.outcome.findings.empty());
  CHECK(run.wrong == 0);
}

}  // namespace

TEST_CASE("sm_80: mma.sync fed by cp.async and ldmatrix") {
  const std::string ptx = compile_gemm("ampere_gemm.cuh", "sm_80");
  if (ptx.empty()) return;
  const Problem p = make_problem(128, 192, 9 * 32, 4);
  for (const AsyncPolicy policy : kPolicies) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      CAPTURE(static_cast<int>(policy));
      CAPTURE(seed);
      expect_exact(run_ampere(ptx, p, settings_of(policy, seed)));
    }
  }
}

TEST_CASE("sm_80: every byte moves once, through all banks") {
  const std::string ptx = compile_gemm("ampere_gemm.cuh", "sm_80");
  if (ptx.empty()) return;
  const uint32_t m = 128, n = 192, k = 9 * 32;
  const GemmRun run = run_ampere(ptx, make_problem(m, n, k, 4), settings_of(kPolicies[0], 0));
  const Counters& c = run.outcome.counters;
  CHECK(c.shared_load.conflicts == 0);
  CHECK(c.shared_store.conflicts == 0);
  // A once for each column of tiles, B once for each row of them.
  CHECK(c.global_load.bytes == uint64_t{m} * k * 2 * (n / 64) + uint64_t{n} * k * 2 * (m / 64));
  CHECK(c.global_load.sectors == c.global_load.bytes / 32);
  CHECK(c.unique_load_sectors == uint64_t{m + n} * k * 2 / 32);
  CHECK(c.global_store.bytes == uint64_t{m} * n * 4);
  CHECK(c.global_store.sectors == c.global_store.bytes / 32);
  CHECK(c.tensor_ops == 2ull * m * n * k);
}

TEST_CASE("sm_90a: wgmma fed by TMA through a ring of mbarriers, in a cluster") {
  const std::string ptx = compile_gemm("hopper_gemm.cuh", "sm_90a");
  if (ptx.empty()) return;
  // Two tiles of nine steps for each block: every stage is used four times.
  const Problem p = make_problem(256, 256, 9 * 64, 2);
  for (const AsyncPolicy policy : kPolicies) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      CAPTURE(static_cast<int>(policy));
      CAPTURE(seed);
      expect_exact(run_hopper(ptx, p, settings_of(policy, seed)));
    }
  }
}

// Integers this small are exact in all of them.
TEST_CASE("whatever way the matrix units add") {
  const std::string hopper = compile_gemm("hopper_gemm.cuh", "sm_90a");
  const std::string ampere = compile_gemm("ampere_gemm.cuh", "sm_80");
  if (hopper.empty()) return;
  const Problem p = make_problem(256, 128, 192, 2);
  for (const TensorSum sum : {TensorSum::sequential, TensorSum::coarse}) {
    CAPTURE(static_cast<int>(sum));
    Settings s = settings_of(AsyncPolicy::random, 3);
    s.tensor_sum = sum;
    expect_exact(run_hopper(hopper, p, s));
    expect_exact(run_ampere(ampere, p, s));
  }
}

TEST_CASE("sm_90a: tiles that reach past the matrices, several clusters") {
  const std::string ptx = compile_gemm("hopper_gemm.cuh", "sm_90a");
  if (ptx.empty()) return;
  const Problem p = make_problem(488, 200, 328, 2);
  for (uint32_t clusters = 1; clusters <= 4; ++clusters) {
    CAPTURE(clusters);
    expect_exact(run_hopper(ptx, p, settings_of(AsyncPolicy::random, clusters), clusters));
  }
}

TEST_CASE("sm_90a: what is sent to both blocks is read once") {
  const std::string ptx = compile_gemm("hopper_gemm.cuh", "sm_90a");
  if (ptx.empty()) return;
  const uint32_t m = 512, n = 256, k = 192;
  const GemmRun run = run_hopper(ptx, make_problem(m, n, k, 2), settings_of(kPolicies[0], 0), 2);
  expect_exact(run);
  const Counters& c = run.outcome.counters;
  CHECK(c.shared_store.conflicts == 0);  // stmatrix
  // A once for each tile in N; B once for each pair of tiles in M.
  CHECK(c.global_load.bytes == uint64_t{m} * k * 2 * (n / 128) + uint64_t{n} * k * 2 * (m / 256));
  CHECK(c.global_load.sectors == c.global_load.bytes / 32);
  CHECK(c.global_store.bytes == uint64_t{m} * n * 2);
  CHECK(c.global_store.sectors == c.global_store.bytes / 32);
  CHECK(c.tensor_ops == 2ull * m * n * k);
}
