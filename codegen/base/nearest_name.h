// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the name that a caller who mistyped one may have meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lathe {

// Returns the name with the fewest letters inserted, deleted or replaced, if they are at most a
// third of the asked one's and not all of it; empty if no name is that near. The first of equals
// wins.
std::string_view nearest_name(std::string_view asked, std::span<const std::string_view> names);

// Returns "; did you mean 'q'?", or nothing.
std::string did_you_mean(std::string_view asked, std::span<const std::string_view> names);

}  // namespace lathe
