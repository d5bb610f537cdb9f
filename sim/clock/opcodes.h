// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/clock/program.h"

namespace sim::clock {

// Returns what a machine instruction, as nvdisasm writes it, keeps busy and waits for. Control bits
// and the line are the caller's.
Op decode_machine(const std::string& text);

// Counts the registers that an instruction has to read, except those that `before`, the one before
// it in the code or null, left beside the unit.
void count_bank_reads(Op* op, const Op* before);

}  // namespace sim::clock
