// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes partitions of the token axis and the rank-local view of packed sequences. Integers only.
#include "collective/plans/shard.h"

#include <algorithm>
#include <climits>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

// Returns the index of the last interval of `offsets` that begins at or before `position`. For a
// position inside the axis this is the one non-empty interval that holds the position.
int64_t interval_of(const std::vector<int64_t>& offsets, int64_t position) {
  return std::upper_bound(offsets.begin(), offsets.end(), position) - offsets.begin() - 1;
}

Status check_offsets(const char* name, const std::vector<int64_t>& offsets) {
  if (offsets.front() != 0) {
    return invalid(text(name, "[0] is ", offsets.front(), ", must be 0"));
  }
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) {
      return invalid(text(name, "[", i, "] is ", offsets[i], ", must be at least ", name, "[",
                          i - 1, "] = ", offsets[i - 1]));
    }
  }
  return {};
}

PartContext context_of(const std::vector<int64_t>& cu, const Partition& partition, int p) {
  PartContext out;
  out.part = out.rank = p;
  out.interval = partition.part(p);
  out.cu_seqlens = {0};
  const auto [a, b] = out.interval;
  if (a == b) return out;
  const auto sequences = static_cast<int64_t>(cu.size()) - 1;
  for (int64_t n = interval_of(cu, a); n < sequences && cu[n] < b; ++n) {
    if (cu[n + 1] == cu[n]) continue;
    out.seq_ids.push_back(static_cast<int>(n));
    out.cu_seqlens.push_back(std::min(cu[n + 1], b) - a);
  }
  const int64_t start = cu[out.seq_ids.front()];
  const int64_t stop = cu[out.seq_ids.back() + 1];
  out.pre = p - static_cast<int>(interval_of(partition.bounds, start));
  out.post = static_cast<int>(interval_of(partition.bounds, stop - 1)) - p;
  out.is_first = out.pre == 0;
  out.is_last = out.post == 0;
  out.pre_tokens = a - start;
  return out;
}

}  // namespace

Interval chunk(int64_t c, int64_t lo, int64_t n, int64_t parts) {
  // `cut` computes floor(c n / parts) without forming c n, which may not fit.
  const int64_t quotient = n / parts, rest = n % parts;
  const auto cut = [&](int64_t i) { return lo + i * quotient + i * rest / parts; };
  return {cut(c), cut(c + 1)};
}

std::vector<Interval> joined_intervals(const std::vector<Interval>& intervals) {
  std::vector<Interval> out;
  for (const Interval& each : intervals) {
    if (each.size() == 0) continue;
    if (!out.empty() && out.back().end == each.begin) {
      out.back().end = each.end;
    } else {
      out.push_back(each);
    }
  }
  return out;
}

int64_t total_size(const std::vector<Interval>& intervals) {
  int64_t sum = 0;
  for (const Interval& each : intervals) sum += each.size();
  return sum;
}

Partition even_partition(int64_t length, int world) {
  Partition out;
  out.bounds.reserve(world + 1);
  for (int rank = 0; rank < world; ++rank) {
    out.bounds.push_back(chunk(rank, 0, length, world).begin);
  }
  out.bounds.push_back(length);
  return out;
}

Status check_partition(const std::vector<int64_t>& bounds) {
  if (bounds.size() < 2) {
    return invalid(
        text("part bounds have ", bounds.size(), " offsets, must be world + 1, at least 2"));
  }
  return check_offsets("bounds", bounds);
}

Status check_world(int64_t world) {
  if (world >= 1 && world <= kMostWorld) return {};
  return invalid(text("world_size is ", world, "; allowed are 1 to ", kMostWorld));
}

Status check_cu_seqlens(const std::vector<int64_t>& cu_seqlens, int64_t length) {
  if (cu_seqlens.empty()) {
    return invalid("cu_seqlens is empty, must have at least one offset, 0");
  }
  LATHE_TRY(check_offsets("cu_seqlens", cu_seqlens));
  if (cu_seqlens.back() > INT_MAX) {
    return invalid(text("cu_seqlens[", cu_seqlens.size() - 1, "] is ", cu_seqlens.back(),
                        "; allowed are 0 to ", INT_MAX));
  }
  if (length >= 0 && cu_seqlens.back() != length) {
    return invalid(text("cu_seqlens[", cu_seqlens.size() - 1, "] is ", cu_seqlens.back(),
                        ", must be the number of tokens, ", length));
  }
  return {};
}

Result<std::vector<PartContext>> part_contexts(const std::vector<int64_t>& cu_seqlens,
                                               const Partition& partition) {
  LATHE_TRY(check_partition(partition.bounds));
  LATHE_TRY(check_cu_seqlens(cu_seqlens, partition.length()));
  std::vector<PartContext> out;
  out.reserve(partition.world());
  for (int p = 0; p < partition.world(); ++p) out.push_back(context_of(cu_seqlens, partition, p));
  return out;
}

}  // namespace lathe
