// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Says which rows see which keys, as the few rectangles that a block step of attention takes. Pure.
#pragma once

#include <span>

#include "collective/plans/layout.h"
#include "collective/plans/visible_range.h"

namespace lathe {

// flash_attention_block reads these ranges. Rows [qa, qb) see keys [ka, kb), both counted in
// buffers: row i of them keeps key j iff -left <= j - i - shift <= right. q0 and k0 are the
// positions of the first row and key in their sequence; with VisibleRange::positions shift is q0 +
// (keys - queries of the sequence) - k0.
struct AttentionRange {
  int32_t qa = 0, qb = 0, ka = 0, kb = 0, shift = 0, q0 = 0, k0 = 0;
  bool operator==(const AttentionRange&) const = default;
};
static_assert(sizeof(AttentionRange) == 7 * sizeof(int32_t));

// A run is some tokens of one sequence that lie side by side in a buffer.
struct TokenRun {
  int sequence = 0;
  Interval positions;  // in the sequence
  int64_t begin = 0;   // in the buffer
};
// `intervals` lie in the buffer one after another from `begin` on.
std::vector<TokenRun> token_runs(const std::vector<Interval>& intervals,
                                 const std::vector<int64_t>& cu_seqlens, int64_t begin = 0);

// Returns ranges that hold each row with each key that it sees exactly once, ascending by qa, then
// by ka. No range is empty, and each row or key at the edge of a range has a visible pair in it.
// Ranges are joined where one rectangle with one shift says the same. Runs ascend in their buffers.
std::vector<AttentionRange> attention_ranges(const std::vector<TokenRun>& rows,
                                             const std::vector<TokenRun>& keys,
                                             const Layout& layout, const VisibleRange& range);

// Counts the visible pairs of a row and a key.
int64_t visible_in(std::span<const AttentionRange> ranges, const VisibleRange& range);

}  // namespace lathe
