// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The flash attention family on the host: which tiles, which constants, which grids, what cost.
#include "ops/attention/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace lathe;

namespace {

DeviceFacts facts(const char* arch) { return *facts_of_arch(arch); }

AttentionProblem forward_of(int head_dim, int value_dim) {
  AttentionProblem problem;
  problem.forward = true;
  problem.head_dim = head_dim;
  problem.value_dim = value_dim;
  return problem;
}

KernelSpec spec_of(const AttentionProblem& problem, const char* arch = "sm_80") {
  return *attention_kernels(problem, facts(arch))->forward;
}

}  // namespace

TEST_CASE("attention: a spec says what makes the code, in the template's order") {
  AttentionProblem problem = forward_of(128, 128);
  CHECK(spec_of(problem).text() ==
        "attention_forward element=bf16 cu=i32 width=128 value_width=128 m=128 n=64 stages=2 "
        "packed=0 local=0 softcap=0 alibi=0 sinks=0 pack_gqa=0 listed=0 threads=256 smem=98304");
  problem.cu_seqlens = Dtype::i64;  // of no effect without packed lengths
  CHECK(spec_of(problem).constant("cu") == static_cast<long long>(Dtype::i32));
  problem = forward_of(72, 40);
  problem.element = Dtype::f16;
  problem.cu_seqlens = Dtype::i64;
  problem.packed = problem.local = problem.softcap = problem.alibi = true;
  problem.sinks = problem.pack_gqa = true;
  CHECK(spec_of(problem).text() ==
        "attention_forward element=f16 cu=i64 width=96 value_width=64 m=128 n=64 stages=2 "
        "packed=1 local=1 softcap=1 alibi=1 sinks=1 pack_gqa=1 listed=0 threads=128 smem=65536");
  problem.forward = false;
  CHECK_FALSE(attention_kernels(problem, facts("sm_80"))->forward);
}

TEST_CASE("attention: widths are rounded up to those a kernel is made for") {
  const int rounded[][2] = {{8, 64},    {64, 64},   {72, 96},   {96, 96},   {104, 128},
                            {128, 128}, {136, 192}, {192, 192}, {200, 256}, {256, 256}};
  for (const auto& [width, padded] : rounded) CHECK(attention_padded_width(width) == padded);
}

TEST_CASE("attention: the default tile of each width, where shared memory is large and small") {
  struct Row {
    int head_dim, value_dim;
    AttentionTile large, small;
    int large_kib, small_kib;
  };
  const Row rows[] = {
      {64, 64, {128, 64, 2, 4}, {128, 64, 2, 4}, 48, 48},
      {96, 96, {128, 64, 2, 8}, {128, 64, 2, 8}, 72, 72},
      {128, 128, {128, 64, 2, 8}, {64, 64, 2, 4}, 96, 80},
      {192, 192, {128, 64, 1, 8}, {128, 64, 1, 8}, 96, 96},
      {256, 256, {128, 64, 1, 8}, {64, 64, 1, 4}, 128, 96},
      {192, 128, {128, 64, 1, 8}, {128, 64, 1, 8}, 88, 88},
      {64, 256, {128, 64, 1, 8}, {128, 64, 1, 8}, 56, 56},
      {128, 64, {128, 64, 2, 4}, {64, 64, 2, 4}, 80, 64},
  };
  for (const Row& row : rows) {
    CAPTURE(row.head_dim);
    CAPTURE(row.value_dim);
    const AttentionProblem problem = forward_of(row.head_dim, row.value_dim);
    CHECK(*attention_choose(problem, facts("sm_80")) == row.large);
    CHECK(*attention_choose(problem, facts("sm_90")) == row.large);
    CHECK(*attention_choose(problem, facts("sm_86")) == row.small);
    CHECK(*attention_choose(problem, facts("sm_89")) == row.small);
    CHECK(spec_of(problem, "sm_80").smem_bytes == row.large_kib * 1024);
    CHECK(spec_of(problem, "sm_86").smem_bytes == row.small_kib * 1024);
  }
}

TEST_CASE("attention: float32 has tiles of its own, for every width and every shared memory") {
  struct Row {
    int head_dim, value_dim;
    AttentionTile hopper, ampere, small;
  };
  const Row rows[] = {
      {64, 64, {128, 32, 1, 8}, {128, 32, 1, 8}, {128, 32, 1, 8}},
      {128, 128, {128, 32, 1, 8}, {128, 32, 1, 8}, {64, 32, 1, 4}},
      {192, 128, {128, 32, 1, 8}, {64, 32, 1, 4}, {32, 32, 1, 2}},
      {256, 256, {64, 32, 1, 4}, {64, 16, 1, 4}, {32, 16, 1, 2}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.head_dim);
    AttentionProblem problem = forward_of(row.head_dim, row.value_dim);
    problem.element = Dtype::f32;
    CHECK(*attention_choose(problem, facts("sm_90a")) == row.hopper);
    CHECK(*attention_choose(problem, facts("sm_80")) == row.ampere);
    CHECK(*attention_choose(problem, facts("sm_120")) == row.small);
    for (const char* arch : {"sm_80", "sm_86", "sm_90"}) {
      for (const AttentionTile& tile : attention_candidates(problem, facts(arch))) {
        const KernelSpec spec = attention_forward_spec(problem, tile);
        CHECK(spec.smem_bytes <= facts(arch).shared_bytes_per_block);
        CHECK(spec.smem_bytes == 6 * (tile.rows * attention_padded_width(row.head_dim) +
                                      tile.keys * (attention_padded_width(row.head_dim) +
                                                   attention_padded_width(row.value_dim))));
        CHECK(tile.rows == 16 * tile.warps);
        CHECK(attention_forward_accumulators(problem, tile) <= 160);
      }
    }
  }
}

TEST_CASE("attention: the default leaves registers free, whatever the options; tuning may not") {
  const AttentionTile four{128, 64, 2, 4};
  for (const int flags : {0, 1, 2, 3}) {
    AttentionProblem problem = forward_of(128, 128);
    problem.local = flags & 1, problem.packed = problem.alibi = flags & 2;
    CHECK(*attention_choose(problem, facts("sm_90")) == AttentionTile{128, 64, 2, 8});
    const auto candidates = attention_candidates(problem, facts("sm_90"));
    CHECK(std::count(candidates.begin(), candidates.end(), four) == 1);
    CHECK(attention_forward_accumulators(problem, four) == 224);
    CHECK(attention_forward_accumulators(problem, candidates[0]) == 112);
  }
  CHECK(attention_forward_accumulators(forward_of(64, 64), four) == 160);
}

TEST_CASE("attention: every candidate fits the device and the registers of a thread") {
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"}) {
    for (const int head_dim : {8, 64, 96, 128, 192, 256}) {
      for (const int value_dim : {64, 96, 128, 192, 256}) {
        for (const bool options : {false, true}) {
          AttentionProblem problem = forward_of(head_dim, value_dim);
          problem.local = problem.packed = problem.softcap = options;
          CAPTURE(arch);
          CAPTURE(head_dim);
          CAPTURE(value_dim);
          const auto candidates = attention_candidates(problem, facts(arch));
          REQUIRE(candidates.size() >= 2);
          CHECK(*attention_choose(problem, facts(arch)) == candidates[0]);
          for (const AttentionTile& tile : candidates) {
            CHECK(std::count(candidates.begin(), candidates.end(), tile) == 1);
            const KernelSpec spec = attention_forward_spec(problem, tile);
            CHECK(spec.smem_bytes <= facts(arch).shared_bytes_per_block);
            const int threads = spec.threads;
            const auto columns = spec.constant("value_width") + tile.keys + tile.keys / 2;
            CHECK(tile.rows * columns / threads <= 224);
            CHECK((tile.rows == 16 * tile.warps || tile.rows == 32 * tile.warps));
            CHECK(tile.keys % 16 == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("attention: along a diagonal the square tile is tried second") {
  AttentionProblem problem = forward_of(64, 64);
  problem.local = true;
  CHECK(attention_candidates(problem, facts("sm_80"))[0] == AttentionTile{128, 64, 2, 4});
  CHECK(attention_candidates(problem, facts("sm_80"))[1] == AttentionTile{64, 64, 2, 4});
}

TEST_CASE("attention: what no template covers is refused with the value and the values allowed") {
  const auto refused = [](auto change, const char* part) {
    AttentionProblem problem = forward_of(64, 64);
    change(problem);
    const auto kernels = attention_kernels(problem, facts("sm_80"));
    REQUIRE(!kernels.ok());
    CHECK(kernels.status().code() == Code::unsupported);
    CHECK_MESSAGE(kernels.status().text().find(part) != std::string::npos, kernels.status().text());
  };
  refused([](AttentionProblem& p) { p.element = Dtype::i32; },
          "q is i32; allowed are f16, bf16, f32");
  refused([](AttentionProblem& p) { p.packed = true, p.cu_seqlens = Dtype::f16; },
          "cu_seqlens is f16; allowed are i32, i64");
  refused([](AttentionProblem& p) { p.head_dim = 4; }, "head width is 4; allowed are multiples");
  refused([](AttentionProblem& p) { p.head_dim = 100; }, "head width is 100");
  refused([](AttentionProblem& p) { p.value_dim = 264; }, "head width is 264");
  refused([](AttentionProblem& p) { p.value_dim = 0; }, "head width is 0");

  DeviceFacts small = facts("sm_86");
  small.shared_bytes_per_block = 48 * 1024;
  const auto kernels = attention_kernels(forward_of(256, 256), small);
  REQUIRE(!kernels.ok());
  CHECK(kernels.status().code() == Code::unsupported);
  CHECK(kernels.status().text() ==
        "flash_attention: a block needs at least 65536 bytes of shared memory, sm_86 allows 49152");
  CHECK(attention_kernels(forward_of(64, 64), small).ok());
}

TEST_CASE("attention: grids hold a block per tile, head and sequence") {
  AttentionProblem problem = forward_of(64, 64);
  AttentionShape shape{3, 8, 2, 130, 77};
  CHECK(attention_tiles(spec_of(problem), shape) == 2);
  CHECK(attention_forward_grid(spec_of(problem), shape).x == 2 * 8 * 3);
  problem.pack_gqa = true;  // 4 heads of a key head: 520 rows
  CHECK(attention_tiles(spec_of(problem), shape) == 5);
  CHECK(attention_forward_grid(spec_of(problem), shape).x == 5 * 2 * 3);
  CHECK(attention_forward_grid(spec_of(problem), shape).y == 1);
  shape.seq_q = 0;
  CHECK(attention_forward_grid(spec_of(problem), shape).x == 0);
  shape = {1 << 20, 64, 64, 4096, 4096};  // more than a grid may have: not cut off here
  CHECK(attention_forward_blocks(spec_of(problem), shape) == (1ll << 31));
}

TEST_CASE("attention: only split keys need a workspace") {
  AttentionProblem problem = forward_of(64, 40);
  const AttentionShape shape{3, 8, 2, 130, 77};
  CHECK(attention_forward_workspace_bytes(problem, shape, 1) == 0);
  // 2 * 8 * 390 * 41 * 4 = 1023360, up to a multiple of 256.
  CHECK(attention_forward_workspace_bytes(problem, shape, 2) == 1023488);
  problem.packed = true;  // 130 is then the rows of all sequences
  CHECK(attention_forward_workspace_bytes(problem, shape, 2) == 341248);
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
