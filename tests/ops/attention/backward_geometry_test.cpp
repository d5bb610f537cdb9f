// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the launches of the backward of flash attention on the host: grids, heads apart
// or together, slices, workspace and cost.
#include <algorithm>

#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;
using namespace kernel_problems;

TEST_CASE("attention backward: grids without gaps between heads and sequences") {
  AttentionProblem problem = backward_of(64, 40);
  problem.dsinks = true;
  const auto kernels = kernels_of(problem);  // 64 queries by 128 keys
  // 2 sequences, 8 heads of 2 key heads: 2 * 2 * 2 blocks are too few for 108 multiprocessors.
  AttentionShape shape{2, 8, 2, 130, 200};
  auto launch = kernels->plan(shape, kAll);
  CHECK(launch.apart);
  CHECK(launch.rows == 260);
  CHECK(launch.keys == 400);
  CHECK(launch.prepare_tiles == 5);  // of rows that are not apart by sequence
  CHECK(launch.prepare_blocks == 40);
  CHECK(launch.slices == 2);
  CHECK(launch.main_blocks == 2 * 8 * 2);
  CHECK(launch.dq.accumulators == 1);
  CHECK(launch.dq.finish_blocks == 65);  // 260 * 8 * 8 / 256
  CHECK(launch.dk_blocks == 25);         // 400 * 2 * 8 / 256
  CHECK(launch.dv_blocks == 16);         // 400 * 2 * 5 / 256 = 15.6
  CHECK(launch.dsinks_blocks == 1);
  CHECK(launch.finish_blocks() == 107);

  shape = {2, 8, 2, 130, 3000};  // 2 * 2 * 24 = 96 blocks: 0.8 of 108 are 86.4
  launch = kernels->plan(shape, kAll);
  CHECK_FALSE(launch.apart);
  CHECK(launch.main_blocks == 24 * 2 * 2);
  CHECK(launch.dk_blocks == 0);
  CHECK(launch.dv_blocks == 0);
  // Gradients that nobody asked for are not computed.
  launch = kernels->plan(shape, {false, true});
  CHECK(launch.dq.accumulators == 0);
  CHECK(launch.finish_blocks() == 0);

  shape = {2, 8, 2, 130, 0};
  launch = kernels->plan(shape, kAll);
  CHECK(launch.main_blocks == 0);
  CHECK(launch.dq.finish_blocks == 65);
  shape = {2, 8, 2, 0, 200};
  launch = kernels->plan(shape, kAll);
  CHECK(launch.prepare_blocks == 0);
  CHECK(launch.main_blocks > 0);
  CHECK(launch.dsinks_blocks == 1);
}

TEST_CASE("attention backward: heads go apart where key heads fill less than 0.8 of the device") {
  struct Row {
    bool packed, deterministic;
    AttentionShape shape;
    bool apart;
  };
  DeviceFacts h100 = facts("sm_90");  // 132: from 106 blocks on there are enough
  h100.choices = std::make_shared<TakesTile>("m=64 n=128 stages=1 width_warps=1 warps=8");
  for (const Row& row : std::vector<Row>{
           {false, false, {1, 8, 8, 128, 128}, false},   // one query head each
           {false, false, {1, 8, 1, 128, 13440}, true},  // 105
           {false, false, {1, 8, 1, 128, 13441}, false},
           {false, false, {53, 8, 2, 128, 1}, false},
           {true, false, {53, 8, 2, 128, 6656}, true},  // 2 * 52: 53 sequences share 6656 keys
           {true, false, {53, 8, 2, 128, 6700}, false},
           {false, true, {4, 8, 2, 128, 65536}, true},    // 5 slices of 8 columns
           {false, true, {64, 8, 2, 128, 65536}, false},  // 128 columns
       }) {
    AttentionProblem problem = backward_of(128, 128);
    problem.packed = row.packed, problem.deterministic = row.deterministic;
    CAPTURE(row.shape.sequences);
    CAPTURE(row.shape.seq_k);
    const auto kernels = backward_kernels(problem, h100, {true, true});
    REQUIRE(kernels->tiling().n == 128);
    CHECK(kernels->heads_apart(row.shape) == row.apart);
  }
}

TEST_CASE("attention backward: deterministic, as many slices as fill the device, not more") {
  AttentionProblem problem = backward_of(128, 128);
  problem.deterministic = true;
  const auto slices = [&](const AttentionShape& shape, const char* arch) {
    const auto launch = kernels_of(problem, arch)->plan(shape, kAll);
    CHECK(launch.dq.accumulators == std::max<int64_t>(launch.slices, 1));
    return launch.slices;
  };
  CHECK(slices({1, 8, 8, 4096, 4096}, "sm_90") == 17);  // 132 / 8
  CHECK(slices({4, 32, 8, 4096, 4096}, "sm_90") == 2);
  CHECK(slices({8, 32, 8, 4096, 4096}, "sm_90") == 1);
  CHECK(slices({1, 1, 1, 4096, 4096}, "sm_90") == 32);  // one each
  CHECK(slices({1, 8, 8, 4096, 4096}, "sm_80") == 14);  // other GPUs, other sums
  CHECK(slices({1, 8, 8, 4096, 0}, "sm_80") == 0);
}

TEST_CASE("attention backward: the workspace is the sum of its parts, each of whole 256 bytes") {
  AttentionProblem problem = backward_of(64, 40);
  problem.dsinks = true;
  const AttentionShape shape{2, 8, 2, 130, 200};
  const auto lay_out = [&](const AttentionGradients& wanted) {
    const auto kernels = kernels_of(problem);
    const auto launch = kernels->plan(shape, wanted);
    return *attention_backward_workspace(problem, shape, launch);
  };
  AttentionBackwardWorkspace found = lay_out(kAll);
  CHECK(found.lse2 == 0);
  CHECK(found.delta == 8448);                           // 8 * 260 * 4 = 8320
  CHECK(found.dq_sums == 2 * 8448);                     // 260 * 8 * 64 * 4 = 532480
  CHECK(found.dk_parts == 2 * 8448 + 532480);           // 400 * 8 * 64 * 4 = 819200
  CHECK(found.dv_parts == 2 * 8448 + 532480 + 819200);  // 400 * 8 * 40 * 4 = 512000
  CHECK(found.dsinks_parts == 2 * 8448 + 532480 + 819200 + 512000);
  CHECK(found.total == 2 * 8448 + 532480 + 819200 + 512000 + 256);  // 5 * 8 * 4 = 160
  CHECK(lay_out({true}).total == 2 * 8448 + 532480 + 256);
  problem.dsinks = false;
  CHECK(lay_out({false, true}).total == 2 * 8448 + 819200);
  problem.deterministic = true;  // 2 slices of 3 at most
  CHECK(lay_out({true}).total == 2 * 8448 + 2 * 532480);
  problem.packed = true;  // 130 and 200 are then rows of all sequences
  CHECK(lay_out({true}).total == 2 * 4352 + 2 * 266240);  // 8 * 130 * 4 = 4160

  const int64_t most = 2147483647;
  const AttentionShape large{most, most, most, 1, 1};
  problem.packed = problem.deterministic = false;
  const auto launch = kernels_of(problem)->plan(large, kAll);
  const auto refused = attention_backward_workspace(problem, large, launch);
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == Code::invalid_argument);
}

TEST_CASE("attention backward: five products per kept pair, and the blocks that hold one") {
  AttentionProblem problem = backward_of(64, 64);
  const auto kernels = kernels_of(problem);
  const auto cost_of = [&](const AttentionShape& shape, const AttentionMask& mask) {
    const auto launch = kernels->plan(shape, {true, true, true});
    const std::vector<AttentionSequences> sequences = {{mask, shape.sequences}};
    return attention_backward_cost(problem, *kernels, shape, launch, sequences);
  };
  const AttentionCost whole = cost_of({8, 4, 4, 1024, 512}, {1024, 512, -1, -1});
  CHECK(whole.flops == 10ull * 8 * 4 * 1024 * 512 * 64);
  CHECK(whole.tile_flops == whole.flops);
  const uint64_t rows = 8ull * 4 * 1024, keys = 8ull * 4 * 512;
  CHECK(whole.minimum_bytes == rows * (4 * 64 * 2 + 4) + keys * 4 * 64 * 2);
  // lse2 and delta written; dq zeroed, read at the end and added to by 4 blocks of keys, for which
  // q, dout, lse2 and delta are read; dout read once more before.
  CHECK(whole.bytes == whole.minimum_bytes + rows * (2 * 8 + 2 * 64 * 4) +
                           rows * (4 * (2 * 64 * 2 + 8 + 64 * 4) - 64 * 2));

  problem.local = true;
  const AttentionCost causal = cost_of({1, 3, 3, 1024, 1024}, {1024, 1024, -1, 0});
  CHECK(causal.flops == 10ull * 64 * 3 * (1024 * 1025 / 2));
  uint64_t crossed = 0;  // blocks of 64 rows by 128 keys with a pair on or below the diagonal
  for (int key = 0; key < 1024; key += 128) {
    for (int row = 0; row < 1024; row += 64) crossed += row + 63 >= key;
  }
  CHECK(causal.tile_flops == 10ull * 64 * 3 * crossed * 64 * 128);
  CHECK(cost_of({1, 3, 3, 0, 7}, {0, 7, -1, 0}).flops == 0);
  CHECK(cost_of({1, 3, 3, 5, 0}, {5, 0, -1, 0}).tile_flops == 0);
}
