// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Counts visible pairs in closed form.
#include "collective/plans/visible_range.h"

#include <algorithm>

namespace lathe {
namespace {

// Counts the pairs (i, j) of 0 <= i < rows, 0 <= j < keys with j - i <= limit.
int64_t pairs_up_to(int64_t rows, int64_t keys, int64_t limit) {
  // Row i has min(keys, i + limit + 1) of them, where that is positive.
  const int64_t first = std::clamp<int64_t>(-limit, 0, rows);  // the first row with any
  const int64_t whole = std::clamp<int64_t>(keys - limit - 1, first, rows);  // with all
  const int64_t least = first + limit + 1, most = whole + limit;
  return (whole - first) * (least + most) / 2 + (rows - whole) * keys;
}

}  // namespace

Interval VisibleRange::keys(Interval rows, int64_t length) const {
  const int64_t begin = left < 0 ? 0 : std::max<int64_t>(0, rows.begin - left);
  return {begin, right < 0 ? length : std::min(length, rows.end + right)};
}

RangeRule range_rule(Interval rows, Interval keys, int64_t offset, const VisibleRange& range) {
  const int64_t left = range.left, right = range.right;
  RangeRule out;
  out.shift = rows.begin + offset - keys.begin;
  const int64_t count = rows.size(), width = keys.size();
  if (count <= 0 || width <= 0) return out;
  const int64_t least = 1 - count - out.shift, most = width - 1 - out.shift;  // of j - i - shift
  if ((right >= 0 && least > right) || (left >= 0 && most < -left)) return out;
  const bool full = (right < 0 || most <= right) && (left < 0 || least >= -left);
  out.kind = full ? RangeKind::full : RangeKind::partial;
  const int64_t behind = right < 0 ? count * width : pairs_up_to(count, width, out.shift + right);
  const int64_t before = left < 0 ? 0 : pairs_up_to(count, width, out.shift - left - 1);
  out.visible = behind - before;
  return out;
}

}  // namespace lathe
