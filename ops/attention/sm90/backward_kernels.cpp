// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/sm90/backward_kernels.h"

#include <algorithm>
#include <utility>

#include "codegen/base/integers.h"

namespace lathe {
namespace {

constexpr int kPanel = 64, kPlaceBytes = 128, kFinishThreads = 256;
constexpr int kVisitBytes = 16;  // of a stage, with a mask_mod
constexpr const char* kKernel = "attention_backward_warpgroups";

// By padded widths of keys and of values. A thread that multiplies has 240 registers. dk and dv
// take half of each width of them; the scores and their gradients half of the rows each, until p is
// a quarter; then ds is a quarter, and a part of dq 32. Of dq each of the two warpgroups has a part
// of 64 rows and 64 columns, which decides the rows of a step; of the third panel of 192 columns it
// has half. A block has 227 KiB of shared memory: keys, values, the stages of q and dout, and two
// of ds. With 64 keys the warpgroups share out columns (gradients_by_columns.cuh): dk, dv and dq
// take a quarter of the width each, and shared memory has two stages of p.
struct Tile {
  int width, value_width;
  int rows, keys, stages;
};
constexpr Tile kTiles[] = {
    {64, 64, 128, 128, 2},   // 224 registers, 162 KiB
    {96, 96, 64, 128, 2},    // 176 registers, 161 KiB: a tile is whole panels of 64 columns
    {128, 128, 64, 128, 2},  // 208 registers, 161 KiB
    {192, 128, 64, 128, 2},  // 208 registers, 193 KiB
    {192, 192, 64, 64, 3},   // 176 registers, 226 KiB
    {256, 256, 64, 64, 2},   // 192 registers, 225 KiB
};
constexpr int kThreads = 384;

// Null if the kernel has no tile for these widths.
const Tile* tile_of(const AttentionProblem& problem) {
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  for (const Tile& own : kTiles) {
    if (own.width == width && own.value_width == value_width) return &own;
  }
  return nullptr;
}

// With mods, whose registers nobody knows, the queries whose scores a warpgroup has at a time in
// the forms of the kernel, one of which is tried after the other. Without mods, and with 192 keys
// and more a step, there is one form, which has no number.
constexpr int kModQueries[] = {64, 32};
int forms_of(const AttentionProblem& problem) {
  const Tile& tile = *tile_of(problem);
  const bool one = problem.mods.empty() || tile.width + tile.value_width > 256;
  return one ? 1 : static_cast<int>(std::size(kModQueries));
}

int smem_bytes(const AttentionProblem& problem, const Tile& tile) {
  const int widths = round_up(tile.width, kPanel) + round_up(tile.value_width, kPanel);
  const int scores = (tile.keys == kPanel ? 4 : 2) * tile.rows * tile.keys;
  const int elements = (tile.keys + tile.stages * tile.rows) * widths + scores;
  const int barriers = problem.deterministic ? 8 : 4;
  const int visit = problem.mod("mask_mod") != nullptr ? kVisitBytes : 0;
  return 2 * elements + tile.stages * (2 * 4 * tile.rows + 8 * barriers + visit) + kPlaceBytes;
}

}  // namespace

const char* attention_backward_warpgroups_refusal(const AttentionProblem& problem,
                                                  const DeviceFacts& facts) {
  if (const char* refusal = facts.family_refusal()) return refusal;
  if (facts.arch != "sm_90a") return "the architecture is not sm_90a";
  if (const char* refusal = map_alignment_refusal(problem)) return refusal;
  if (!problem.backward) return "there is no backward";
  if (problem.element == Dtype::f32) return "the elements are float32";
  if (tile_of(problem) == nullptr) return "there is no tile for the head widths";
  if (problem.deterministic && tile_of(problem)->keys == kPanel) {
    return "at these head widths blocks add to dq in no order";
  }
  return facts.rejection(kKernel, forms_of(problem));
}

KernelSpec attention_backward_warpgroups_spec(const AttentionProblem& problem, bool apart,
                                              int form) {
  const Tile& tile = *tile_of(problem);
  KernelSpec spec = shared_spec(
      LATHE_TEMPLATE("attention/sm90", kKernel, AttentionBackwardWarpgroupsParams, dq_tiles),
      "AttentionBackwardWarpgroupsSmem", smem_bytes(problem, tile), kThreads);
  // The constants and mods are those of the portable kernel, whose geometry serves both.
  KernelSpec portable = attention_backward_spec(
      problem, {tile.rows, tile.keys, tile.stages, kThreads / 32, 1}, apart);
  spec.constants = std::move(portable.constants);
  spec.mods = std::move(portable.mods);
  if (forms_of(problem) > 1) {
    spec.constants.push_back(Constant::integer("queries", "kQueries", kModQueries[form]));
  }
  const auto map = [&](const char* field, int rows) {
    spec.tensor_maps.push_back({field, problem.element, {kPanel, rows, 1, 1}, 128});
  };
  map("q", tile.rows);
  map("k", tile.keys);
  map("v", tile.keys);
  map("dout", tile.rows);
  return spec;
}

CandidateGroup attention_backward_warpgroups_group(const AttentionProblem& problem,
                                                   const DeviceFacts& facts, bool apart) {
  const int forms = forms_of(problem);
  CandidateGroup group = {{}, {"m", "n", "stages", "width_warps"}};
  if (forms > 1) group.tile.push_back("queries");
  for (int form = facts.form(kKernel); form < forms; ++form) {
    group.specs.push_back(attention_backward_warpgroups_spec(problem, apart, form));
  }
  return group;
}

KernelSpec attention_backward_warpgroups_finish_spec(const KernelSpec& main) {
  KernelSpec spec =
      KernelSpec::of(LATHE_TEMPLATE("attention/sm90", "attention_backward_warpgroups_finish",
                                    AttentionBackwardWarpgroupsFinishParams, dq_tiles),
                     kFinishThreads);
  for (const Constant& constant : main.constants) {
    for (const char* name : {"element", "cu", "width", "m", "packed"}) {
      if (constant.name == name) spec.constants.push_back(constant);
    }
  }
  return spec;
}

int64_t attention_dq_section(const KernelNumbers& main, const DeviceFacts& facts,
                             const AttentionShape& shape) {
  const int64_t keys =
      main.packed != 0 ? ceil_div(shape.seq_k, std::max<int64_t>(shape.sequences, 1)) : shape.seq_k;
  const int64_t tiles = std::max<int64_t>(ceil_div(keys, main.n), 1);
  // Twice the heads that are at work: a block finds the one in front of it further ahead.
  return std::max<int64_t>(2 * facts.multiprocessors / tiles, 1);
}

bool is_attention_backward_warpgroups(const KernelSpec& spec) { return !spec.tensor_maps.empty(); }

int64_t attention_dq_tiles(const KernelNumbers& main, bool packed, const AttentionShape& shape) {
  if (shape.seq_q == 0) return 0;
  return packed ? shape.seq_q / main.m + shape.sequences : ceil_div(shape.seq_q, main.m);
}

}  // namespace lathe
