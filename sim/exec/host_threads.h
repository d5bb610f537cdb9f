// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Host threads stay between launches: starting one takes longer than a small grid.
#pragma once

#include <cstdint>
#include <functional>

namespace sim {

// Runs f(0) on the calling thread and f(1) to f(count - 1) on others, at the same time. A call that
// has not begun when f(0) returns is left out, so every f must be able to do all of the work.
// Returns when all calls that began have returned. It is safe to call from several threads at once.
void run_together(uint64_t count, const std::function<void(uint64_t)>& f);

}  // namespace sim
