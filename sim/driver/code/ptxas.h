// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// NVIDIA's assembler, where there is one, knows how many registers a kernel takes.
#pragma once

#include "sim/driver/state.h"

namespace sim::driver {

// Returns the registers of one thread of the kernel, as the program at Options::ptxas counts them
// for this device; 0 if no program is named, or it has no answer. The first call for a function
// waits for the program.
int assembled_registers(const Options& options, Function& function, const Profile& profile);

}  // namespace sim::driver
