// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the flash attention family on the host: which tiles, which constants, which
// grids, what cost.
#include <algorithm>

#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;
using namespace kernel_problems;

TEST_CASE("attention: a spec says what makes the code, in the template's order") {
  AttentionProblem problem = forward_of(128, 128);
  CHECK(spec_of(problem).text() ==
        "attention_forward element=bf16 cu=i32 width=128 value_width=128 m=128 n=128 stages=1 "
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
}

TEST_CASE("attention: widths are rounded up to those a kernel is made for") {
  const int rounded[][2] = {{8, 64},    {64, 64},   {72, 96},   {96, 96},   {104, 128},
                            {128, 128}, {136, 192}, {192, 192}, {200, 256}, {256, 256}};
  for (const auto& [width, padded] : rounded) CHECK(attention_padded_width(width) == padded);
}

TEST_CASE("attention: the default tile of each width, where shared memory is large and small") {
  struct Row {
    int head_dim, value_dim;
    AttentionTile hopper, large, small;
    int large_kib, small_kib;
  };
  const Row rows[] = {
      {64, 64, {128, 64, 1, 4}, {128, 64, 1, 4}, {128, 64, 1, 4}, 32, 32},
      {96, 96, {128, 64, 1, 4}, {128, 64, 1, 4}, {128, 64, 1, 4}, 48, 48},
      {128, 128, {128, 64, 1, 4}, {128, 128, 1, 8}, {64, 64, 2, 4}, 96, 80},
      {192, 192, {128, 64, 1, 8}, {128, 64, 1, 8}, {128, 64, 1, 8}, 96, 96},
      {256, 256, {128, 64, 1, 8}, {128, 64, 1, 8}, {64, 64, 1, 4}, 128, 96},
      {192, 128, {128, 64, 1, 8}, {128, 64, 1, 8}, {128, 64, 1, 8}, 88, 88},
      {64, 256, {128, 64, 1, 8}, {128, 64, 1, 8}, {128, 64, 1, 8}, 56, 56},
      {128, 64, {128, 64, 2, 4}, {128, 64, 2, 4}, {64, 64, 2, 4}, 80, 64},
  };
  for (const Row& row : rows) {
    CAPTURE(row.head_dim);
    CAPTURE(row.value_dim);
    const AttentionProblem problem = forward_of(row.head_dim, row.value_dim);
    CHECK(first_tile(problem, facts("sm_80")) == row.large);
    CHECK(first_tile(problem, facts("sm_90")) == row.hopper);
    CHECK(first_tile(problem, facts("sm_86")) == row.small);
    CHECK(first_tile(problem, facts("sm_89")) == row.small);
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
    CHECK(first_tile(problem, facts("sm_90a")) == row.hopper);
    CHECK(first_tile(problem, facts("sm_80")) == row.ampere);
    CHECK(first_tile(problem, facts("sm_120")) == row.small);
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

TEST_CASE("attention: options do not change the default, which two blocks share, but mods do") {
  const AttentionTile two_copies{128, 64, 2, 4};
  for (const int flags : {0, 1, 2, 3}) {
    AttentionProblem problem = forward_of(128, 128);
    problem.local = flags & 1, problem.packed = problem.alibi = flags & 2;
    CHECK(first_tile(problem, facts("sm_90")) == AttentionTile{128, 64, 1, 4});
    CHECK(first_tile(problem, facts("sm_80")) == AttentionTile{128, 128, 1, 8});
    const auto candidates = attention_candidates(problem, facts("sm_90"));
    CHECK(std::count(candidates.begin(), candidates.end(), two_copies) == 1);
    CHECK(attention_forward_accumulators(problem, candidates[0]) == 224);
    // A mod takes registers, but their number is not known.
    problem.mods = {{"score_mod", "", ""}};
    const AttentionTile modified = first_tile(problem, facts("sm_90"));
    CHECK(modified == AttentionTile{128, 64, 2, 8});
    CHECK(attention_forward_accumulators(problem, modified) == 112);
  }
  // Where two blocks do not fit, eight warps share a block.
  DeviceFacts lean = facts("sm_90");
  lean.shared_bytes_per_block = lean.shared_bytes_per_multiprocessor = 129 * 1024;
  CHECK(first_tile(forward_of(128, 128), lean) == AttentionTile{128, 128, 1, 8});
  CHECK(attention_forward_accumulators(forward_of(64, 64), two_copies) == 160);
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
          CHECK(spec_of(problem, arch).text() ==
                attention_forward_spec(problem, candidates[0]).text());
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
  CHECK(attention_candidates(problem, facts("sm_80"))[0] == AttentionTile{128, 64, 1, 4});
  CHECK(attention_candidates(problem, facts("sm_80"))[1] == AttentionTile{64, 64, 2, 4});
}

TEST_CASE("attention: a device with too little shared memory for any tile is refused") {
  DeviceFacts small = facts("sm_86");
  small.shared_bytes_per_block = 48 * 1024;
  const auto kernels = make_step(attention_forwards(), forward_of(256, 256), small);
  REQUIRE(!kernels.ok());
  CHECK(kernels.status().code() == Code::unsupported);
  CHECK(kernels.status().text() ==
        "flash_attention: a block needs at least 65536 bytes of shared memory, sm_86 allows 49152");
  CHECK(make_step(attention_forwards(), forward_of(64, 64), small).ok());
}
