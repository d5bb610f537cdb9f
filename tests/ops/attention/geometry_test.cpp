// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the launches of flash attention on the host: grids, workspaces, and cost under
// every mask.
#include <algorithm>

#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;
using namespace kernel_problems;

TEST_CASE("attention: grids hold a block per tile, head and sequence") {
  AttentionProblem problem = forward_of(64, 64);
  AttentionShape shape{3, 8, 2, 130, 77};
  CHECK(attention_tiles(AttentionTiling(spec_of(problem)), shape) == 2);
  CHECK(attention_forward_blocks(AttentionTiling(spec_of(problem)), shape) == 2 * 8 * 3);
  problem.pack_gqa = true;  // 4 heads of a key head: 520 rows
  CHECK(attention_tiles(AttentionTiling(spec_of(problem)), shape) == 5);
  CHECK(attention_forward_blocks(AttentionTiling(spec_of(problem)), shape) == 5 * 2 * 3);
  shape.seq_q = 0;
  CHECK(attention_forward_blocks(AttentionTiling(spec_of(problem)), shape) == 0);
  shape = {1 << 20, 64, 64, 4096, 4096};  // more than a grid may have: not cut off here
  CHECK(attention_forward_blocks(AttentionTiling(spec_of(problem)), shape) == (1ll << 31));
}

TEST_CASE("attention: cost without a mask is that of the formulas") {
  const AttentionProblem problem = forward_of(64, 64);
  const AttentionShape shape{2, 8, 2, 1024, 512};
  const std::vector<AttentionSequences> sequences = {{{1024, 512, -1, -1}, 2}};
  const AttentionCost cost = attention_forward_cost(problem, spec_of(problem), shape, sequences);
  CHECK(cost.flops == 4ull * 2 * 8 * 1024 * 512 * 64);
  CHECK(cost.tile_flops == cost.flops);
  const uint64_t rows = 2ull * 8 * 1024, keys = 2ull * 2 * 512;
  CHECK(cost.minimum_bytes == rows * (64 + 64) * 2 + rows * 4 + keys * (64 + 64) * 2);
  // 8 tiles of each of the 4 heads of a key head read its keys.
  CHECK(cost.bytes - cost.minimum_bytes == keys * (8 * 4 - 1) * (64 + 64) * 2);
}

TEST_CASE("attention: pairs that a mask keeps, as counted one by one") {
  for (const int64_t queries : {0, 1, 3, 7}) {
    for (const int64_t keys : {0, 1, 4, 9}) {
      for (const int64_t left : {-1, 0, 2, 20}) {
        for (const int64_t right : {-1, 0, 3, 20}) {
          const AttentionMask mask = {queries, keys, left, right};
          uint64_t kept = 0;
          for (int64_t row = 0; row < queries; ++row) {
            for (int64_t key = 0; key < keys; ++key) {
              kept += mask.first_key(row) <= key && key <= mask.last_key(row);
            }
          }
          CAPTURE(queries);
          CAPTURE(keys);
          CAPTURE(left);
          CAPTURE(right);
          CHECK(attention_kept_pairs(mask) == kept);
        }
      }
    }
  }
  const int64_t most = (int64_t{1} << 31) - 1;
  const uint64_t all = static_cast<uint64_t>(most) * static_cast<uint64_t>(most);
  CHECK(attention_kept_pairs({most, most, -1, INT64_MAX}) == all);
  CHECK(attention_kept_pairs({most, most, -1, 0}) == (all + static_cast<uint64_t>(most)) / 2);
}

TEST_CASE("attention: cost of many sequences and of very long ones takes no time of each") {
  AttentionProblem problem = forward_of(64, 64);
  problem.local = true;
  const AttentionMask mask = {200, 300, 50, 0};
  const AttentionCost one =
      attention_forward_cost(problem, spec_of(problem), {1, 2, 2, 200, 300}, {{mask, 1}});
  const AttentionShape shape{int64_t{1} << 30, 2, 2, 200, 300};
  const AttentionCost many =
      attention_forward_cost(problem, spec_of(problem), shape, {{mask, shape.sequences}});
  CHECK(many.flops == one.flops << 30);
  CHECK(many.tile_flops == one.tile_flops << 30);
  CHECK(many.bytes == one.bytes << 30);
  CHECK(many.minimum_bytes == one.minimum_bytes << 30);

  // 2^31 - 1 tokens: 2^62 pairs of each head are more than 64 bits of operations.
  const int64_t most = (int64_t{1} << 31) - 1;
  const AttentionCost longest = attention_forward_cost(
      problem, spec_of(problem), {1, 2, 2, most, most}, {{{most, most, -1, -1}, 1}});
  CHECK(longest.flops == UINT64_MAX);
  // A diagonal leaves half of the pairs, to a ten-thousandth: one tile speaks for its neighbours.
  const int64_t tokens = int64_t{1} << 27;
  const AttentionCost diagonal = attention_forward_cost(
      problem, spec_of(problem), {1, 1, 1, tokens, tokens}, {{{tokens, tokens, -1, 0}, 1}});
  CHECK(static_cast<double>(diagonal.tile_flops) / static_cast<double>(diagonal.flops) ==
        doctest::Approx(1).epsilon(1e-4));
}

TEST_CASE("attention: cost of a diagonal counts the tiles that it crosses, and no more") {
  AttentionProblem problem = forward_of(128, 128);
  problem.local = problem.sinks = problem.alibi = true;
  const AttentionShape shape{1, 3, 1, 1024, 1024};
  const AttentionCost cost =
      attention_forward_cost(problem, spec_of(problem), shape, {{1024, 1024, -1, 0}});
  CHECK(cost.flops == 2ull * 256 * 3 * (1024 * 1025 / 2));
  uint64_t crossed = 0;  // tiles of 128 rows by 64 keys with a pair on or below the diagonal
  for (int row = 0; row < 1024; row += 128) {
    for (int key = 0; key < 1024; key += 64) crossed += key <= row + 127;
  }
  CHECK(cost.tile_flops == 2ull * 256 * 3 * crossed * 128 * 64);
  CHECK(cost.minimum_bytes == 3ull * 1024 * (256 * 2 + 4) + 1024ull * 256 * 2 + 2 * 3 * 4);

  // Packing the heads of a group reads its keys once, whatever the ratio.
  problem.pack_gqa = true;
  const AttentionShape decode{1, 8, 1, 1, 1000};
  const AttentionCost packed =
      attention_forward_cost(problem, spec_of(problem), decode, {{1, 1000, -1, 0}});
  CHECK(packed.bytes == packed.minimum_bytes);
  CHECK(packed.flops == 2ull * 256 * 8 * 1000);
  CHECK(packed.tile_flops == 2ull * 256 * 128 * 1024);

  // Sequences without keys or without rows cost what their rows are wide.
  const AttentionCost empty =
      attention_forward_cost(problem, spec_of(problem), decode, {{5, 0, -1, 0}, {0, 7, -1, 0}});
  CHECK(empty.flops == 0);
  CHECK(empty.tile_flops == 0);
}
