// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the backward of sparse attention on the host: which tiles, constants, chunks,
// workspace and cost.
#include "ops/sparse/backward_kernels.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace lathe;

namespace {

DeviceFacts facts(const char* arch) { return *facts_of_arch(arch); }

SparseProblem backward_of(int head_dim, int rope_dim, int value_dim, int group) {
  SparseProblem problem;
  problem.backward = true;
  problem.head_dim = head_dim, problem.rope_dim = rope_dim, problem.value_dim = value_dim;
  problem.group = group;
  return problem;
}
SparseProblem usual() {
  SparseProblem problem = backward_of(512, 64, 512, 128);
  problem.values_in_keys = true;
  return problem;
}

constexpr SparseGradients kAll = {true, true, true, true};

SparseBackwardLaunch launch_of(const SparseProblem& problem, const char* arch,
                               const SparseShape& shape, const SparseGradients& wanted = kAll) {
  const auto kernels = sparse_backward_kernels(problem, facts(arch));
  REQUIRE(kernels.ok());
  const auto launch = sparse_backward_launch(problem, *kernels, shape, wanted);
  REQUIRE_MESSAGE(launch.ok(), launch.status().text());
  return *launch;
}

}  // namespace

TEST_CASE("sparse backward: specs say what makes the code, in the templates' order") {
  SparseProblem problem = usual();
  problem.cu_seqlens = Dtype::i64;  // of no effect without packed lengths
  auto kernels = sparse_backward_kernels(problem, facts("sm_90a"));
  CHECK(kernels->prepare->text() ==
        "sparse_backward_prepare element=bf16 value_width=512 m=64 groups=2 sinks=0 threads=128 "
        "smem=16");
  CHECK(kernels->main->kernel->text() ==
        "sparse_backward element=bf16 cu=i32 width=576 value_width=512 m=64 n=32 stages=1 packed=0 "
        "values_in_keys=1 deterministic=0 threads=256 smem=201856");
  CHECK(kernels->finish->text() == "sparse_backward_finish element=bf16 threads=256 smem=0");
  CHECK_FALSE(kernels->gather.has_value());

  problem = backward_of(72, 8, 40, 20);
  problem.element = Dtype::f16, problem.cu_seqlens = Dtype::i64;
  problem.packed = problem.sinks = problem.dsinks = problem.deterministic = true;
  kernels = sparse_backward_kernels(problem, facts("sm_80"));
  CHECK(kernels->prepare->constant("sinks") == 1);
  CHECK(kernels->main->kernel->text() ==
        "sparse_backward element=f16 cu=i64 width=128 value_width=64 m=32 n=64 stages=1 packed=1 "
        "values_in_keys=0 deterministic=1 threads=256 smem=79232");
  CHECK(kernels->ranges->text() == "sparse_backward_ranges threads=256 smem=0");
  CHECK(kernels->fill->text() == "sparse_backward_fill threads=256 smem=0");
  CHECK(kernels->gather->text() == "sparse_backward_gather threads=256 smem=0");

  problem.backward = false;  // dsinks alone
  CHECK_FALSE(sparse_backward_kernels(problem, facts("sm_80"))->main);
}

TEST_CASE("sparse backward: tiles fill neither shared memory nor registers nor idle heads") {
  struct Row {
    SparseProblem problem;
    const char* arch;
    SparseBackwardTile tile;
  };
  const Row rows[] = {
      {usual(), "sm_90a", {64, 32, 1, 8}},
      {usual(), "sm_80", {32, 32, 2, 8}},
      {usual(), "sm_86", {16, 32, 1, 4}},
      {backward_of(512, 64, 512, 64), "sm_80", {32, 32, 1, 8}},
      {backward_of(512, 64, 512, 64), "sm_86", {16, 16, 1, 4}},
      {backward_of(512, 64, 512, 16), "sm_90a", {16, 32, 1, 4}},
      {backward_of(512, 64, 512, 17), "sm_90a", {32, 32, 2, 8}},
      {backward_of(64, 0, 64, 0), "sm_80", {64, 64, 1, 8}},
      {backward_of(64, 0, 64, 1), "sm_80", {16, 64, 1, 4}},
      {backward_of(256, 64, 256, 64), "sm_90a", {64, 32, 2, 8}},
  };
  for (const Row& row : rows) {
    const auto chosen = make_step(sparse_backwards(), row.problem, facts(row.arch));
    REQUIRE(chosen.ok());
    const KernelSpec& spec = *(*chosen)->kernel;
    CAPTURE(row.arch);
    CAPTURE(row.problem.head_dim);
    CAPTURE(row.problem.group);
    CHECK(spec.constant("m") == row.tile.heads);
    CHECK(spec.constant("n") == row.tile.keys);
    CHECK(spec.constant("stages") == row.tile.stages);
    CHECK(spec.threads == 32 * row.tile.warps);
    CHECK((*chosen)->groups() == row.tile.groups());
    for (const auto& tile : sparse_backward_candidates(row.problem, facts(row.arch))) {
      CHECK(sparse_backward_smem(row.problem, tile) <= facts(row.arch).shared_bytes_per_block);
      CHECK(sparse_backward_accumulators(row.problem, tile) <= 144);
    }
  }
  DeviceFacts small = facts("sm_86");
  small.shared_bytes_per_block = 48 * 1024;
  const auto refused = make_step(sparse_backwards(), usual(), small);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Code::unsupported);
  CHECK(refused.status().text().find("49152") != std::string::npos);
}

TEST_CASE("sparse backward: the workspace of sums that all rows add to") {
  const SparseShape shape = {2, 128, 1, 100, 1000, 64, 2};
  const SparseBackwardLaunch launch = launch_of(usual(), "sm_90a", shape);
  CHECK(launch.rows == 200);
  CHECK(launch.keys == 2000);
  CHECK(launch.head_tiles == 2);
  CHECK(launch.row_blocks == 2);
  CHECK(launch.chunks == 1);
  CHECK(launch.chunk == 200);
  CHECK(launch.prepare_tiles == 4);
  const SparseBackwardWorkspace& at = launch.workspace;
  CHECK(at.delta == 0);
  CHECK(at.dsinks_parts == 200 * 128 * 4);
  CHECK(at.zeroed == at.dsinks_parts + 4 * 128 * 4);
  CHECK(at.dk_sums == at.zeroed);
  CHECK(at.dv_sums - at.dk_sums == 2000 * 576 * 4);  // values in keys have no sums of their own
  CHECK(at.zeroed_end == at.dv_sums);
  CHECK(at.total == at.zeroed_end);
  CHECK(launch.zero_chunks() == 2000 * 576 / 4);
  CHECK(launch.prepare_blocks == 4 * 128 + (2000 * 576 / 4 + 1023) / 1024);
  CHECK(launch.dk_blocks == (2000 * 72 + 255) / 256);
  CHECK(launch.dv_blocks == 0);
  CHECK(launch.dsinks_blocks == 16);
  CHECK(launch.finish_blocks() == launch.dk_blocks + 16);

  SparseProblem apart = usual();
  apart.values_in_keys = false;
  const SparseBackwardLaunch both = launch_of(apart, "sm_90a", shape);
  CHECK(both.workspace.zeroed_end - both.workspace.dv_sums == 2000 * 512 * 4);
  CHECK(both.dv_blocks == (2000 * 64 + 255) / 256);
  const SparseBackwardLaunch queries =
      launch_of(apart, "sm_90a", shape, {true, false, false, false});
  CHECK(queries.workspace.total == 200 * 128 * 4);
  CHECK(queries.finish_blocks() == 0);
}

TEST_CASE("sparse backward: chunks of a deterministic one stay within their budget") {
  SparseProblem problem = usual();
  problem.deterministic = true;
  const SparseShape shape = {1, 128, 1, 4096, 32768, 2048, 1};
  const SparseBackwardLaunch launch = launch_of(problem, "sm_90a", shape);
  // 2 tiles of 64 heads; a row's slots are 9 MiB, its counts 128 KiB.
  const int64_t row = 2 * 2048 * 576 * 4 + 32768 * 4;
  CHECK(launch.chunk * row <= kSparseChunkBytes);
  CHECK(launch.chunk * launch.chunks >= 4096);
  CHECK(launch.chunk * (launch.chunks - 1) < 4096);
  CHECK(launch.chunk > kSparseChunkBytes / row * 9 / 10);
  const SparseBackwardWorkspace& at = launch.workspace;
  CHECK(at.cursor - at.counts == launch.chunk * 32768 * 4);
  CHECK(at.zeroed_end - at.cursor == 256);
  CHECK(at.listed - at.slots == launch.chunk * 2 * 2048 * 576 * 4);
  CHECK(at.lengths - at.listed == launch.chunk * 2048 * 4);
  CHECK(at.index - at.ranges == 32768 * 2 * 4);
  CHECK(at.total - at.index == launch.chunk * 2048 * 4);
  CHECK(launch.ranges_blocks == 32768 / 8);
  CHECK(launch.gather_blocks == 5 * 32768 / 8);  // 576 columns

  // A row that is larger than the budget still has a chunk of its own.
  SparseShape long_lists = shape;
  long_lists.seq_q = 3, long_lists.topk = 8192, long_lists.block = 128;
  const SparseBackwardLaunch one = launch_of(problem, "sm_90a", long_lists);
  CHECK(one.chunk == 1);
  CHECK(one.chunks == 3);
  // Without gradients of keys there is nothing to order.
  CHECK(launch_of(problem, "sm_90a", shape, {true, false, false, true}).chunks == 1);
  // Rows of small lists come in chunks that need not be larger.
  SparseShape small = shape;
  small.seq_q = 5000, small.seq_k = 16, small.topk = 1;
  CHECK(launch_of(problem, "sm_90a", small).chunk == 1000);

  SparseShape huge = shape;
  huge.seq_k = int64_t{1} << 31;
  const auto kernels = sparse_backward_kernels(problem, facts("sm_90a"));
  const auto refused = sparse_backward_launch(problem, *kernels, huge, kAll);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Code::invalid_argument);
  CHECK(refused.status().text().find("2147483648 keys") != std::string::npos);
  SparseShape none = shape;
  none.seq_q = 0;
  CHECK(launch_of(problem, "sm_90a", none).chunks == 0);
}

TEST_CASE("sparse backward: cost") {
  const SparseProblem problem = usual();
  const SparseShape shape = {1, 128, 1, 16, 4096, 512, 1};
  const auto kernels = sparse_backward_kernels(problem, facts("sm_90a"));
  const auto launch = *sparse_backward_launch(problem, *kernels, shape, kAll);
  const Cost cost = sparse_backward_cost(problem, *kernels, shape, launch);
  CHECK(cost.flops == 2ull * 16 * 128 * 512 * (3 * 576 + 2 * 512));
  CHECK(cost.tensor_ops == cost.flops);  // 128 heads, 512 keys and all widths fill their tiles
  CHECK(cost.bytes > cost.minimum_bytes);
  // Two tiles of heads read each listed key and add to its sums.
  const uint64_t listed = 16 * 512 * 576;
  CHECK(cost.bytes - cost.minimum_bytes > listed * 2 * 4);
}
