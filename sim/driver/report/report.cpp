// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes findings and launches.
#include "sim/driver/report/report.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "sim/clock/machine.h"
#include "sim/driver/forked.h"
#include "sim/driver/report/json_line.h"
#include "sim/driver/report/line_file.h"
#include "sim/driver/report/timeline.h"

namespace sim::driver {
namespace {

struct Outputs {
  LineFile findings{"LATHE_SIM_REPORT"}, launches{"LATHE_SIM_COUNTERS"},
      timeline{"LATHE_SIM_TIMELINE"}, clock{"LATHE_SIM_CLOCK"};
  std::atomic<bool> quiet{false};
  std::atomic<int> exitcode{0};
  std::atomic<uint64_t> count{0};
};

// Never destroyed: worker threads may outlive static destructors.
Outputs& outputs() {
  static Outputs* all = new Outputs;
  return *all;
}

std::string triple(const uint32_t (&v)[3]) {
  return "(" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")";
}

std::string for_people(const Finding& finding) {
  std::string line = finding.check + " " + finding.kind + ": " + finding.text;
  if (finding.kernel.empty()) return line;
  line += "; in " + finding.kernel + ", cta " + triple(finding.block) + ", thread " +
          triple(finding.thread) + ", PTX line " + std::to_string(finding.ptx_line);
  return finding.source.empty() ? line : line + ", " + finding.source;
}

// `bytes`: those of an access, or all of a leaked allocation.
JsonLine json(const Finding& finding, uint64_t bytes) {
  JsonLine line;
  line.add("check", finding.check, "kind", finding.kind, "kernel", finding.kernel, "cta",
           finding.block, "thread", finding.thread, "ptx_line", finding.ptx_line, "source",
           finding.source, "text", finding.text);
  line.add_address("address", finding.address);
  line.add("bytes", bytes);
  if (finding.other_ptx_line != 0 || !finding.other_access.empty()) {
    JsonLine other;
    if (!finding.other_kernel.empty()) other.add("kernel", finding.other_kernel);
    other.add("cta", finding.other_block, "thread", finding.other_thread, "ptx_line",
              finding.other_ptx_line, "source", finding.other_source, "access",
              finding.other_access);
    line.add("other", other);
  }
  return line;
}

void tell(const Finding& finding, const JsonLine& line) {
  Outputs& out = outputs();
  out.count.fetch_add(1);
  out.findings.write(line.text());
  if (!out.quiet) report_note(for_people(finding));
}

// Whatever status the program chose, one with findings did not succeed.
void end_with_exitcode() {
  const Outputs& out = outputs();
  if (out.count.load() == 0 || forked()) return;
  settle_at_exit();
  std::fflush(nullptr);
  _exit(out.exitcode.load());
}

}  // namespace

void open_reports(const Options& options) {
  Outputs& out = outputs();
  out.findings.set(options.report);
  out.launches.set(options.counters);
  out.timeline.set(options.timeline);
  out.clock.set(options.clock);
  if (!options.clock.empty() && clock::find_machine(options.profile.gpu) == nullptr) {
    report_note("LATHE_SIM_CLOCK: the clock knows " + clock::machine_names() + ", not " +
                options.profile.gpu + ": no launch has a line");
  }
  out.quiet = options.quiet;
  static const bool once = [] { return std::atexit(settle_at_exit) == 0; }();
  static_cast<void>(once);
  const bool first = out.exitcode.exchange(options.error_exitcode) == 0;
  if (first && options.error_exitcode != 0) std::atexit(end_with_exitcode);
}

void report_finding(const Finding& finding) { tell(finding, json(finding, finding.bytes)); }

void report_launch(const Grid& grid, const Outcome& outcome, const std::string& gpu) {
  for (const Finding& finding : outcome.findings) report_finding(finding);
  LineFile& launches = outputs().launches;
  if (!launches.wanted()) return;
  JsonLine line;
  add_launch(line, grid, outcome, gpu);
  launches.write(line.text());
}

bool wants_clock() { return outputs().clock.wanted(); }
void write_clock(const std::string& line) { outputs().clock.write(line); }

void report_timeline(const JsonLine& line) { outputs().timeline.write(line.text()); }

void report_leak(uint64_t address, uint64_t bytes, int device) {
  Finding finding;
  finding.check = "memcheck";
  finding.kind = "leak";
  finding.text = std::to_string(bytes) + " bytes of memory of device " + std::to_string(device) +
                 " were never freed";
  finding.address = address;
  JsonLine line = json(finding, bytes);
  line.add("device", device);
  tell(finding, line);
}

void report_note(const std::string& text) {
  const std::string line = "lathe sim: " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace sim::driver
