// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Says who owns which tokens, and describes the sequences that a rank holds. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/base/status.h"

namespace lathe {

// chunk c of P of [lo, lo + n): [lo + floor(c n / P), lo + floor((c + 1) n / P)).
struct Interval {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};
Interval chunk(int64_t c, int64_t lo, int64_t n, int64_t parts);

// Leaves out empty intervals, and makes one interval of two where the second begins at the end of
// the first.
std::vector<Interval> joined_intervals(const std::vector<Interval>& intervals);
int64_t total_size(const std::vector<Interval>& intervals);

// A partition cuts [0, length) into one part per rank, in rank order. Parts may be uneven or empty.
struct Partition {
  std::vector<int64_t> bounds;  // world + 1 offsets, first 0, last = length
  int world() const { return static_cast<int>(bounds.size()) - 1; }
  int64_t length() const { return bounds.back(); }
  Interval part(int rank) const { return {bounds[rank], bounds[rank + 1]}; }
};
Partition even_partition(int64_t length, int world);
Status check_partition(const std::vector<int64_t>& bounds);

// The most ranks that groups, launchers, shards and manifests may have: more than any machine has,
// and per-rank data of such a world still fits in memory.
inline constexpr int kMostWorld = 65536;
Status check_world(int64_t world);

// There are twice as many parts as ranks. Rank p holds part p in the first half; rank 2W - 1 - p
// holds part p in the second half.
inline int head_tail_rank(int part, int world) {
  return part < world ? part : 2 * world - 1 - part;
}

// Returns INVALID_ARGUMENT unless the first is 0, the last is `length` (-1: up to INT_MAX) and none
// decreases.
Status check_cu_seqlens(const std::vector<int64_t>& cu_seqlens, int64_t length);

// Holds the rank-local view of packed sequences. In a contiguous cut rank p holds part p.
struct PartContext {
  int part = 0, rank = 0;
  Interval interval;
  std::vector<int64_t> cu_seqlens;  // part-relative; [0] if the part is empty
  std::vector<int> seq_ids;         // global numbers; an empty sequence is in no part
  int pre = 0, post = 0;            // parts before (after) that hold the first (last) sequence
  bool is_first = true, is_last = true;
  int64_t pre_tokens = 0;  // tokens of the first sequence before the part
};
Result<std::vector<PartContext>> part_contexts(const std::vector<int64_t>& cu_seqlens,
                                               const Partition& partition);

}  // namespace lathe
