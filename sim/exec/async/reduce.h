// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions make element-wise reductions into memory, for cp.reduce.async and red.async.
#pragma once

#include <cstdint>

#include "sim/ptx/form.h"

namespace sim {

// Sets to[k] = to[k] op from[k] for elements of `type`; each element atomically. With `flush`,
// subnormal results of f32 become zero.
void reduce(uint8_t* to, const uint8_t* from, uint32_t bytes, Type type, Atomic op, bool flush);
// Says whether the pair exists.
bool can_reduce(Type type, Atomic op);

}  // namespace sim
