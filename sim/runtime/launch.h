// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The runtime's description of a launch as the driver's.
#pragma once

#include "sim/runtime/entry.h"

namespace sim::runtime {

// Refuses null and more dynamic shared memory than the driver's description can say.
Result read_configuration(const cudaLaunchConfig_t* given, CUlaunchConfig* out);

}  // namespace sim::runtime
