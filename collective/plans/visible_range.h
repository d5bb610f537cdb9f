// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A row of attention sees a range of the keys of its sequence. These functions say which keys some
// rows see, and count the pairs of a row and a key that it sees. Pure.
#pragma once

#include "collective/plans/shard.h"

namespace lathe {

// A row sees the keys from `left` before its own to `right` behind it; a value below 0 means all on
// that side. The last row of a sequence is at its last key.
struct VisibleRange {
  int64_t left = -1, right = -1;
  // `positions` is set if positions decide more than visibility (ALiBi, mods). Then attention
  // ranges are also rectangles of positions, and are not joined.
  bool positions = false;

  // Returns the interval from the first to behind the last key that one of `rows` sees. The
  // sequence has `length` rows and as many keys.
  Interval keys(Interval rows, int64_t length) const;
};
inline constexpr VisibleRange kCausal = {-1, 0};

enum class RangeKind { none, full, partial };
// Row i of some rows sees key j of some keys if -left <= j - i - shift <= right.
struct RangeRule {
  RangeKind kind = RangeKind::none;
  int64_t shift = 0;
  int64_t visible = 0;  // pairs of a row and a key; a partial rule may have none
};
// `rows` and `keys` are positions in a sequence that has `offset` more keys than rows.
RangeRule range_rule(Interval rows, Interval keys, int64_t offset, const VisibleRange& range);

}  // namespace lathe
