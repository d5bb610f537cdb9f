// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the simulator tells about launches and findings: JSON lines to LATHE_SIM_REPORT.
#pragma once

#include <string>

#include "sim/exec/launch.h"

namespace sim::driver {

// "": nowhere. "-": stderr. Otherwise a file to append to.
void open_report(const std::string& where);

void report_launch(const Grid& grid, const Outcome& outcome);
void report_leak(uint64_t address, uint64_t bytes, int device);
// One sentence, such as why initialisation failed.
void report_note(const std::string& text);

}  // namespace sim::driver
