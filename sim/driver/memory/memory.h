// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The exported allocators share this function.
#pragma once

#include "sim/driver/state.h"

namespace sim::driver {

// Allocates fresh device or managed memory of the context. Returns 2 when the device's limit is
// reached.
CUresult allocate(Driver& driver, Lock& lock, Context& context, size_t bytes, MemoryKind kind,
                  const std::shared_ptr<Pool>& pool, CUdeviceptr* out);

}  // namespace sim::driver
