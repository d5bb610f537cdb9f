// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// If there is no machine code, PTX itself is the program. Within each block its instructions are
// put in an order that hides their latencies, as ptxas would, and get the stall cycles and
// scoreboards that this order needs. What ptxas leaves out (copies of registers, parameters,
// changes of address space) costs nothing.
#pragma once

#include <string>

#include "sim/clock/machine.h"
#include "sim/clock/program.h"
#include "sim/ptx/code.h"

namespace sim::clock {

// Says which unit an instruction of PTX keeps busy, and what it does to the order of things.
void classify_ptx(const Inst& in, const InstInfo& info, Op* op);

// `text` is the module's PTX, whose lines the function names.
Program ptx_program(const Function& function, const std::string& text, const Machine& machine);

}  // namespace sim::clock
