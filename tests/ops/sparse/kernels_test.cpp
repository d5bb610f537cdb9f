// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the sparse attention family's specs, tiles, grids, splits and costs.
#include <doctest/doctest.h>

#include "ops/sparse/run.h"

using namespace lathe;

namespace {

SparseProblem latent(int group, bool values_in_keys = true) {
  SparseProblem problem;
  problem.group = group, problem.values_in_keys = values_in_keys, problem.forward = true;
  return problem;
}

SparseTile tile_of(const SparseProblem& problem, const char* arch) {
  const auto made = make_step(sparse_forwards(), problem, *facts_of_arch(arch));
  REQUIRE_MESSAGE(made.ok(), made.status().text());
  const KernelSpec& spec = *(*made)->kernel;
  const auto constant = [&](const char* name) { return static_cast<int>(spec.constant(name)); };
  return {constant("m"), constant("n"), constant("groups"), constant("stages")};
}

SparseShape rows(int64_t count, int64_t heads, int64_t topk) {
  return {1, heads, 1, count, 4096, topk, 1};
}

}  // namespace

TEST_CASE("sparse: the spec's text names what makes the code") {
  SparseProblem problem = latent(64);
  problem.packed = problem.sinks = true, problem.cu_seqlens = Dtype::i64;
  const auto kernels = sparse_kernels(problem, *facts_of_arch("sm_80"));
  REQUIRE(kernels.ok());
  CHECK(kernels->forward->kernel->text() ==
        "sparse_forward element=bf16 cu=i64 out=bf16 width=576 value_width=512 m=64 n=32 groups=2 "
        "stages=2 packed=1 sinks=1 values_in_keys=1 threads=256 smem=164480");
  CHECK(kernels->combine->text() == "sparse_combine out=bf16 sinks=1 threads=128 smem=0");
  // The type of offsets that are not there changes nothing.
  problem.packed = false;
  SparseProblem other = problem;
  other.cu_seqlens = Dtype::i32;
  CHECK(sparse_kernels(problem, *facts_of_arch("sm_80"))->forward->kernel->text() ==
        sparse_kernels(other, *facts_of_arch("sm_80"))->forward->kernel->text());
  problem.split = false;
  CHECK_FALSE(sparse_kernels(problem, *facts_of_arch("sm_80"))->combine.has_value());
  problem.forward = false;
  CHECK_FALSE(sparse_kernels(problem, *facts_of_arch("sm_80"))->forward);
}

TEST_CASE("sparse: heads of a group are cut into few tiles of one size") {
  CHECK(sparse_head_rows(0, 64) == 64);
  CHECK(sparse_head_rows(1, 64) == 16);
  CHECK(sparse_head_rows(16, 64) == 16);
  CHECK(sparse_head_rows(40, 64) == 48);
  CHECK(sparse_head_rows(64, 64) == 64);
  CHECK(sparse_head_rows(65, 64) == 48);
  CHECK(sparse_head_rows(80, 64) == 48);
  CHECK(sparse_head_rows(128, 64) == 64);
  CHECK(sparse_head_rows(128, 32) == 32);
}

TEST_CASE("sparse: 64 heads of the latent form in a block, as long as its memory allows") {
  CHECK(tile_of(latent(64), "sm_80") == SparseTile{64, 32, 2});
  CHECK(tile_of(latent(128), "sm_90a") == SparseTile{64, 32, 2, 3});
  CHECK(tile_of(latent(64), "sm_86") == SparseTile{32, 16, 2});
  CHECK(tile_of(latent(16), "sm_90a").heads == 16);
  CHECK(tile_of(latent(64, false), "sm_80") == SparseTile{64, 16, 2});
  CHECK(tile_of(latent(0), "sm_90a").heads == 64);
}

TEST_CASE("sparse: every width has a tile on every device, which fits") {
  for (const char* arch : {"sm_80", "sm_86", "sm_90a", "sm_120"}) {
    const DeviceFacts facts = *facts_of_arch(arch);
    for (int width = 8; width <= 576; width += 56) {
      for (int values = 8; values <= 512; values += 56) {
        for (const int group : {0, 1, 8, 24, 40, 64, 65, 128}) {
          for (const bool inside : {false, true}) {
            SparseProblem problem = latent(group, inside && values <= width);
            problem.head_dim = width, problem.rope_dim = 0, problem.value_dim = values;
            const auto tiles = sparse_candidates(problem, facts);
            REQUIRE_FALSE(tiles.empty());
            CHECK(tile_of(problem, arch) == tiles.front());
            for (const SparseTile& tile : tiles) {
              CHECK(sparse_forward_smem(problem, tile) <= facts.shared_bytes_per_block);
              CHECK(tile.warps() <= 8);
              // A warp has at most 256 columns of v, in turns of 32.
              const int columns = sparse_padded_width(values) / tile.groups;
              CHECK((columns <= 256 && columns % 32 == 0));
              CHECK(sparse_padded_width(width) % (16 * tile.groups) == 0);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("sparse: a device with too little shared memory is refused") {
  DeviceFacts tiny = *facts_of_arch("sm_86");
  tiny.shared_bytes_per_block = 40'000;
  const auto none = make_step(sparse_forwards(), latent(64), tiny);
  REQUIRE_FALSE(none.ok());
  CHECK(none.status().text().find("needs at least") != std::string::npos);
}

TEST_CASE("sparse: lists are cut where rows leave multiprocessors idle, and not into crumbs") {
  const SparseProblem problem = latent(128);
  const KernelSpec spec = sparse_forward_spec(problem, tile_of(problem, "sm_90a"));
  const auto splits = [&](int64_t count, int64_t topk, int64_t wanted = 0) {
    return sparse_splits(problem, spec, rows(count, 128, topk), 132, wanted);
  };
  CHECK(splits(4096, 2048) == 1);
  CHECK(splits(67, 2048) == 1);  // two tiles of heads each: the device is full
  CHECK(splits(1, 2048) == 16);  // four steps a part
  CHECK(splits(8, 2048) == 8);   // 16 blocks, 128 of them
  CHECK(splits(1, 128) == 1);    // one part of four steps
  CHECK(splits(1, 256) == 2);
  CHECK(splits(4096, 2048, 3) == 3);
  CHECK(splits(1, 40, 9) == 2);  // never an empty part by design
  CHECK(splits(1, 1 << 20, 1000) == kMostSparseSplits);
  CHECK(splits(0, 2048) == 1);
  SparseProblem whole = problem;
  whole.split = false;
  CHECK(sparse_splits(whole, spec, rows(1, 128, 2048), 132, 5) == 1);

  const SparsePartials none = sparse_partials(problem, rows(3, 128, 64), 1);
  CHECK(none.total == 0);
  const SparsePartials some = sparse_partials(problem, rows(3, 128, 64), 2);
  CHECK(some.maxima == 2 * 3 * 128 * 512 * 4);
  CHECK(some.sums - some.maxima == 2 * 3 * 128 * 4);
  CHECK(some.total - some.sums == 2 * 3 * 128 * 4);
}

TEST_CASE("sparse: grids and costs of the latent form") {
  const SparseProblem problem = latent(128);
  const KernelSpec spec = sparse_forward_spec(problem, tile_of(problem, "sm_90a"));
  const SparseShape shape = rows(70'000, 128, 2048);
  CHECK(sparse_head_tiles(spec, shape) == 2);
  CHECK(sparse_forward_blocks(spec, shape, 1) == 140'000);
  CHECK(sparse_forward_blocks(spec, shape, 3) == 420'000);
  CHECK(sparse_combine_blocks(sparse_combine_spec(problem), rows(3, 128, 64)) == 96);
  const Cost cost = sparse_forward_cost(problem, spec, shape, 1);
  CHECK(cost.flops == 2ull * 70'000 * 128 * 2048 * (576 + 512));
  CHECK(cost.tensor_ops == cost.flops);
  // Each list is gathered once for every tile of heads.
  const uint64_t gathered = 2ull * 70'000 * 2048 * 576 * 2;
  CHECK(cost.bytes > gathered);
  CHECK(cost.bytes < gathered + 70'000ull * (128 * (576 + 512) * 2 + 128 * 12 + 2048 * 4) + 1);
  CHECK(cost.minimum_bytes < cost.bytes);
  // 4096 keys of 1152 bytes stay in a cache that has room for them.
  CHECK(sparse_cached_bytes(*facts_of_arch("sm_90a")) == 32 << 20);
  CHECK(sparse_forward_cost(problem, spec, shape, 1, 4096 * 1152).bytes == cost.minimum_bytes);
  CHECK(sparse_forward_cost(problem, spec, shape, 1, 4096 * 1152 - 1).bytes == cost.bytes);
}
