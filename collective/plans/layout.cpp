// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks both axes of a call and deals them out.
#include "collective/plans/layout.h"

#include <climits>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

Status check_length(const char* name, int64_t length) {
  if (length >= 0 && length <= INT_MAX) return {};
  return invalid(text(name, " is ", length, "; allowed are 0 to ", INT_MAX));
}

// Joins each rank's intervals into as few runs as possible: cuts inside a run do not matter.
void join_runs(ShardLayout* layout) {
  for (std::vector<Interval>& intervals : *layout) intervals = joined_intervals(intervals);
}

ShardLayout parts_of(const Partition& partition) {
  ShardLayout out(partition.world());
  for (int rank = 0; rank < partition.world(); ++rank) out[rank] = {partition.part(rank)};
  join_runs(&out);
  return out;
}

Status take_bounds(const LayoutOptions& options, Layout* out) {
  if (options.balance != Balance::none) {
    return invalid("bounds are given; they need balance none");
  }
  out->partition.bounds = options.bounds;
  LATHE_TRY(check_partition(options.bounds));
  const size_t last = options.bounds.size() - 1;
  if (static_cast<int64_t>(last) != options.world) {
    return invalid(text("bounds has ", last, " parts; the world has ", options.world, " ranks"));
  }
  if (options.bounds.back() != out->length) {
    return invalid(
        text("bounds[", last, "] is ", options.bounds.back(), ", but length is ", out->length));
  }
  out->queries = parts_of(out->partition);
  const bool same = out->key_length == out->length;
  out->keys = same ? out->queries : parts_of(even_partition(out->key_length, options.world));
  return {};
}

}  // namespace

int64_t Layout::query_tokens(int rank) const { return total_size(queries[rank]); }
int64_t Layout::key_tokens(int rank) const { return total_size(keys[rank]); }

Result<Layout> make_layout(const LayoutOptions& options) {
  LATHE_TRY(check_world(options.world));
  LATHE_TRY(check_length("length", options.length));
  Layout out;
  out.balance = options.balance;
  out.packed = !options.cu_seqlens.empty();
  out.length = options.length;
  out.key_length = options.key_length < 0 ? options.length : options.key_length;
  LATHE_TRY(check_length("key_length", out.key_length));
  out.cu_seqlens = out.packed ? options.cu_seqlens : std::vector<int64_t>{0, out.length};
  LATHE_TRY(check_cu_seqlens(out.cu_seqlens, out.length));
  if (!options.cu_seqlens_k.empty()) {
    out.cu_seqlens_k = options.cu_seqlens_k;
  } else if (out.packed) {
    out.cu_seqlens_k = out.cu_seqlens;
  } else {
    out.cu_seqlens_k = {0, out.key_length};
  }
  LATHE_TRY(check_cu_seqlens(out.cu_seqlens_k, out.key_length));
  if (out.cu_seqlens.size() != out.cu_seqlens_k.size()) {
    return invalid(text("cu_seqlens has ", out.cu_seqlens.size() - 1,
                        " sequences and cu_seqlens_k ", out.cu_seqlens_k.size() - 1,
                        "; they must have as many"));
  }
  if (!options.bounds.empty()) {
    LATHE_TRY(take_bounds(options, &out));
    return out;
  }
  if (out.balance == Balance::none) out.partition = even_partition(out.length, options.world);
  LATHE_ASSIGN(out.queries,
               shard_layout(out.balance, out.cu_seqlens, options.world, options.block_size));
  LATHE_ASSIGN(out.keys,
               shard_layout(out.balance, out.cu_seqlens_k, options.world, options.block_size));
  join_runs(&out.queries);
  join_runs(&out.keys);
  return out;
}

}  // namespace lathe
