// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// nvdisasm's listing of a kernel, with its hexadecimal words and the PTX line of each instruction,
// becomes a Program. The words hold ptxas's schedule (Huerta et al., arXiv 2503.20481, section 4):
// from bit 105 on, four bits of stall cycles, one of yield, two scoreboards of three bits that the
// instruction sets (its result, its operands), and six bits of scoreboards that it waits for.
#pragma once

#include <string>

#include "sim/clock/program.h"

namespace sim::clock {

// Returns the kernel's code; a Program without ops if the listing does not have the kernel or
// cannot be read, with `why`.
Program read_listing(const std::string& listing, const std::string& kernel, std::string* why);

}  // namespace sim::clock
