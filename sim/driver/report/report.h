// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulator reports findings as JSON lines to LATHE_SIM_REPORT and as a line for people on
// stderr, launches with their counters as JSON lines to LATHE_SIM_COUNTERS.
#pragma once

#include <string>

#include "sim/driver/options.h"
#include "sim/driver/report/model_time.h"
#include "sim/exec/launch.h"

namespace sim::driver {

// Files are made when there is something to write: a clean run leaves none.
void open_reports(const Options& options);

void report_finding(const Finding& finding);
// Writes the launch's findings and counters; `gpu` is Profile::gpu.
void report_launch(const Grid& grid, const Outcome& outcome, const std::string& gpu);
// This is the clock's answer for a launch; the time is 0 if it does not know.
struct ClockTime {
  double microseconds = 0, launch_microseconds = 0;
  std::string bound;
  double waves = 0, tail = 0;  // blocks over the places of the device; as in clock::KernelTime
  Uses uses;                   // of the device, while the kernel runs
};
// Tells what the launch does in model time: as the clock says, else as the model does.
void record_launch(const Grid& grid, const Outcome& outcome, const Profile& profile,
                   const ClockTime& clock);
// Says whether LATHE_SIM_CLOCK asks for times, and writes those of a launch; with `picture` also
// files whose names begin so.
bool wants_clock();
ClockTime report_clock(const Grid& grid, const Profile& profile, const Outcome& outcome,
                       const Traces& traces, const std::string& picture);
void write_clock(const std::string& line);
class JsonLine;
// Writes a member of the timeline.
void report_timeline(const JsonLine& line);
void report_leak(uint64_t address, uint64_t bytes, int device);
// Writes one sentence on stderr, such as why a call was refused.
void report_note(const std::string& text);

// Adds what a launch has counted, but for its lines of PTX and the time that it took the host.
void add_counts(JsonLine& line, const Counters& counters);
// Adds the members of a launch's line.
void add_launch(JsonLine& line, const Grid& grid, const Outcome& outcome, const std::string& gpu);

}  // namespace sim::driver
