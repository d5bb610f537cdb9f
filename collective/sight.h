// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which keys of its document a row of attention sees, and what that costs. Pure.
#pragma once

#include "collective/shard.h"

namespace lathe {

// Row i of a document sees its keys i - left to i + right; -1: all on that side. As it is, a causal
// mask.
struct Sight {
  int64_t left = -1, right = 0;

  // From the first to behind the last key that one of the rows sees.
  Interval keys(const Interval& rows, int64_t length) const;
  // Pairs of one of the rows and a key that it sees.
  int64_t pairs(const Interval& rows, int64_t length) const;
};

}  // namespace lathe
