// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes choices of options that together hold every pair of values of two options.
#pragma once

#include <cstdint>
#include <vector>

namespace apitest {

// A Choice has one value, counted from 0, of each option.
using Choice = std::vector<int>;

// `values` says how many values each option has. Each choice is the best of `draws`; the same seed
// gives the same choices.
std::vector<Choice> covering_choices(const std::vector<int>& values, uint32_t seed,
                                     int draws = 200);

}  // namespace apitest
