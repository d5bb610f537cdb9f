// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks both axes of a call and deals them out.
#include "collective/plans/layout.h"

#include <algorithm>
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

// Returns the partition whose parts the ranks hold, or one without bounds if there is none.
Partition partition_of(const ShardLayout& layout, int64_t length) {
  Partition out;
  out.bounds = {0};
  for (const std::vector<Interval>& intervals : layout) {
    if (intervals.size() > 1) return {};
    if (intervals.size() == 1 && intervals[0].begin != out.bounds.back()) return {};
    out.bounds.push_back(intervals.empty() ? out.bounds.back() : intervals[0].end);
  }
  return out.bounds.back() == length ? out : Partition();
}

Status check_bounds(const LayoutOptions& options) {
  LATHE_TRY(check_partition(options.bounds));
  const size_t last = options.bounds.size() - 1;
  if (static_cast<int64_t>(last) != options.world) {
    return invalid(text("bounds has ", last, " parts; the world has ", options.world, " ranks"));
  }
  if (options.bounds.back() != options.length) {
    return invalid(
        text("bounds[", last, "] is ", options.bounds.back(), ", but length is ", options.length));
  }
  return {};
}

// A range of a table, and who holds it.
struct HeldRange {
  Interval range;
  size_t rank = 0;
};

// Checks that each range lies on the axis, behind the ranges before it on its rank.
Status check_rank(const std::vector<Interval>& ranges, size_t rank, int64_t length) {
  int64_t end = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto [first, last] = ranges[i];
    const std::string named = text("range ", i, " of rank ", rank, " is [", first, ", ", last, ")");
    if (first < 0 || last < first || last > length) {
      return invalid(text(named, "; allowed are 0 <= first <= last <= ", length, ", the length"));
    }
    if (first == last) continue;
    if (first < end) {
      return invalid(text(named, ", which begins before token ", end,
                          ", where an earlier range of the rank ends; a rank's ranges ascend"));
    }
    end = last;
  }
  return {};
}

// Checks that every token lies on one rank.
Status check_ranges(const ShardLayout& ranges, int64_t length) {
  std::vector<HeldRange> held;
  for (size_t rank = 0; rank < ranges.size(); ++rank) {
    LATHE_TRY(check_rank(ranges[rank], rank, length));
    for (const Interval& range : ranges[rank]) {
      if (range.size() > 0) held.push_back({range, rank});
    }
  }
  std::ranges::sort(held, {}, [](const HeldRange& each) { return each.range.begin; });
  int64_t next = 0;  // the first token that no range so far holds
  size_t owner = 0;  // of the token before it
  for (const auto& [range, rank] : held) {
    if (range.begin < next) {
      return invalid(text("token ", range.begin, " lies in ranges of rank ", owner, " and of rank ",
                          rank, "; every token lies on one rank"));
    }
    if (range.begin > next) break;
    next = range.end, owner = rank;
  }
  if (next == length) return {};
  return invalid(
      text("token ", next, " lies in no range of any rank; every token lies on one rank"));
}

// Returns who holds which queries, as the caller's bounds or ranges say.
Result<ShardLayout> given_layout(const LayoutOptions& options) {
  const char* const name = options.bounds.empty() ? "ranges" : "bounds";
  if (options.balance != Balance::none) {
    return invalid(text(name, " are given; they need balance none"));
  }
  if (options.ranges.empty()) {
    LATHE_TRY(check_bounds(options));
    return parts_of({options.bounds});
  }
  if (!options.bounds.empty()) return invalid("bounds and ranges are given; allowed is one");
  if (std::ssize(options.ranges) != options.world) {
    return invalid(text("ranges has lists for ", options.ranges.size(), " ranks; the world has ",
                        options.world));
  }
  LATHE_TRY(check_ranges(options.ranges, options.length));
  ShardLayout out = options.ranges;
  join_runs(&out);
  return out;
}

Result<ShardLayout> balanced_layout(const LayoutOptions& options,
                                    const std::vector<int64_t>& cu_seqlens) {
  LATHE_ASSIGN(ShardLayout out,
               shard_layout(options.balance, cu_seqlens, options.world, options.block_size));
  join_runs(&out);
  return out;
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
  if (options.bounds.empty() && options.ranges.empty()) {
    LATHE_ASSIGN(out.queries, balanced_layout(options, out.cu_seqlens));
    LATHE_ASSIGN(out.keys, balanced_layout(options, out.cu_seqlens_k));
  } else {
    LATHE_ASSIGN(out.queries, given_layout(options));
    const bool same = out.key_length == out.length;
    out.keys = same ? out.queries : parts_of(even_partition(out.key_length, options.world));
  }
  out.partition = partition_of(out.queries, out.length);
  out.capacity = options.capacity;
  return out;
}

}  // namespace lathe
