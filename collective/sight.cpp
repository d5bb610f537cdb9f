// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Sums over rows of where their keys end and begin, in closed form.
#include "collective/sight.h"

#include <algorithm>

namespace lathe {
namespace {

// Sum of min(length, i + right + 1) over rows 0 to rows - 1.
int64_t ends(int64_t rows, int64_t right, int64_t length) {
  if (right < 0) return rows * length;
  const int64_t cut = std::clamp<int64_t>(length - right, 0, rows);  // rows before it end earlier
  return cut * (right + 1) + cut * (cut - 1) / 2 + (rows - cut) * length;
}

// Sum of max(0, i - left).
int64_t begins(int64_t rows, int64_t left) {
  if (left < 0) return 0;
  const int64_t late = std::max<int64_t>(0, rows - left - 1);
  return late * (late + 1) / 2;
}

}  // namespace

Interval Sight::keys(const Interval& rows, int64_t length) const {
  const int64_t begin = left < 0 ? 0 : std::max<int64_t>(0, rows.begin - left);
  return {begin, right < 0 ? length : std::min(length, rows.end + right)};
}

int64_t Sight::pairs(const Interval& rows, int64_t length) const {
  const auto before = [&](int64_t count) {
    return ends(count, right, length) - begins(count, left);
  };
  return before(rows.end) - before(rows.begin);
}

}  // namespace lathe
