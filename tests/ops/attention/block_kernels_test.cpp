// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The block step on the host: visits of pairs against every pair of row and key, specs, workspace.
#include "ops/attention/block_kernels.h"

#include <doctest/doctest.h>

#include <random>

#include "ops/attention/merge_kernels.h"

using namespace lathe;

namespace {

bool kept(const AttentionPair& pair, int64_t left, int64_t right, int64_t row, int64_t key) {
  if (row < pair.qa || row >= pair.qb || key < pair.ka || key >= pair.kb) return false;
  const int64_t ahead = (key - pair.ka) - (row - pair.qa) - pair.shift;
  return (left < 0 || -ahead <= left) && (right < 0 || ahead <= right);
}

}  // namespace

TEST_CASE("pairs: every kept key is visited once, and only edge blocks are masked") {
  std::mt19937 random(1);
  const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
  for (int turn = 0; turn < 3000; ++turn) {
    const int64_t rows = 1 + up_to(40), keys = up_to(60), block = 1 + up_to(9);
    const int64_t left = up_to(12) - 1, right = up_to(6) - 1;
    const int64_t begin = up_to(rows - 1), end = begin + 1 + up_to(rows - begin - 1);
    std::vector<AttentionPair> pairs;
    for (int64_t qa = up_to(5); qa < rows; qa += up_to(20)) {
      const int64_t ka = up_to(keys);
      pairs.push_back(
          {qa, std::min(rows, qa + up_to(20)), ka, ka + up_to(keys - ka), up_to(2 * keys) - keys});
    }
    const auto visits = attention_pair_visits(pairs, left, right, begin, end, block);
    for (size_t p = 0; p < pairs.size(); ++p) {
      std::vector<int> seen(static_cast<size_t>(keys));
      for (const AttentionVisit& visit : visits) {
        if (visit.pair != static_cast<int64_t>(p)) continue;
        REQUIRE(pairs[p].ka <= visit.begin);
        REQUIRE(visit.begin < visit.end);
        REQUIRE(visit.end <= pairs[p].kb);
        REQUIRE(visit.end - visit.begin <= block);
        bool all = visit.end - visit.begin == block;
        for (int64_t key = visit.begin; key < visit.end; ++key) {
          ++seen[static_cast<size_t>(key)];
          for (int64_t row = begin; row < end; ++row) {
            all = all && kept(pairs[p], left, right, row, key);
          }
        }
        REQUIRE(visit.masked == !all);
      }
      for (int64_t key = 0; key < keys; ++key) {
        bool any = false;
        for (int64_t row = begin; row < end; ++row) {
          any = any || kept(pairs[p], left, right, row, key);
        }
        REQUIRE(seen[static_cast<size_t>(key)] <= 1);
        if (any) REQUIRE(seen[static_cast<size_t>(key)] == 1);
      }
    }
    for (size_t i = 1; i < visits.size(); ++i) REQUIRE(visits[i - 1].pair <= visits[i].pair);
  }
}

TEST_CASE("pairs: one that is not masked equals the ranges of a sequence") {
  // Four ranks, head-tail, causal: what rank 1's tail half sees of rank 3, whole blocks alone.
  const std::vector<AttentionPair> pairs = {{64, 128, 0, 64, 6 * 64 - 3 * 64}};
  const auto visits = attention_pair_visits(pairs, -1, 0, 64, 128, 32);
  REQUIRE(visits.size() == 2);
  CHECK(visits[0] == AttentionVisit{0, 32, 64, false});
  CHECK(visits[1] == AttentionVisit{0, 0, 32, false});
  // Its own chunk: the diagonal.
  const auto own = attention_pair_visits({{64, 128, 64, 128, 0}}, -1, 0, 64, 96, 32);
  REQUIRE(own.size() == 1);
  CHECK(own[0] == AttentionVisit{0, 64, 96, true});
}

TEST_CASE("specs of the block step") {
  const DeviceFacts facts = *facts_of_arch("sm_80");
  AttentionProblem problem;
  problem.forward = problem.pairs = true;
  const AttentionBlockKernels pairs = *attention_block_kernels(problem, facts);
  CHECK(!pairs.positions);
  CHECK(pairs.forward->text() ==
        "attention_block element=bf16 cu=i32 width=128 value_width=128 m=128 n=64 stages=2 "
        "packed=0 local=1 softcap=0 alibi=0 sinks=0 pack_gqa=0 listed=0 pairs=1 persistent=0 "
        "threads=256 "
        "smem=98560");
  CHECK(attention_block_workspace_bytes(*pairs.forward, 8192) == 0);
  problem.pairs = false, problem.positions = true;
  const AttentionBlockKernels positions = *attention_block_kernels(problem, facts);
  REQUIRE(positions.positions);
  CHECK(attention_positions_blocks(*positions.positions, 8192, 64) == 32);
  CHECK(attention_positions_blocks(*positions.positions, 1, 64) == 1);
  CHECK(attention_positions_blocks(*positions.positions, 0, 64) == 0);
  CHECK(attention_block_workspace_bytes(*positions.forward, 8192) == 1024);
  CHECK(attention_block_workspace_bytes(*positions.forward, 8193) == 1280);
  problem.element = Dtype::i32;
  CHECK(attention_block_kernels(problem, facts).status().code() == Code::unsupported);
}

TEST_CASE("persistent blocks are those that the device holds, less a margin") {
  DeviceFacts facts = *facts_of_arch("sm_80");
  facts.multiprocessors = 100;
  AttentionProblem problem;
  problem.forward = problem.pairs = true;
  problem.head_dim = problem.value_dim = 64;
  const KernelSpec one = *attention_block_kernels(problem, facts)->forward;
  CHECK(attention_block_grid(one, 255, facts, 7, 5000) == 5000);
  problem.persistent = true;
  const KernelSpec spec = *attention_block_kernels(problem, facts)->forward;
  REQUIRE(spec.threads == 128);
  CHECK(attention_block_grid(spec, 255, facts, 0, 5000) == 200);  // by registers
  CHECK(attention_block_grid(spec, 160, facts, 0, 5000) == 300);
  CHECK(attention_block_grid(spec, 161, facts, 0, 5000) == 300);  // 168 of them
  CHECK(attention_block_grid(spec, 40, facts, 0, 5000) == 300);   // by shared memory
  CHECK(attention_block_grid(spec, 255, facts, 7, 5000) == 186);
  CHECK(attention_block_grid(spec, 255, facts, 7, 50) == 50);
  CHECK(attention_block_grid(spec, 255, facts, 100, 5000) == 2);
  problem.head_dim = problem.value_dim = 256;
  const KernelSpec wide = *attention_block_kernels(problem, facts)->forward;
  CHECK(attention_block_grid(wide, 255, facts, 4, 5000) == 96);
}

TEST_CASE("lse_merge: as many lanes as columns, every row once, every byte once") {
  for (const int width : {8, 16, 64, 72, 128, 256}) {
    LseMergeProblem problem;
    problem.block = true;
    problem.value_dim = width;
    const KernelSpec spec = lse_merge_spec(problem);
    const int64_t lanes = spec.constant("lanes");
    CHECK(lanes * 4 >= std::min(width, 128));
    CHECK(lanes * 4 < 2 * width + 1);
    const int64_t rows = spec.threads / lanes;
    CHECK(lse_merge_blocks(spec, 0) == 0);
    CHECK(lse_merge_blocks(spec, 1) == 1);
    CHECK(lse_merge_blocks(spec, rows) == 1);
    CHECK(lse_merge_blocks(spec, rows + 1) == 2);
  }
  CHECK(lse_merge_cost({Dtype::bf16, 64, true, true}, 10, 2).minimum_bytes ==
        10 * (2 * 65 * 4 + 64 * 2 + 4) + 8);
  CHECK(lse_merge_cost({Dtype::f32, 64, false, true}, 10, 2).minimum_bytes == 10 * 2 * 65 * 4 + 8);
}
