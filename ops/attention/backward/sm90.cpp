// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the backward by warpgroups with roles (sm_90a), with the same results as the portable
// kernels within tolerance. There is one accumulator of dq, in tiles, and blocks of a deterministic
// backward take turns at it.
#include "ops/attention/backward/sm90.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "codegen/base/integers.h"
#include "ops/attention/backward/portable.h"
#include "ops/attention/maps.h"
#include "templates/params/tensor_map.h"
// It uses the one above.
#include "templates/params/attention_backward_warpgroups.h"

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

// With an order of dq no bit depends on the device, so what decides about sums is that of an H100.
constexpr int64_t kOrderedMultiprocessors = 132;

KernelSpec finish_spec(const KernelSpec& main) {
  KernelSpec spec =
      KernelSpec::of(LATHE_TEMPLATE("attention/sm90", "attention_backward_warpgroups_finish",
                                    AttentionBackwardWarpgroupsFinishParams, dq_tiles),
                     kFinishThreads);
  for (const Constant& constant : main.constants) {
    for (const char* name : {"element", "cu", "width", "m", "packed"}) {
      if (constant.name == name) spec.constants.push_back(constant);
    }
  }
  spec.family = main.family, spec.may_be_rejected = main.may_be_rejected;
  return spec;
}

class Warpgroups final : public AttentionBackward {
 public:
  Warpgroups(KernelSpec main, const AttentionBackwardProblem& problem, const DeviceFacts& facts)
      : AttentionBackward(main, problem, facts) {
    finish = finish_spec(main);
  }

 protected:
  int64_t multiprocessors_to_fill() const override {
    return problem_.deterministic ? kOrderedMultiprocessors : facts_.multiprocessors;
  }

  AttentionSums sums_of_dq(const AttentionShape& shape, const AttentionGradients& wanted,
                           const AttentionBackwardLaunch&) const override {
    const AttentionTiling& tile = tiling();
    const int64_t parts = problem_.packed ? 1 : shape.sequences;
    AttentionSums out;
    out.tiles = tiles_of_dq(shape);
    out.rows = bounded_product({parts, out.tiles, tile.m}), out.width = tile.width;
    out.multiplied_width = round_up(static_cast<int>(tile.width), kPanel);
    out.section = section_of(shape);
    if (!wanted.dq) return out;
    out.accumulators = 1;
    out.finish_blocks = bounded_product({parts, out.tiles, shape.heads});
    // A word of each tile and a ticket, in chunks of 16 bytes.
    if (problem_.deterministic && out.finish_blocks > 0) {
      out.turns = (out.finish_blocks / 2 + 1) * 2;
    }
    return out;
  }

  Status launch_main(const AttentionBackwardCall& of, const AttentionSlot& kernel) const override {
    AttentionBackwardWarpgroupsParams p = {};
    fill_main(of, &p.backward);
    if (mask_queries) LATHE_TRY(mask_queries.launch(of.lists.blocks, &p.backward, of.call.stream));
    p.dq_order = order_of(of);
    p.section = static_cast<int>(of.launch.dq.section);
    p.dq_tiles = static_cast<int>(of.launch.dq.tiles);
    // Without a query nobody reads anything.
    if (of.shape.seq_q > 0) LATHE_TRY(encode(of, kernel, &p));
    return kernel.launch(of.launch.main_blocks, &p, of.call.stream);
  }

  Status launch_finish(const AttentionBackwardCall& of) const override {
    AttentionBackwardWarpgroupsFinishParams p = {};
    fill_finish(of, &p.finish);
    p.cu_seqlens_q = of.call.tensors[attention::cu_seqlens_q].data;
    p.sequences = static_cast<int>(of.shape.sequences);
    p.dq_tiles = static_cast<int>(of.launch.dq.tiles);
    p.dq_order = order_of(of);
    return finish.launch(of.launch.finish_blocks(), &p, of.call.stream);
  }

 private:
  // Returns the tiles of one head of a sequence, or of all packed sequences.
  int64_t tiles_of_dq(const AttentionShape& shape) const {
    if (shape.seq_q == 0) return 0;
    const int64_t rows = tiling().m;
    return problem_.packed ? shape.seq_q / rows + shape.sequences : ceil_div(shape.seq_q, rows);
  }

  // Returns how many heads take tickets in turns in a deterministic backward. It changes how long
  // blocks wait for each other, and no result.
  int64_t section_of(const AttentionShape& shape) const {
    const int64_t keys = problem_.packed
                             ? ceil_div(shape.seq_k, std::max<int64_t>(shape.sequences, 1))
                             : shape.seq_k;
    const int64_t tiles = std::max<int64_t>(ceil_div(keys, tiling().n), 1);
    // Twice the heads that are at work: a block finds the one in front of it further ahead.
    return std::max<int64_t>(2 * facts_.multiprocessors / tiles, 1);
  }

  static void* order_of(const AttentionBackwardCall& of) {
    return of.launch.dq.turns > 0 ? of.call.workspace + of.workspace.dq_order : nullptr;
  }

  Status encode(const AttentionBackwardCall& of, const AttentionSlot& kernel,
                AttentionBackwardWarpgroupsParams* p) const {
    const auto& [sequences, heads, kv_heads, seq_q, seq_k] = of.shape;
    const int64_t head_dim = problem_.head_dim, value_dim = problem_.value_dim;
    const auto map = [&](size_t index, int tensor, int64_t columns, int64_t tokens,
                         int64_t its_heads, TensorMap* out) {
      const bool packed = problem_.packed;
      const MappedRows rows =
          rows_of(of.call.tensors[tensor], packed, columns, tokens, its_heads, sequences);
      return kernel.encode(index, token_map(packed, rows), out);
    };
    LATHE_TRY(map(0, attention::q, head_dim, seq_q, heads, &p->q));
    LATHE_TRY(map(1, attention::k, head_dim, seq_k, kv_heads, &p->k));
    LATHE_TRY(map(2, attention::v, value_dim, seq_k, kv_heads, &p->v));
    return map(3, attention::dout, value_dim, seq_q, heads, &p->dout);
  }
};

std::string refusal(const AttentionBackwardProblem& problem, const DeviceFacts& facts) {
  return attention_backward_warpgroups_refusal(problem, facts);
}

// Returns the forms that were not rejected yet.
std::vector<KernelSpec> candidates(const AttentionBackwardProblem& problem,
                                   const DeviceFacts& facts) {
  std::vector<KernelSpec> specs;
  for (int form = facts.form(kKernel); form < forms_of(problem); ++form) {
    specs.push_back(attention_backward_warpgroups_spec(problem, problem.main_apart(), form));
  }
  return specs;
}

std::unique_ptr<AttentionBackward> make(KernelSpec spec, const AttentionBackwardProblem& problem,
                                        const DeviceFacts& facts) {
  return std::make_unique<Warpgroups>(std::move(spec), problem, facts);
}

}  // namespace

std::string attention_backward_warpgroups_refusal(const AttentionProblem& problem,
                                                  const DeviceFacts& facts) {
  if (std::string refusal = tensor_map_refusal(problem, facts); !refusal.empty()) return refusal;
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

const AttentionBackwardStep kAttentionBackwardSm90 = {
    "sm90", refusal, candidates, {"m", "n", "stages", "width_warps", "queries"}, make};

}  // namespace lathe
