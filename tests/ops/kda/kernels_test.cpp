// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the KDA family's specs, tiles, grids and costs.
#include "ops/kda/kernels.h"

#include <doctest/doctest.h>

#include "templates/params/kda.h"

using namespace lathe;

namespace {

KdaProblem recurrent(int key_dim = 128, int value_dim = 128) {
  KdaProblem problem;
  problem.key_dim = key_dim, problem.value_dim = value_dim;
  return problem;
}

DeviceFacts h100() { return *facts_of_arch("sm_90a"); }

}  // namespace

TEST_CASE("kda: the spec's text names what makes the code") {
  KdaProblem problem = recurrent();
  problem.states = kKdaStatesPool, problem.gate_kind = kKdaGateBounded;
  problem.index = Dtype::i64;
  problem.A_log = problem.sigmoid = true;
  const auto kernel = kda_recurrent_kernel(problem, h100());
  REQUIRE(kernel.ok());
  CHECK(kernel->text() ==
        "kda_recurrent element=bf16 g=f32 beta=bf16 cu=i32 index=i64 k=128 v=128 key_lanes=16 "
        "states=1 gate=2 A_log=1 dt_bias=0 sigmoid=1 l2norm=0 v_first=0 packed=0 threads=128 "
        "smem=13440");
  // Types of what is not there change nothing.
  problem.states = kKdaStatesPlain;
  KdaProblem other = problem;
  other.index = Dtype::i32, other.cu_seqlens = Dtype::i64;
  CHECK(kda_recurrent_kernel(problem, h100())->text() ==
        kda_recurrent_kernel(other, h100())->text());
}

TEST_CASE("kda: every width has a tile, which fits and wastes less than half of its columns") {
  for (int key_dim = 8; key_dim <= 256; key_dim += 4) {
    for (int value_dim = 8; value_dim <= 256; value_dim += 4) {
      const KdaProblem problem = recurrent(key_dim, value_dim);
      const auto tiles = kda_recurrent_candidates(problem, *facts_of_arch("sm_86"));
      REQUIRE_FALSE(tiles.empty());
      CHECK(*kda_recurrent_choose(problem, *facts_of_arch("sm_86")) == tiles.front());
      for (const KdaRecurrentTile& tile : tiles) {
        CHECK((tile.warps == 1 || tile.columns() < 2 * value_dim));
        CHECK(kda_recurrent_smem(problem, tile) <= 99 * 1024);
        // Each lane has at most 64 elements of the state.
        CHECK(key_dim * tile.columns() <= 64 * 32 * tile.warps);
      }
    }
  }
  CHECK(kda_recurrent_choose(recurrent(), h100())->columns() == 32);
}

TEST_CASE("kda: a device with too little shared memory is refused with the number") {
  DeviceFacts small = h100();
  small.shared_bytes_per_block = 1024;
  const auto found = kda_recurrent_kernel(recurrent(), small);
  REQUIRE_FALSE(found.ok());
  CHECK(found.status().code() == Code::unsupported);
  CHECK(found.status().text().find("3168 bytes of shared memory") != std::string::npos);
}

TEST_CASE("kda: a block for each tile of V, value head and sequence") {
  const KernelSpec spec = *kda_recurrent_kernel(recurrent(128, 100), h100());
  const KdaShape shape = {5, 2, 6, 40};
  CHECK(kda_recurrent_blocks(spec, shape) == 4 * 6 * 5);
}

TEST_CASE("kda: bytes and operations of a step of decoding") {
  KdaProblem problem = recurrent();
  problem.states = kKdaStatesPool;
  const KernelSpec spec = *kda_recurrent_kernel(problem, h100());
  // 256 sequences of one token, 128 heads: states in and out are 4.29 GB.
  const KdaShape shape = {256, 128, 128, 256};
  const uint64_t heads = 256 * 128, states = heads * 2 * 128 * 128 * 4;
  Cost cost = kda_recurrent_cost(problem, spec, shape, {});
  CHECK(states == 4294967296);
  CHECK(cost.minimum_bytes == states + heads * (4 * 128 * 2 + 128 * 4 + 2));
  // q, k, g and beta again for each of the four tiles of V.
  CHECK(cost.bytes == cost.minimum_bytes + 3 * heads * (2 * 128 * 2 + 128 * 4 + 2));
  CHECK(cost.flops == 7 * heads * 128 * 128);
  problem.states = kKdaStatesPlain;
  cost = kda_recurrent_cost(problem, spec, shape, {false, true});
  CHECK(cost.minimum_bytes == states / 2 + heads * (4 * 128 * 2 + 128 * 4 + 2));
  problem.states = kKdaStatesColumns;
  const KdaShape verify = {2, 1, 2, 8};  // two sequences of four tokens, written after each
  cost = kda_recurrent_cost(problem, spec, verify, {});
  CHECK(cost.minimum_bytes ==
        (2 + 8) * 2 * 128 * 128 * 4 + 8 * (2 * 128 * 2 + 2 * (2 * 128 * 2 + 128 * 4 + 2)));
}
