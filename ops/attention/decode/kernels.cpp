// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes specs, splits and geometry that the kernels of flash_attention_decode share.
#include "ops/attention/decode/kernels.h"

#include <algorithm>

#include "codegen/base/integers.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

constexpr int kElementBytes = 2;
constexpr int64_t kFloatBytes = 4;
constexpr int64_t kLeastPart = 2;  // as templates/attention/decode/ragged.cuh has it
// The table of splits has this many tiles: more than any device runs side by side.
constexpr int64_t kMostTableRows = 1024;
constexpr int kAppendThreads = 128, kCombineThreads = 128;
constexpr int64_t kCombineBlocks = 16;  // of a multiprocessor

}  // namespace

void add_ragged(const AttentionProblem& problem, KernelSpec* spec) {
  if (!problem.ragged) return;
  spec->add({Constant::type("cu", "CuSeqlens", problem.cu_seqlens),
             Constant::flag("ragged", "kRagged", true)});
}

void add_decode_calls(const AttentionProblem& problem, KernelSpec* spec) {
  add_ragged(problem, spec);
  if (problem.narrow != kWideRows) {
    spec->add({Constant::integer("narrow", "kNarrow", problem.narrow)});
  }
  add_rotary(problem, spec);
}

void add_rotary(const AttentionProblem& problem, KernelSpec* spec) {
  if (!problem.rotary) return;
  spec->add({Constant::type("angle", "Angle", problem.angle),
             Constant::flag("rotary", "kRotary", true),
             Constant::flag("interleaved", "kInterleaved", problem.interleaved)});
}

int64_t attention_cached_bytes(const AttentionProblem& problem) {
  if (problem.narrow == kByteRows) return kByteRow;
  return attention_key_width(problem) * (problem.narrow != kWideRows ? 1 : kElementBytes);
}

KernelSpec attention_append_spec(const AttentionProblem& problem) {
  KernelSpec spec = KernelSpec::of(
      problem.narrow != kWideRows
          ? LATHE_TEMPLATE("attention", "attention_append_narrow", AttentionAppendParams, v_words)
          : LATHE_TEMPLATE("attention", "attention_append", AttentionAppendParams, v_words),
      kAppendThreads);
  if (problem.rotary || problem.narrow != kWideRows)
    spec.add({Constant::type("element", "Element", problem.element)});
  add_decode_calls(problem, &spec);
  add_alignment(problem.alignment, &spec);
  return spec;
}

KernelSpec attention_combine_spec(const AttentionProblem& problem) {
  KernelSpec spec = KernelSpec::of(
      LATHE_TEMPLATE("attention", "attention_combine", AttentionCombineParams, splits),
      kCombineThreads);
  spec.constants = {Constant::type("element", "Element", problem.element),
                    Constant::flag("sinks", "kSinks", problem.sinks)};
  add_ragged(problem, &spec);
  add_alignment(problem.alignment, &spec);
  return spec;
}

int64_t attention_decode_tiles(const AttentionTiling& kernel, const AttentionDecodeShape& shape) {
  // One tile more for each sequence that begins inside of a tile, and for padding.
  if (shape.ragged) return shape.packed_tokens * shape.ratio() / kernel.m + shape.batch + 1;
  return ceil_div(shape.queries * shape.ratio(), kernel.m);
}

// With `tiles` too many for splits there is nothing to look up; with fewer, the answer depends on
// them and on the most splits allowed.
AttentionSplitTable::AttentionSplitTable(int multiprocessors)
    : multiprocessors_(multiprocessors),
      rows_(std::min<int64_t>(ceil_div(multiprocessors * 8ll, 10), kMostTableRows)),
      columns_(std::min<int64_t>(SplitProblem().limit, multiprocessors)) {
  for (int64_t tiles = 1; tiles <= rows_; ++tiles) {
    const auto row = attention_num_splits_by_blocks(tiles, multiprocessors, columns_);
    table_.insert(table_.end(), row.begin(), row.end());
  }
}

int64_t AttentionSplitTable::splits(const SplitProblem& tuning_key) const {
  if (tuning_key.tiles < 1 || tuning_key.tiles > rows_ || tuning_key.key_blocks < 1) {
    return attention_num_splits(tuning_key);
  }
  const int64_t most = std::min(tuning_key.key_blocks, columns_);
  return table_[static_cast<size_t>((tuning_key.tiles - 1) * columns_ + most - 1)];
}

int64_t attention_decode_splits(const AttentionProblem& problem, const AttentionTiling& kernel,
                                const AttentionDecodeShape& shape,
                                const AttentionSplitTable& chosen, int64_t wanted) {
  if (!problem.split) return 1;
  SplitProblem tuning_key;
  tuning_key.query_blocks = ceil_div(shape.queries * shape.ratio(), kernel.m);
  tuning_key.tiles = tuning_key.query_blocks * shape.kv_heads * shape.batch;
  tuning_key.multiprocessors = chosen.multiprocessors();
  tuning_key.key_blocks = ceil_div(shape.most_keys(), kernel.n);
  tuning_key.kv_bytes = shape.most_keys() * attention_cached_bytes(problem);
  tuning_key.masked = problem.local;
  return attention_clamp_splits(wanted > 0 ? wanted : chosen.splits(tuning_key),
                                tuning_key.key_blocks);
}

int64_t attention_decode_blocks(const AttentionTiling& kernel, const AttentionDecodeShape& shape,
                                int64_t splits) {
  const int64_t sequences = shape.ragged ? 1 : shape.batch;
  return attention_decode_tiles(kernel, shape) * shape.kv_heads * sequences * splits;
}
int64_t attention_append_blocks(const AttentionDecodeShape& shape) { return shape.tokens(); }
int64_t attention_combine_blocks(int64_t rows) { return ceil_div(rows, kCombineThreads / 32); }
int64_t attention_combine_blocks(int64_t rows, int64_t multiprocessors) {
  return std::min(attention_combine_blocks(rows), kCombineBlocks * multiprocessors);
}

// The bounds that templates/attention/decode/ragged.cuh proves: blocks and slots.
void share_out(const AttentionProblem& problem, const AttentionTiling& kernel,
               const AttentionDecodeShape& shape, int64_t side_by_side, int64_t wanted,
               AttentionDecodeParts* out) {
  const int64_t tiles = attention_decode_blocks(kernel, shape, 1);
  const int64_t key_blocks = ceil_div(shape.most_keys(), kernel.n);
  out->blocks = tiles;
  if (!problem.split || wanted == 1 || key_blocks <= kLeastPart) return;
  if (wanted > 1) {
    out->splits = attention_clamp_splits(wanted, key_blocks);
    out->slots = out->blocks = bounded_product({tiles, out->splits});
  } else {
    out->share = side_by_side, out->slots = 2 * side_by_side;
    out->blocks += side_by_side;
  }
  out->slot_rows = kernel.m;
  out->partial_rows = bounded_product({out->slots, kernel.m}), out->joined_rows = out->partial_rows;
}

void AttentionDecodeParts::lay_out(const AttentionProblem& problem, WorkspaceLayout* layout) {
  layout->add({partial_rows, problem.value_dim + 1, kFloatBytes});
  partial_lse = partial_rows * problem.value_dim * kFloatBytes;
  combine_list = layout->add({slots, sizeof(AttentionCombineEntry)});
  used_slots = layout->add({slots > 0 ? 1 : 0, kFloatBytes});
}

Result<AttentionDecodeParts> attention_decode_parts(const AttentionProblem& problem,
                                                    const AttentionTiling& kernel,
                                                    const AttentionDecodeShape& shape,
                                                    const AttentionSplitTable& chosen,
                                                    int64_t side_by_side, int64_t wanted) {
  AttentionDecodeParts out;
  if (shape.ragged) {
    share_out(problem, kernel, shape, side_by_side, wanted, &out);
  } else {
    out.splits = attention_decode_splits(problem, kernel, shape, chosen, wanted);
    out.blocks = attention_decode_blocks(kernel, shape, out.splits);
    out.joined_rows = out.splits > 1 ? shape.rows() : 0;
    out.partial_rows = out.splits * out.joined_rows;
  }
  if (out.joined_rows == 0) return out;
  LATHE_TRY(checked_product("the workspace", {out.partial_rows, problem.value_dim + 1, 8}));
  WorkspaceLayout layout;
  out.lay_out(problem, &layout);
  out.total = layout.total();
  return out;
}

// Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994: with
// 2^(shift - 1) < divisor <= 2^shift the error of magic is too small to show below 2^32.
FastDivision fast_division(int64_t divisor) {
  FastDivision out;
  while ((int64_t{1} << out.shift) < divisor) ++out.shift;
  const uint64_t above = (uint64_t{1} << out.shift) - static_cast<uint64_t>(divisor);
  out.magic = static_cast<uint32_t>((above << 32) / static_cast<uint64_t>(divisor) + 1);
  return out;
}

AttentionCost attention_decode_cost(const AttentionProblem& problem, const KernelSpec& spec,
                                    const AttentionDecodeShape& shape, const AttentionMask& mask,
                                    int64_t partial_rows) {
  const AttentionShape all = {shape.batch, shape.heads, shape.kv_heads, shape.queries,
                              shape.most_keys()};
  const std::vector<AttentionSequences> sequences = {{mask, shape.batch}};
  KernelSpec packed = spec;  // the forward's count of visits, with all heads of a group in a tile
  packed.constants.push_back(Constant::flag("pack_gqa", "kPackGqa", true));
  AttentionCost cost = attention_forward_cost(problem, packed, all, sequences);
  const uint64_t added = problem.append ? 2 * shape.tokens() * shape.kv_heads *
                                              attention_key_width(problem) * kElementBytes
                                        : 0;
  cost.minimum_bytes += added;
  cost.bytes +=
      added + 2 * static_cast<uint64_t>(partial_rows * (problem.value_dim + 1) * kFloatBytes);
  return cost;
}

}  // namespace lathe
