// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Where a run's work is: the simulator's counters by PTX line, over all launches.
#pragma once

#include <nlohmann/json.hpp>

namespace lathe::cli {

// From the simulator's lines about launches: {"launches": n, "predicted": [...], "lines": [...]};
// the lines that execute most come first, `most` of them.
nlohmann::json profile_of(const nlohmann::json& launches, size_t most);

void print_profile(const nlohmann::json& profile);

}  // namespace lathe::cli
