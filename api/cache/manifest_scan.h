// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// JSON from outside: read with bounds on its size and depth, and no name twice.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "codegen/base/status.h"

namespace lathe {

// INVALID_ARGUMENT names what was found and what is allowed. What comes back is an object.
Result<nlohmann::ordered_json> scan_json(std::string_view text, size_t most_bytes, int most_depth);

}  // namespace lathe
