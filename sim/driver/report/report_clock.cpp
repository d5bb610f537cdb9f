// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file writes what sim/clock says about a launch: LATHE_SIM_CLOCK.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <numeric>

#include "sim/clock/picture.h"
#include "sim/driver/report/json_line.h"
#include "sim/driver/report/report.h"
#include "sim/ptx/code.h"

namespace sim::driver {
namespace {

constexpr size_t kMostLines = 24;
constexpr size_t kMostIntervals = 200'000;  // of a picture
constexpr size_t kLeastWarpsOfRole = 4;     // a warpgroup

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

// Warpgroups of a block, each with why it waited.
std::string roles_json(const clock::Result& replay) {
  std::vector<std::string> out;
  const size_t warps = replay.warps.size();
  const size_t each = warps > kLeastWarpsOfRole ? kLeastWarpsOfRole : std::max<size_t>(warps, 1);
  for (size_t first = 0; first < warps; first += each) {
    Stalls sum{};
    const size_t last = std::min(first + each, warps) - 1;
    for (size_t w = first; w <= last; ++w) {
      for (size_t s = 0; s < sum.size(); ++s) sum[s] += replay.warps[w][s];
    }
    JsonLine role;
    role.add("first_warp", uint64_t{first}, "last_warp", uint64_t{last});
    add_stalls(role, sum);
    out.push_back(role.text());
  }
  return joined(out);
}

}  // namespace

void add_clock(JsonLine& line, const Grid& grid, const clock::KernelTime& time) {
  line.add("kernel", time.kernel);
  line.add_address("module", grid.image->module->digest());
  line.add("gpu", time.gpu, "microseconds", time.microseconds, "launch_microseconds",
           time.launch_microseconds, "cycles", time.cycles, "clock_hz", time.clock_hz,
           "tflop_per_s", time.tflop_per_s, "gigabytes_per_s", time.gigabytes_per_s, "bound",
           time.bound, "from", time.from, "made_by", time.made_by);
  line.add("registers", uint64_t{time.registers}, "resident_blocks", time.resident, "waves",
           time.waves, "tail", time.tail, "mapped", time.mapped, "stuck",
           time.replay.stuck ? 1 : 0);
  JsonLine use;
  for (const auto& each : time.use) use.add(each.resource.c_str(), each.share);
  line.add("use", use);
  Stalls all{};
  for (const Stalls& warp : time.replay.warps) {
    for (size_t s = 0; s < all.size(); ++s) all[s] += warp[s];
  }
  add_stalls(line, all);
  line.raw("roles", roles_json(time.replay));
  line.raw("lines", lines_json(grid, time));
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

void report_clock(const Grid& grid, const Profile& profile, const Outcome& outcome,
                  const Traces& traces, const std::string& picture) {
  const clock::Machine* machine = clock::find_machine(profile.gpu);
  if (machine == nullptr || outcome.error != 0 || traces.blocks.empty()) return;
  const clock::KernelTime time =
      clock::time_kernel(grid, profile, outcome.counters, traces.blocks, *machine,
                         {.intervals = picture.empty() ? 0 : kMostIntervals});
  if (!picture.empty()) draw(time, picture);
  JsonLine line;
  add_clock(line, grid, time);
  write_clock(line);
}

}  // namespace sim::driver
