// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the backward of flash attention on the host: which tiles, constants, grids,
// workspace and cost.
#include <algorithm>

#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;
using namespace kernel_problems;

namespace {

void check_texts(const std::vector<std::pair<const KernelSpec*, std::string>>& texts) {
  for (const auto& [spec, text] : texts) CHECK(spec->text() == text);
}

}  // namespace

TEST_CASE("attention backward: specs say what makes the code, in the templates' order") {
  AttentionProblem problem = backward_of(128, 128);
  problem.cu_seqlens = Dtype::i64;  // of no effect without packed lengths
  auto kernels = kernels_of(problem);
  check_texts(
      {{&*kernels->prepare,
        "attention_backward_prepare element=bf16 cu=i32 value_width=128 m=64 packed=0 sinks=0 "
        "dlse=0 threads=128 smem=16"},
       {&*kernels->together,
        "attention_backward element=bf16 cu=i32 width=128 value_width=128 m=64 n=128 stages=2 "
        "width_warps=1 packed=0 local=0 softcap=0 alibi=0 deterministic=0 heads_apart=0 "
        "threads=256 smem=131712"},
       {&*kernels->finish, "attention_backward_finish element=bf16 threads=256 smem=0"}});

  problem = backward_of(72, 40);
  problem.element = Dtype::f16;
  problem.cu_seqlens = Dtype::i64;
  problem.packed = problem.local = problem.softcap = problem.alibi = problem.sinks = true;
  problem.dsinks = problem.dlse = problem.deterministic = true;
  kernels = kernels_of(problem);
  check_texts(
      {{&*kernels->prepare,
        "attention_backward_prepare element=f16 cu=i64 value_width=64 m=64 packed=1 sinks=1 "
        "dlse=1 threads=128 smem=16"},
       {&*kernels->apart,
        "attention_backward element=f16 cu=i64 width=96 value_width=64 m=64 n=128 stages=2 "
        "width_warps=1 packed=1 local=1 softcap=1 alibi=1 deterministic=1 heads_apart=1 "
        "threads=256 smem=90752"}});
  // The main kernels differ in nothing else, and only those that may be needed are made.
  CHECK(kernels->together->constants.size() == kernels->apart->constants.size());
  CHECK_FALSE(kernels_of(problem, "sm_80", {true, false})->apart);
  CHECK_FALSE(kernels_of(problem, "sm_80", {false, true})->together);
  problem.backward = false;  // dsinks alone
  CHECK_FALSE(kernels_of(problem)->together);
  CHECK_FALSE(kernels_of(problem)->apart);
}

TEST_CASE("attention backward: the default tile, where shared memory is large and small") {
  // Beside the tiles' bytes there are two float32 of each row, and 128 bytes.
  struct Row {
    int head_dim, value_dim;
    AttentionBackwardTile large, small;
    int large_kib, small_kib;
  };
  const Row rows[] = {
      {64, 64, {32, 128, 1, 4, 1}, {32, 128, 1, 4, 1}, 48, 48},
      {96, 96, {64, 128, 2, 8, 1}, {64, 128, 1, 8, 1}, 100, 88},
      {128, 128, {64, 128, 2, 8, 1}, {64, 64, 1, 4, 1}, 128, 72},
      {192, 192, {64, 64, 1, 8, 2}, {32, 64, 1, 8, 2}, 112, 80},
      {256, 256, {64, 64, 1, 8, 2}, {32, 32, 1, 4, 2}, 144, 68},
      {192, 128, {64, 64, 1, 8, 2}, {64, 64, 1, 8, 2}, 96, 96},
      {64, 256, {64, 64, 1, 8, 2}, {64, 64, 1, 8, 2}, 96, 96},
      {128, 64, {64, 128, 2, 8, 1}, {64, 128, 1, 8, 1}, 104, 88},
  };
  for (const Row& row : rows) {
    CAPTURE(row.head_dim);
    CAPTURE(row.value_dim);
    const AttentionProblem problem = backward_of(row.head_dim, row.value_dim);
    CHECK(first_backward_tile(problem, facts("sm_80")) == row.large);
    CHECK(first_backward_tile(problem, facts("sm_90")) == row.large);
    CHECK(first_backward_tile(problem, facts("sm_86")) == row.small);
    CHECK(first_backward_tile(problem, facts("sm_120")) == row.small);
    CHECK(kernels_of(problem)->together->smem_bytes ==
          row.large_kib * 1024 + 8 * row.large.rows + 128);
    CHECK(kernels_of(problem, "sm_89")->together->smem_bytes ==
          row.small_kib * 1024 + 8 * row.small.rows + 128);
  }
}

TEST_CASE("attention backward: what takes registers has no pair of blocks and one copy in flight") {
  const AttentionBackwardTile narrow{64, 128, 2, 8, 1}, wide{64, 128, 1, 8, 1};
  const auto chosen = [](const AttentionProblem& problem) {
    return first_backward_tile(problem, facts("sm_90"));
  };
  for (const int width : {64, 128}) {
    CAPTURE(width);
    AttentionProblem problem = backward_of(width, width);
    problem.local = problem.packed = true;
    CHECK_FALSE(chosen(problem) == (width == 64 ? narrow : wide));
    for (bool AttentionProblem::*option : {&AttentionProblem::softcap, &AttentionProblem::alibi}) {
      AttentionProblem modified = problem;
      modified.*option = true;
      CHECK(chosen(modified) == (width == 64 ? narrow : wide));
    }
    // As many blocks as multiprocessors, not two of each.
    problem.deterministic = true;
    CHECK(chosen(problem) == narrow);
  }
}

TEST_CASE("attention backward: every candidate fits the device and the registers of a thread") {
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"}) {
    for (const int head_dim : {8, 64, 96, 128, 192, 256}) {
      for (const int value_dim : {64, 96, 128, 192, 256}) {
        const AttentionProblem problem = backward_of(head_dim, value_dim);
        CAPTURE(arch);
        CAPTURE(head_dim);
        CAPTURE(value_dim);
        const auto candidates = attention_backward_candidates(problem, facts(arch));
        REQUIRE(candidates.size() >= 1);
        CHECK(first_backward_tile(problem, facts(arch)) == candidates[0]);
        for (const AttentionBackwardTile& tile : candidates) {
          CHECK(std::count(candidates.begin(), candidates.end(), tile) == 1);
          const KernelSpec spec = attention_backward_spec(problem, tile, false);
          CHECK(spec.smem_bytes <= facts(arch).shared_bytes_per_block);
          const int keys = tile.keys * tile.width_warps / tile.warps;  // of a warp
          CHECK((keys == 16 || (keys == 32 && std::max(head_dim, value_dim) <= 128)));
          CHECK(tile.rows % 16 == 0);
          CHECK(attention_backward_accumulators(problem, tile) <= 224);
        }
        const bool wide = std::max(head_dim, value_dim) > 128;
        CHECK(candidates[0].width_warps == (wide ? 2 : 1));
      }
    }
  }
  // dk, dv, scores and their gradients of 16 keys by 64 queries.
  CHECK(attention_backward_accumulators(backward_of(128, 128), {64, 128, 1, 8, 1}) == 64 + 64 + 64);
  CHECK(attention_backward_accumulators(backward_of(256, 256), {64, 64, 1, 8, 2}) == 64 + 64 + 32);

  DeviceFacts small = facts("sm_86");
  small.shared_bytes_per_block = 48 * 1024;
  const auto refused = make_attention_backward({backward_of(256, 256), {}}, small);
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == Code::unsupported);
  CHECK(refused.status().text() ==
        "flash_attention: a block of the backward needs at least 70016 bytes of shared memory, "
        "sm_86 allows 49152");
}

TEST_CASE("attention backward: the warps of every candidate divide the columns of dq") {
  for (const Dtype element : {Dtype::bf16, Dtype::f32}) {
    for (const char* arch : {"sm_80", "sm_86", "sm_90"}) {
      for (const int head_dim : {64, 96, 128, 192, 256}) {
        for (const int value_dim : {64, 96, 128, 192, 256}) {
          AttentionProblem problem = backward_of(head_dim, value_dim);
          problem.element = element;
          for (const AttentionBackwardTile& tile :
               attention_backward_candidates(problem, facts(arch))) {
            // Four shares of 96 columns would cut a block of 16.
            const int ways = head_dim == 96 ? 2 : 4;
            CAPTURE(head_dim);
            CAPTURE(tile.rows);
            CAPTURE(tile.warps);
            CHECK(tile.rows / 16 * ways >= tile.warps);
          }
        }
      }
    }
  }
}

TEST_CASE("attention backward: float32 has tiles of its own, for every width and device") {
  struct Row {
    int head_dim, value_dim;
    AttentionBackwardTile large, small;
  };
  const Row rows[] = {
      {64, 64, {32, 64, 1, 4, 1}, {32, 64, 1, 4, 1}},
      {128, 128, {32, 64, 1, 4, 1}, {16, 32, 1, 2, 1}},
      {192, 128, {16, 32, 1, 4, 2}, {16, 32, 1, 4, 2}},
      {96, 192, {16, 16, 1, 2, 2}, {16, 16, 1, 2, 2}},
      {256, 256, {16, 32, 1, 4, 2}, {16, 16, 1, 2, 2}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.head_dim);
    AttentionProblem problem = backward_of(row.head_dim, row.value_dim);
    problem.element = Dtype::f32;
    CHECK(first_backward_tile(problem, facts("sm_80")) == row.large);
    CHECK(first_backward_tile(problem, facts("sm_120")) == row.small);
    for (const char* arch : {"sm_80", "sm_120"}) {
      const AttentionBackwardTile tile = first_backward_tile(problem, facts(arch));
      const int bytes = attention_backward_spec(problem, tile, false).smem_bytes;
      CHECK(bytes <= facts(arch).shared_bytes_per_block);
      CHECK(bytes ==
            6 * ((tile.rows + tile.keys) * (row.head_dim + row.value_dim) + tile.rows * tile.keys) +
                8 * tile.rows + 128);
    }
  }
}
