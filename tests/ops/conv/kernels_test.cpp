// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the causal_conv1d family on the host: which kernels, which constants, which
// grids, what cost.
#include <doctest/doctest.h>

#include "ops/conv/update/step.h"

using namespace lathe;

namespace {

DeviceFacts hopper() { return *facts_of_arch("sm_90a"); }

ConvProblem training() {
  ConvProblem problem;
  problem.silu = problem.forward = problem.backward = problem.weight_grad = true;
  return problem;
}

}  // namespace

TEST_CASE("only the kernels that a problem asks for") {
  ConvProblem problem;
  problem.forward = true;
  ConvKernels kernels = *conv_kernels(problem, hopper(), false);
  CHECK(kernels.forward);
  CHECK_FALSE((kernels.backward || kernels.weight_grad || kernels.weight_grad_cast ||
               kernels.halo_pack || kernels.halo_join || kernels.halo_add));
  problem.halo = true;
  kernels = *conv_kernels(problem, hopper(), false);
  CHECK((kernels.halo_pack && kernels.halo_join && !kernels.halo_add));
  problem.backward = problem.weight_grad = true;
  kernels = *conv_kernels(problem, hopper(), false);
  CHECK((kernels.backward && kernels.halo_add && kernels.weight_grad));
  CHECK_FALSE(kernels.weight_grad_cast);
  kernels = *conv_kernels(problem, hopper(), true);
  CHECK(kernels.weight_grad_cast);
}

TEST_CASE("a device with too little shared memory is refused with the numbers") {
  DeviceFacts facts = hopper();
  const auto refused = [&](const ConvProblem& problem, int bytes, const std::string& kernel) {
    facts.shared_bytes_per_block = bytes;
    const Status status = problem.update ? make_step(conv_updates(), problem, facts).status()
                                         : conv_kernels(problem, facts, false).status();
    CHECK(status.code() == Code::unsupported);
    const std::string text = status.text();
    CHECK_MESSAGE(text.find(kernel + ": a block needs at least ") != std::string::npos, text);
    CHECK_MESSAGE(text.find("allows " + std::to_string(bytes)) != std::string::npos, text);
  };
  refused(training(), 0, "causal_conv1d");
  CHECK(conv_candidates(training(), facts).empty());
  // Enough for a tile of two warps, not for the second pass of the weight gradient.
  ConvProblem narrow = training();
  narrow.x = Dtype::bf16;
  narrow.vector_bytes = 2;
  narrow.width = 8;
  refused(narrow, 8192, "causal_conv1d_weight_grad");
  ConvProblem update;
  update.update = true;
  update.width = 8;
  refused(update, 2048, "causal_conv1d_update");
  // Where a block of eight warps does not fit, warps that share nothing may.
  DeviceFacts small = hopper();
  small.shared_bytes_per_block = 8 * 1024;
  CHECK((*make_step(conv_updates(), update, small))->kernel->kernel == "causal_conv1d_update_row");
}

TEST_CASE("every candidate fits into 80 KiB of shared memory and covers a halo") {
  for (int width = 2; width <= 8; ++width) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      ConvProblem problem = training();
      problem.x = dtype;
      problem.width = width;
      problem.bias = problem.initial_state = problem.final_state = true;
      problem.dfinal_state = problem.dinitial_state = true;
      const std::vector<ConvTile> candidates = conv_candidates(problem, hopper());
      REQUIRE(candidates.size() >= 2);
      const ConvTile chosen = *conv_choose(problem, hopper());
      CHECK(chosen.tokens == candidates[0].tokens);
      CHECK(chosen.warps == candidates[0].warps);
      for (const ConvTile& tile : candidates) CHECK(tile.tokens >= width - 1);
      const ConvKernels kernels = *conv_kernels(problem, hopper(), false);
      CHECK(kernels.forward->smem_bytes <= 80 * 1024);
      CHECK(kernels.backward->smem_bytes <= 80 * 1024);
      CHECK(kernels.forward->constant("vector") <= problem.vector_bytes);
    }
  }
}

TEST_CASE("grids cover every token, channel, row and state") {
  ConvProblem problem = training();
  problem.final_state = problem.dinitial_state = problem.halo = true;
  const ConvKernels kernels = *conv_kernels(problem, hopper(), false);
  // At most 256 tokens of 128 channels a block.
  ConvShape shape;
  shape.batch = 3, shape.tokens = 257, shape.channels = 264, shape.sequences = 3;
  const auto tiles = [&](int64_t tokens, int64_t multiprocessors = 1) {
    ConvShape other = shape;
    other.tokens = tokens, other.multiprocessors = multiprocessors;
    const ConvTiling tiling = conv_tiling(*kernels.forward, other);
    return std::pair(tiling.run, tiling.tiles);
  };
  // Three tiles of channels and three rows: nine columns of tokens for fourteen blocks.
  CHECK(tiles(0) == std::pair(16, 0));
  CHECK(tiles(398) == std::pair(32, 4));
  CHECK(tiles(399) == std::pair(64, 2));
  // Short runs give more multiprocessors work, down to 16 tokens.
  CHECK(tiles(399, 2) == std::pair(32, 4));
  CHECK(tiles(399, 132) == std::pair(16, 7));
  // Two rounds whose second would be nearly empty become one of longer runs; about one round of the
  // backward becomes one and a half of shorter ones.
  CHECK(tiles(257, 4) == std::pair(32, 3));
  ConvShape round = shape;
  round.tokens = 1024, round.multiprocessors = 9;
  CHECK(conv_tiling(*kernels.backward, round).run == 40);
  round.multiprocessors = 18;
  CHECK(conv_tiling(*kernels.backward, round).run == 64);
  const ConvTiling tiled = conv_tiling(*kernels.forward, shape);
  CHECK(tiled.state_tiles == 1);
  CHECK(conv_grid(tiled, 3, 2, 1).x == 3 * (3 * 2 + 1));
  CHECK(conv_grid(tiled, 3, 0, 1).x == 3);
  const ConvTiling back = conv_tiling(*kernels.backward, shape);
  CHECK(back.state_tiles == 2);  // 3 sequences and 3 rows, 4 warps
  CHECK(conv_grid(back, 3, 2, 2).x == 3 * (3 * 2 + 2));
  CHECK(conv_weight_grad_grid(shape).x == 9);
  CHECK(conv_halo_grid(*kernels.halo_pack, shape).x == 3);
  shape.batch = 9;
  problem.update = true;
  const auto blocks = [&](const ConvUpdateStep& how) {
    const KernelSpec spec = how.candidates(problem, hopper()).front();
    return how.make(spec, problem, hopper())->blocks(shape);
  };
  CHECK(blocks(kConvUpdateSequences) == 5);  // 32 rows, 64 channels a block
  CHECK(blocks(kConvUpdateRow) == 9 * 2);    // a row, 256 channels a block
  shape.channels = 0;
  CHECK(conv_grid(conv_tiling(*kernels.forward, shape), 9, 2, 0).x == 0);
  CHECK(conv_tiling(*kernels.forward, shape).state_tiles == 0);
  shape.channels = 1, shape.batch = 1, shape.tokens = 0x7fffffff;
  const ConvTiling longest = conv_tiling(*kernels.forward, shape);
  CHECK(conv_grid(longest, 1, longest.tiles, 0).x == 8388608);
}

TEST_CASE("bytes moved stay close to the minimum where it matters") {
  ConvShape shape;
  shape.batch = 1, shape.tokens = 8192, shape.channels = 4096, shape.sequences = 1;
  const uint64_t tensor = 8192ull * 4096 * 2;
  for (const bool bias : {false, true}) {
    ConvProblem problem;
    problem.silu = problem.forward = true;
    problem.bias = bias;
    Cost cost = conv_cost(problem, *conv_kernels(problem, hopper(), false), shape);
    CHECK(cost.minimum_bytes == 2 * tensor + 4096 * (bias ? 10 : 8));
    CHECK(cost.bytes <= 1.1 * cost.minimum_bytes);
    problem.forward = false;
    problem.backward = problem.weight_grad = true;
    cost = conv_cost(problem, *conv_kernels(problem, hopper(), false), shape);
    CHECK(cost.minimum_bytes == 3 * tensor + 2 * 4096 * (bias ? 10 : 8));
    CHECK(cost.bytes <= 1.15 * cost.minimum_bytes);
    CHECK(cost.bytes > cost.minimum_bytes);
  }
}

TEST_CASE("constants depend on what changes the code, and sizes do not reach the spec") {
  const auto vector_of = [](Dtype x, int width, int bytes, bool backward) {
    ConvProblem problem = training();
    problem.x = x;
    problem.width = width;
    problem.vector_bytes = bytes;
    const ConvKernels kernels = *conv_kernels(problem, hopper(), false);
    return (backward ? kernels.backward : kernels.forward)->constant("vector");
  };
  CHECK(vector_of(Dtype::bf16, 4, 16, false) == 8);
  CHECK(vector_of(Dtype::bf16, 5, 16, false) == 8);
  CHECK(vector_of(Dtype::f32, 8, 16, false) == 16);
  CHECK(vector_of(Dtype::bf16, 4, 2, false) == 2);
  CHECK(vector_of(Dtype::bf16, 4, 16, true) == 8);
  CHECK(vector_of(Dtype::bf16, 4, 4, true) == 4);
  CHECK(vector_of(Dtype::f32, 4, 16, true) == 16);
}
