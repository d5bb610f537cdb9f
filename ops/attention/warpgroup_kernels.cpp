// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/warpgroup_kernels.h"

#include "codegen/base/integers.h"

namespace lathe {
namespace {

constexpr int kPanel = 64;

// By padded widths of keys and of values: the rows of a block, 64 for each warpgroup that
// multiplies, the keys of a step, and the stages of their ring. A thread that multiplies has 240
// registers, or 160 where there are three warpgroups. Sums take half the value width of them,
// scores half the keys and weights a quarter; what is left must hold addresses and every option. A
// block has 227 KiB of shared memory: q, and in each stage keys and values. Times of several tiles
// on an H200: bench/results/attn-sm90-tiles-h200-2026-11-26.csv.
struct Tile {
  int width, value_width;
  int rows, keys, stages;
  int local_keys;  // where blocks at the edge of a mask are multiplied in part for nothing

  int threads() const { return 2 * rows + 128; }
};
constexpr Tile kTiles[] = {
    {64, 64, 192, 128, 2, 128},    // 128 registers, 88 KiB
    {96, 96, 128, 128, 2, 128},    // 144 registers, 160 KiB: a panel is half zeros
    {128, 128, 128, 176, 2, 128},  // 196 registers, 208 KiB
    {192, 128, 128, 128, 2, 128},  // 160 registers, 208 KiB
    {192, 192, 128, 112, 2, 112},  // 180 registers, 216 KiB
    {256, 256, 128, 80, 2, 80},    // 188 registers, 224 KiB
    {64, 256, 128, 96, 2, 96},     // 200 registers, 136 KiB
    {128, 64, 128, 128, 2, 128},   // 128 registers, 128 KiB
    {64, 128, 128, 128, 2, 128},   // 160 registers, 112 KiB
};

// With softcap, whose scores take more registers than three warpgroups have.
constexpr Tile kNarrowCapped = {64, 64, 128, 128, 2, 128};

// Null if the kernel has no tile for these widths.
const Tile* tile_of(const AttentionProblem& problem) {
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  for (const Tile& own : kTiles) {
    if (own.width != width || own.value_width != value_width) continue;
    return problem.softcap && own.rows > 128 ? &kNarrowCapped : &own;
  }
  return nullptr;
}

int smem_bytes(const Tile& tile, int keys) {
  const int width = round_up(tile.width, kPanel);
  const int value_width = round_up(tile.value_width, kPanel);
  const int barriers = 8 * (2 + 4 * tile.stages), kept = tile.threads() - 128;
  return 2 * (tile.rows * width + tile.stages * keys * (width + value_width)) + barriers + kept;
}

}  // namespace

const char* attention_warpgroups_refusal(const AttentionProblem& problem,
                                         const DeviceFacts& facts) {
  if (!facts.sm90_kernels) return "LATHE_FAMILY is portable";
  if (facts.arch != "sm_90a") return "the architecture is not sm_90a";
  if (!problem.forward) return "there is no forward";
  if (problem.element == Dtype::f32) return "the elements are float32";
  if (tile_of(problem) == nullptr) return "there is no tile for the head widths";
  if (problem.pack_gqa) return "the heads of a group share tiles";
  if (!problem.mods.empty()) return "there are mods";
  return nullptr;
}

KernelSpec attention_warpgroups_spec(const AttentionProblem& problem) {
  const Tile& tile = *tile_of(problem);
  const int keys = problem.local ? tile.local_keys : tile.keys;
  KernelSpec spec = shared_spec(LATHE_TEMPLATE("attention/sm90", "attention_forward_warpgroups",
                                               AttentionWarpgroupsParams, section),
                                "AttentionWarpgroupsSmem", smem_bytes(tile, keys), tile.threads());
  // The constants are those of the portable kernel, whose geometry serves both.
  spec.constants =
      attention_forward_spec(problem, {tile.rows, keys, tile.stages, tile.threads() / 32})
          .constants;
  const auto map = [&](const char* field, int rows) {
    spec.tensor_maps.push_back({field, problem.element, {kPanel, rows, 1, 1}, 128});
  };
  map("q", tile.rows);
  map("k", keys);
  map("v", keys);
  return spec;
}

bool is_attention_warpgroups(const KernelSpec& spec) { return !spec.tensor_maps.empty(); }

}  // namespace lathe
