// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes specs, splits and geometry of flash_attention_decode.
#include "ops/attention/decode/kernels.h"

#include <algorithm>
#include <cstddef>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "codegen/base/text.h"
#include "codegen/choice.h"
#include "ops/attention/sm90/decode.h"
#include "ops/workspace.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

constexpr int kElementBytes = 2, kRowEntryBytes = 16;
constexpr int kRows[] = {16, 32, 64};
// The table of splits has this many tiles: more than any device runs side by side.
constexpr int64_t kMostTableRows = 1024;
// More leave too few registers for the query and the copies' addresses: ptxas spills.
constexpr int kMostAccumulators = 160;
constexpr int kAppendThreads = 128, kCombineThreads = 128;

int rows_for(int64_t rows) {
  for (const int each : kRows) {
    if (rows <= each) return each;
  }
  return kRows[std::size(kRows) - 1];
}

// Returns the warps that share the rows of a tile: each owns at least 16 keys of a block.
int key_warps(const AttentionTile& tile) { return tile.warps * 16 / tile.rows; }

// Returns the float32 registers of a thread for out, scores and their 16-bit copy. A warp owns 16
// rows.
int accumulators(const AttentionProblem& problem, const AttentionTile& tile) {
  const int scores = tile.keys / key_warps(tile) / 2;
  return attention_padded_width(problem.value_dim) / 2 + scores + scores / 2;
}

std::vector<int> tile_rows(const AttentionDecodeRows& rows) {
  const int64_t ratio = std::max<int64_t>(rows.ratio, 1);
  if (rows.queries >= 0 && rows.ratio >= 0) return {rows_for(rows.queries * ratio)};
  const int least = rows_for(ratio), most = kRows[std::size(kRows) - 1];
  return least == most ? std::vector<int>{most} : std::vector<int>{least, most};
}

KernelSpec combine_spec(const AttentionProblem& problem) {
  KernelSpec spec = KernelSpec::of(
      LATHE_TEMPLATE("attention", "attention_combine", AttentionCombineParams, splits),
      kCombineThreads);
  spec.constants = {Constant::type("element", "Element", problem.element),
                    Constant::flag("sinks", "kSinks", problem.sinks)};
  add_alignment(problem.alignment, &spec);
  return spec;
}

}  // namespace

int attention_decode_smem(const AttentionProblem& problem, const AttentionTile& tile) {
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  const int block = tile.keys * (kElementBytes * (width + value_width) + kRowEntryBytes);
  const int tiles = kElementBytes * tile.rows * width + tile.stages * block;
  const int merge = key_warps(tile) * tile.rows * 4 * (value_width + 8 + 2);
  return std::max(tiles, merge);
}

std::vector<AttentionTile> attention_decode_candidates(const AttentionProblem& problem,
                                                       const DeviceFacts& facts, int rows) {
  std::vector<AttentionTile> candidates;
  int best = 0;
  for (const int keys : {64, 32}) {
    const int warps = std::max(rows / 16, std::min(4, rows / 16 * keys / 16));
    for (const int stages : {4, 3, 2}) {
      const AttentionTile tile = {rows, keys, stages, warps};
      const int bytes = attention_decode_smem(problem, tile);
      if (bytes > facts.shared_bytes_per_block) continue;
      if (accumulators(problem, tile) > kMostAccumulators) continue;
      // The best tile has the most keys in flight and leaves room for a second block; else fewer
      // stages win.
      const bool two = 2 * (bytes + kReservedShared) <= facts.shared_bytes_per_multiprocessor;
      const int rank = (two ? 100 : 50 - 10 * stages) + (keys == 64 ? 20 : 0) + stages;
      if (rank > best) {
        best = rank;
        candidates.insert(candidates.begin(), tile);
      } else {
        candidates.push_back(tile);
      }
    }
  }
  return candidates;
}

KernelSpec attention_decode_spec(const AttentionProblem& problem, const AttentionTile& tile) {
  KernelSpec spec =
      shared_spec(LATHE_TEMPLATE("attention", "attention_decode", AttentionDecodeParams, splits),
                  "AttentionDecodeSmem", attention_decode_smem(problem, tile), 32 * tile.warps);
  spec.constants = {
      Constant::type("element", "Element", problem.element),
      Constant::integer("width", "kWidth", attention_padded_width(problem.head_dim)),
      Constant::integer("value_width", "kValueWidth", attention_padded_width(problem.value_dim)),
      Constant::integer("m", "kTileM", tile.rows),
      Constant::integer("n", "kTileN", tile.keys),
      Constant::integer("stages", "kStages", tile.stages),
      Constant::flag("local", "kLocal", problem.local),
      Constant::flag("softcap", "kSoftcap", problem.softcap),
      Constant::flag("alibi", "kAlibi", problem.alibi),
      Constant::flag("sinks", "kSinks", problem.sinks),
  };
  add_alignment(problem.alignment, &spec);
  add_mods(problem, &spec);
  return spec;
}

Result<AttentionDecodeKernels> attention_decode_kernels(const AttentionProblem& problem,
                                                        const DeviceFacts& facts,
                                                        const AttentionDecodeRows& rows) {
  AttentionDecodeKernels kernels;
  const char* const refusal = attention_decode_warpgroups_refusal(problem, facts, rows);
  if (refusal == nullptr) {
    kernels.warpgroups = attention_decode_warpgroups_spec(problem);
  }
  for (const int each : tile_rows(rows)) {
    const auto candidates = problem.latent ? attention_latent_candidates(problem, facts, each)
                                           : attention_decode_candidates(problem, facts, each);
    if (candidates.empty()) {
      return unsupported(text("flash_attention_decode: a block of head widths ", problem.head_dim,
                              " and ", problem.value_dim, " needs more shared memory than the ",
                              facts.shared_bytes_per_block, " bytes of ", facts.arch));
    }
    const auto spec_of = [&](const AttentionTile& tile) {
      return problem.latent ? attention_latent_spec(problem, tile)
                            : attention_decode_spec(problem, tile);
    };
    KernelSpec spec = spec_of(pick(candidates, facts, {"n", "stages"}, spec_of));
    if (refusal != nullptr) spec.family_reason = text("not sm90: ", refusal);
    const bool again =
        !kernels.decode.empty() && kernels.decode.back().numbers().m == spec.constant("m");
    if (!again) kernels.decode.push_back(std::move(spec));
  }
  if (problem.append) {
    KernelSpec append = KernelSpec::of(
        LATHE_TEMPLATE("attention", "attention_append", AttentionAppendParams, v_words),
        kAppendThreads);
    add_alignment(problem.alignment, &append);
    kernels.append = std::move(append);
  }
  if (problem.split) kernels.combine = combine_spec(problem);
  return kernels;
}

const KernelSlot& attention_decode_pick(const AttentionDecodeKernels& kernels,
                                        const AttentionDecodeShape& shape) {
  const bool can = kernels.warpgroups.has_value();
  if (kernels.decode.empty() || (can && attention_decode_takes_warpgroups(shape))) {
    return kernels.warpgroups;
  }
  size_t pick = 0;
  while (pick + 1 < kernels.decode.size() &&
         kernels.decode[pick].numbers().m < shape.queries * shape.ratio()) {
    ++pick;
  }
  return kernels.decode[pick];
}

int64_t attention_decode_tiles(const KernelNumbers& kernel, const AttentionDecodeShape& shape) {
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

int64_t attention_decode_splits(const AttentionProblem& problem, const KernelNumbers& kernel,
                                const AttentionDecodeShape& shape,
                                const AttentionSplitTable& chosen, int64_t wanted) {
  if (!problem.split) return 1;
  SplitProblem tuning_key;
  tuning_key.query_blocks = attention_decode_tiles(kernel, shape);
  tuning_key.tiles = tuning_key.query_blocks * shape.kv_heads * shape.batch;
  tuning_key.multiprocessors = chosen.multiprocessors();
  tuning_key.key_blocks = ceil_div(shape.most_keys(), kernel.n);
  tuning_key.kv_bytes = shape.most_keys() * attention_key_width(problem) * kElementBytes;
  tuning_key.masked = problem.local;
  return attention_clamp_splits(wanted > 0 ? wanted : chosen.splits(tuning_key),
                                tuning_key.key_blocks);
}

int64_t attention_decode_partial_out_bytes(const AttentionProblem& problem,
                                           const AttentionDecodeShape& shape, int64_t splits) {
  return splits > 1 ? splits * shape.rows() * problem.value_dim * 4 : 0;
}

uint64_t attention_decode_workspace_bytes(const AttentionProblem& problem,
                                          const AttentionDecodeShape& shape, int64_t splits) {
  WorkspaceLayout layout;
  layout.add({splits > 1 ? splits : 0, shape.rows(), problem.value_dim + 1, 4});
  return static_cast<uint64_t>(layout.total());
}

int64_t attention_decode_blocks(const KernelNumbers& kernel, const AttentionDecodeShape& shape,
                                int64_t splits) {
  return attention_decode_tiles(kernel, shape) * shape.kv_heads * shape.batch * splits;
}
int64_t attention_append_blocks(const AttentionDecodeShape& shape) {
  return shape.batch * shape.queries;
}
int64_t attention_combine_blocks(const KernelSpec& spec, const AttentionDecodeShape& shape) {
  return ceil_div(shape.rows(), spec.threads / 32);
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
                                    int64_t splits) {
  const AttentionShape all = {shape.batch, shape.heads, shape.kv_heads, shape.queries,
                              shape.most_keys()};
  const std::vector<AttentionSequences> sequences = {{mask, shape.batch}};
  KernelSpec packed = spec;  // the forward's count of visits, with all heads of a group in a tile
  packed.constants.push_back(Constant::flag("pack_gqa", "kPackGqa", true));
  AttentionCost cost = attention_forward_cost(problem, packed, all, sequences);
  const uint64_t added = problem.append ? 2 * shape.batch * shape.queries * shape.kv_heads *
                                              attention_key_width(problem) * kElementBytes
                                        : 0;
  cost.minimum_bytes += added;
  cost.bytes += added + 2 * (splits > 1 ? splits * shape.rows() * (problem.value_dim + 1) * 4 : 0);
  return cost;
}

}  // namespace lathe
