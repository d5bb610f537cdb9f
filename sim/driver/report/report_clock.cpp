// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file writes what sim/clock says about a launch: LATHE_SIM_CLOCK.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <unordered_map>

#include "sim/clock/picture.h"
#include "sim/clock/roles.h"
#include "sim/driver/report/json_line.h"
#include "sim/driver/report/report.h"
#include "sim/ptx/code.h"

namespace sim::driver {
namespace {

constexpr size_t kMostLines = 24;
constexpr size_t kMostIntervals = 200'000;  // of a picture

using Stalls = std::array<double, clock::kStalls>;

double total(const Stalls& stalls) { return std::accumulate(stalls.begin(), stalls.end(), 0.0); }

void add_stalls(JsonLine& line, const Stalls& stalls) {
  JsonLine all;
  const double sum = std::max(total(stalls), 1.0);
  for (size_t k = 0; k < stalls.size(); ++k) {
    if (stalls[k] > 0) all.add(clock::kStallNames[k], stalls[k] / sum);
  }
  line.add("stalls", all);
}

std::string joined(const std::vector<std::string>& objects) {
  std::string all = "[";
  for (const std::string& each : objects) all += (all.size() > 1 ? "," : "") + each;
  return all + "]";
}

// The lines of PTX at which warps spend most time.
std::string lines_json(const Grid& grid, const clock::KernelTime& time) {
  struct Line {
    Stalls stalls{};
    uint64_t issued = 0;
    std::string text;
  };
  std::map<int, Line> lines;
  for (size_t k = 0; k < time.program.ops.size(); ++k) {
    const clock::OpCost& cost = time.replay.ops[k];
    if (cost.issued == 0) continue;
    Line& line = lines[time.program.ops[k].line];
    line.issued += cost.issued;
    for (size_t s = 0; s < line.stalls.size(); ++s) line.stalls[s] += cost.stalls[s];
    if (line.text.empty()) line.text = time.program.ops[k].text;
  }
  std::map<int, std::string> sources;
  const Function& f = *grid.kernel->code;
  for (const InstInfo& info : f.infos) {
    const auto file = static_cast<size_t>(info.file);
    if (info.line != 0 && file < f.files.size()) {
      sources[info.ptx_line] = f.files[file] + ":" + std::to_string(info.line);
    }
  }
  std::vector<std::pair<double, int>> order;
  for (const auto& [number, line] : lines) order.emplace_back(-total(line.stalls), number);
  std::sort(order.begin(), order.end());
  if (order.size() > kMostLines) order.resize(kMostLines);
  std::vector<std::string> out;
  for (const auto& [cycles, number] : order) {
    JsonLine line;
    line.add("ptx_line", number, "source", sources[number], "text", lines[number].text, "issued",
             lines[number].issued, "cycles", -cycles);
    add_stalls(line, lines[number].stalls);
    out.push_back(line.text());
  }
  return joined(out);
}

std::string roles_json(const clock::KernelTime& time) {
  std::vector<std::string> out;
  for (const clock::RoleTime& each : clock::find_roles(time.program, time.replay)) {
    JsonLine role;
    role.add("name", each.name, "first_warp", uint64_t{each.first_warp}, "last_warp",
             uint64_t{each.last_warp}, "period_cycles", each.period, "rounds", each.rounds);
    add_stalls(role, each.stalls);
    out.push_back(role.text());
  }
  return joined(out);
}

void add_totals(JsonLine& line, const Grid& grid, const clock::KernelTime& time) {
  line.add("kernel", time.kernel);
  line.add_address("module", grid.image->module->digest());
  line.add("gpu", time.gpu, "microseconds", time.microseconds, "launch_microseconds",
           time.launch_microseconds, "cycles", time.cycles, "clock_hz", time.clock_hz,
           "tflop_per_s", time.tflop_per_s, "gigabytes_per_s", time.gigabytes_per_s, "bound",
           time.bound, "from", time.from, "made_by", time.made_by);
  line.add("registers", uint64_t{time.registers}, "resident_blocks", time.resident, "waves",
           time.waves, "tail", time.tail, "mapped", time.mapped, "recorded", time.recorded, "stuck",
           time.replay.stuck ? 1 : 0);
  JsonLine use;
  for (const auto& each : time.use) use.add(each.resource.c_str(), each.share);
  line.add("use", use);
  Stalls all{};
  for (const Stalls& warp : time.replay.warps) {
    for (size_t s = 0; s < all.size(); ++s) all[s] += warp[s];
  }
  add_stalls(line, all);
}

// Writes NAME0.svg, NAME0.json, NAME1.svg ...: one pair for each launch.
void draw(const clock::KernelTime& time, const std::string& name) {
  static std::atomic<int> number{0};
  const std::string begin = name + std::to_string(number.fetch_add(1));
  std::ofstream svg(begin + ".svg"), trace(begin + ".json");
  svg << clock::picture_svg(time);
  trace << clock::trace_json(time);
  if (!svg.flush() || !trace.flush()) {
    report_note("LATHE_SIM_CLOCK_PICTURE: " + begin + ".svg and .json cannot be written");
  }
}

// Replays holds the times of launches that were replayed already, by what each of them counted: a
// launch that counts the same takes the same time. The line of such a launch lacks roles and lines,
// so that neither the time nor the file grows with the number of launches more than it must.
struct Replays {
  struct Known {
    std::string repeated;  // the line of the next such launch
    ClockTime time;
  };
  std::mutex mutex;
  std::unordered_map<std::string, Known> known;
};

// Never destroyed: worker threads may outlive static destructors.
Replays& replays() {
  static Replays* all = new Replays;
  return *all;
}

std::string key_of(const Grid& grid, const Counters& counters) {
  JsonLine line;
  line.add("kernel", grid.kernel->name);
  line.add_address("module", grid.image->module->digest());
  line.add("grid", grid.grid, "block", grid.block, "cluster", grid.cluster, "shared",
           uint64_t{grid.dynamic_shared_bytes});
  add_counts(line, counters);
  return line.text();
}

Replays::Known write_times(const Grid& grid, const clock::KernelTime& time, int multiprocessors,
                           bool waits_left_out) {
  JsonLine line, repeated;
  add_totals(line, grid, time);
  if (waits_left_out) line.add("waits_left_out", 1);
  repeated = line;
  line.raw("roles", roles_json(time));
  line.raw("lines", lines_json(grid, time));
  repeated.raw("roles", "[]");
  repeated.raw("lines", "[]");
  repeated.add("repeats", 1);
  write_clock(line.text());
  ClockTime known;
  known.microseconds = time.microseconds;
  known.launch_microseconds = time.launch_microseconds;
  known.bound = time.bound;
  known.tail = time.tail;
  const double blocks = static_cast<double>(grid.grid[0]) * grid.grid[1] * grid.grid[2];
  known.waves = blocks / (static_cast<double>(multiprocessors) * std::max(1, time.resident));
  const double busy = std::min(1.0, blocks / multiprocessors);
  for (const auto& each : time.use) {
    known.uses[each.resource] = each.share * (each.resource == "DRAM" ? 1 : busy);
  }
  return {repeated.text(), known};
}

}  // namespace

ClockTime report_clock(const Grid& grid, const Profile& profile, const Outcome& outcome,
                       const Traces& traces, const std::string& picture) {
  const clock::Machine* machine = clock::find_machine(profile.gpu);
  if (machine == nullptr || outcome.error != 0) return {};
  const std::string key = key_of(grid, outcome.counters);
  Replays& all = replays();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.known.find(key);
    if (found != all.known.end()) {
      write_clock(found->second.repeated);
      return found->second.time;
    }
  }
  if (traces.blocks.empty()) return {};
  const clock::KernelTime time =
      clock::time_kernel(grid, profile, outcome.counters, traces.blocks, *machine,
                         {.intervals = picture.empty() ? 0 : kMostIntervals});
  if (!picture.empty()) draw(time, picture);
  const std::lock_guard lock(all.mutex);
  return (all.known[key] =
              write_times(grid, time, machine->multiprocessors, outcome.counters.waits_left_out))
      .time;
}

}  // namespace sim::driver
