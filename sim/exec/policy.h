// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Choices that a launch makes about what hardware leaves open.
#pragma once

#include <cstdint>

namespace sim {

// How matrix instructions add: in double with one rounding; by fused steps in single precision; or
// as units do that align every term to the largest one and cut what is below.
enum class TensorSum : uint8_t { exact, sequential, coarse };

// When an asynchronous operation happens within its window: at its issue, at the wait that covers
// it, or anywhere between, by the seed.
enum class AsyncPolicy : uint8_t { eager, lazy, random };

}  // namespace sim
