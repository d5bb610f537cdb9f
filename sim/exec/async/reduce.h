// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Element-wise reductions into memory, as cp.reduce.async and red.async make them.
#pragma once

#include <cstdint>

#include "sim/ptx/form.h"

namespace sim {

// to[k] = to[k] op from[k] for elements of `type`; each element atomically. `flush`: subnormal
// results of f32 become zero.
void reduce(uint8_t* to, const uint8_t* from, uint32_t bytes, Type type, Atomic op, bool flush);
// Whether the pair exists.
bool can_reduce(Type type, Atomic op);

}  // namespace sim
