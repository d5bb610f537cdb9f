// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A launch makes these choices about what hardware leaves open.
#pragma once

#include <cstdint>

namespace sim {

// Matrix instructions add in one of these ways: in double with one rounding; by fused steps in
// single precision; or as units do that align every term to the largest one and cut what is below.
enum class TensorSum : uint8_t { exact, sequential, coarse };

// An asynchronous operation happens at one of these times within its window: at its issue, at the
// wait that covers it, or anywhere between, by the seed.
enum class AsyncPolicy : uint8_t { eager, lazy, random };

}  // namespace sim
