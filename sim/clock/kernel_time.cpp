// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <unordered_map>

#include "sim/clock/listing.h"
#include "sim/clock/ptx_program.h"
#include "sim/clock/tools.h"

namespace sim::clock {
namespace {

constexpr double kLeastMapped = 0.9;  // below this a walk through machine code means nothing
constexpr int kParts = 4;

uint64_t product(const uint32_t (&size)[3]) { return uint64_t{size[0]} * size[1] * size[2]; }

// Blocks that fit on a multiprocessor: registers come in units of 256 for a warp.
int resident_blocks(const Grid& grid, const Profile& profile, uint32_t registers) {
  const uint64_t threads = product(grid.block), warps = (threads + 31) / 32;
  const uint64_t of_warp = (uint64_t{std::max(registers, 1u)} * 32 + 255) / 256 * 256;
  const uint64_t shared = grid.kernel->static_shared_bytes + grid.dynamic_shared_bytes +
                          static_cast<uint64_t>(profile.shared_reserved);
  auto whole = [](int all, uint64_t each) {
    return static_cast<uint64_t>(all) / std::max<uint64_t>(each, 1);
  };
  const uint64_t most = std::min({static_cast<uint64_t>(profile.blocks_per_multiprocessor),
                                  whole(profile.threads_per_multiprocessor, warps * 32),
                                  whole(profile.registers_per_multiprocessor, of_warp * warps),
                                  whole(profile.shared_per_multiprocessor, shared)});
  return static_cast<int>(std::max<uint64_t>(1, most));
}

uint32_t number_after(const std::string& text, const std::string& words, size_t from) {
  const size_t at = text.find(words, from);
  return at == std::string::npos
             ? 0
             : static_cast<uint32_t>(std::atoi(text.c_str() + at + words.size()));
}

Program machine_program(const Grid& grid, const std::string& arch, std::string* why) {
  const std::string& name = grid.kernel->name;
  const Listing listing = list_machine_code(grid.image->module->text(), arch);
  *why = listing.why;
  if (listing.text.empty()) return {};
  Program program = read_listing(listing.text, name, why);
  program.made_by = listing.made_by;
  const size_t entry = listing.log.find("'" + name + "'");
  program.registers = number_after(listing.log, "Used ", entry == std::string::npos ? 0 : entry);
  return program;
}

// Says whether machine code has the instruction too, whatever its form.
bool moves_data(const Function& f, const Effect& e) {
  const Form& form = f.infos[f.code[e.pc].info].form;
  switch (form.op) {
    case sim::Op::ld:
    case sim::Op::st:
      return e.wavefronts > 0 || e.runs > 0;
    case sim::Op::mma:
    case sim::Op::wgmma:
    case sim::Op::ldmatrix:
    case sim::Op::stmatrix:
    case sim::Op::cp_async:
    case sim::Op::bulk_copy:
    case sim::Op::tensor_copy:
      return true;
    default:
      return false;
  }
}

// Returns the share of the effects of a traced block that a walk through the program meets.
double mapped_share(const Map& map, const BlockTrace& block) {
  double wanted = 0, off = 0;
  for (const WarpTrace& trace : block.warps) {
    std::unordered_map<int, std::pair<double, double>> by_line;  // in PTX, in the walk
    for (const Effect& e : trace.effects) {
      if (!e.missed && moves_data(map.function, e)) by_line[map.line_of[e.pc]].first += 1;
    }
    Walk walk(map, trace);
    for (Walk::Step step = walk.next(); step.op != kNowhere; step = walk.next()) {
      const Op& op = map.program.ops[step.op];
      const bool counts = op.unit == Unit::tensor || op.unit == Unit::wgmma ||
                          op.unit == Unit::shared || op.unit == Unit::copy ||
                          op.unit == Unit::tma || op.unit == Unit::global;
      const auto found = by_line.find(map.line_of_op[step.op]);
      if (counts && found != by_line.end()) found->second.second += 1;
    }
    for (const auto& [line, counts] : by_line) {
      wanted += counts.first;
      off += std::abs(counts.first - counts.second);
    }
  }
  return wanted > 0 ? std::max(0.0, 1 - off / wanted) : 1;
}

// How much of the work of a block depends on an axis of the grid: the correlation of the two.
int main_axis(const std::vector<BlockTrace>& traces, const std::vector<double>& cycles) {
  int best = 0;
  double most = -1;
  const auto n = static_cast<double>(traces.size());
  for (int axis = 0; axis < 3; ++axis) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
    for (size_t k = 0; k < traces.size(); ++k) {
      const double x = traces[k].id[axis], y = cycles[k];
      sx += x, sy += y, sxx += x * x, sxy += x * y, syy += y * y;
    }
    const double vx = n * sxx - sx * sx, vy = n * syy - sy * sy;
    const double r = vx > 0 && vy > 0 ? std::abs(n * sxy - sx * sy) / std::sqrt(vx * vy) : 0;
    if (r > most) most = r, best = axis;
  }
  return best;
}

// Cycles of a block at each coordinate of the axis, between the replayed ones along a line.
std::vector<double> along_axis(const std::vector<BlockTrace>& traces,
                               const std::vector<double>& cycles, int axis, uint32_t size) {
  std::map<uint32_t, std::pair<double, int>> known;
  for (size_t k = 0; k < traces.size(); ++k) {
    auto& [sum, count] = known[traces[k].id[axis]];
    sum += cycles[k];
    ++count;
  }
  std::vector<double> all(size);
  for (uint32_t at = 0; at < size; ++at) {
    const auto above = known.lower_bound(at);
    const auto value = [](auto it) { return it->second.first / it->second.second; };
    if (above == known.begin()) {
      all[at] = value(above);
    } else if (above == known.end()) {
      all[at] = value(std::prev(above));
    } else {
      const auto below = std::prev(above);
      const double part = static_cast<double>(at - below->first) / (above->first - below->first);
      all[at] = value(below) + part * (value(above) - value(below));
    }
  }
  return all;
}

struct Placed {
  double cycles = 0, tail = 0;
};
// Gives the blocks in the order of the grid to the first place that is free.
Placed place(const Grid& grid, const std::vector<double>& of_axis, int axis, uint64_t places,
             double start) {
  const uint64_t blocks = product(grid.grid);
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (uint64_t k = 0; k < std::min(places, blocks); ++k) free.push(0);
  double first_empty = 0, last = 0, work = 0;
  for (uint64_t block = 0; block < blocks; ++block) {
    const uint64_t x = block % grid.grid[0], y = block / grid.grid[0] % grid.grid[1],
                   z = block / grid.grid[0] / grid.grid[1];
    const uint64_t at = axis == 0 ? x : axis == 1 ? y : z;
    const double begin = free.top();
    free.pop();
    free.push(begin + of_axis[at] + (begin > 0 ? start : 0));
    work += of_axis[at];
  }
  first_empty = free.top();
  while (!free.empty()) last = free.top(), free.pop();
  return {last, last > 0 ? 1 - first_empty / last : 0};
}

void fill_use(const Machine& machine, KernelTime* out) {
  const Result& r = out->replay;
  if (r.cycles <= 0) return;
  auto add = [&](const std::string& name, double busy) {
    out->use.push_back({name, busy / r.cycles});
  };
  add("issue", static_cast<double>(r.issued) / kParts);
  for (int unit = 1; unit < kOwnUnits; ++unit) {
    if (r.busy[static_cast<size_t>(unit)] > 0)
      add(kUnitNames[unit], r.busy[static_cast<size_t>(unit)] / kParts);
  }
  add("shared memory", r.shared_busy);
  add("L2 to multiprocessor", r.l2_port_busy);
  add("DRAM", r.dram_busy);
  const auto most =
      std::max_element(out->use.begin(), out->use.end(),
                       [](const auto& a, const auto& b) { return a.share < b.share; });
  out->bound = most->share >= 0.6 ? most->resource : "latency";
  double tensor = 0;
  for (const auto& use : out->use) {
    if (use.resource == "tensor" || use.resource == "wgmma") tensor += use.share;
  }
  out->clock_hz = machine.boost_hz - (machine.boost_hz - machine.loaded_hz) * std::min(1.0, tensor);
}

}  // namespace

uint64_t blocks_to_trace(const Grid& grid, const Profile& profile) {
  const auto resident =
      static_cast<uint64_t>(resident_blocks(grid, profile, grid.kernel->registers));
  return std::min(product(grid.grid), std::max<uint64_t>(8, 2 * resident));
}

KernelTime time_kernel(const Grid& grid, const Profile& profile, const Counters& counters,
                       const std::vector<BlockTrace>& traces, const Machine& machine,
                       const Wish& wish) {
  KernelTime out;
  out.kernel = grid.kernel->name;
  out.gpu = machine.gpu;
  if (traces.empty()) return out;
  std::string why = "not asked for machine code";
  if (!wish.ptx_only) out.program = machine_program(grid, profile.arch, &why);
  std::unique_ptr<Map> map;
  if (!out.program.ops.empty()) {
    map = std::make_unique<Map>(*grid.kernel->code, out.program);
    out.mapped = mapped_share(*map, traces[traces.size() / 2]);
    if (out.mapped < kLeastMapped) {
      why = "only " + std::to_string(static_cast<int>(100 * out.mapped)) +
            " % of what the PTX did was found in the machine code";
      out.program = {};
    }
  }
  if (out.program.ops.empty()) {
    out.program = ptx_program(*grid.kernel->code, grid.image->module->text(), machine);
    out.program.made_by = why;
    out.program.registers = grid.kernel->registers;
    out.mapped = 1;
    map = std::make_unique<Map>(*grid.kernel->code, out.program);
  }
  out.from = out.program.machine_code ? "sass" : "ptx";
  out.made_by = out.program.made_by;
  out.registers = out.program.registers;
  const uint64_t blocks = product(grid.grid);
  const auto multiprocessors = static_cast<uint64_t>(machine.multiprocessors);
  out.resident = resident_blocks(grid, profile, out.registers);
  const auto filled = static_cast<int>((blocks + multiprocessors - 1) / multiprocessors);
  Load load;
  load.resident = std::min(out.resident, filled);
  load.active = static_cast<double>(std::min(blocks, multiprocessors));
  const double shared = static_cast<double>(load.resident) *
                        (grid.kernel->static_shared_bytes + grid.dynamic_shared_bytes + 1024);
  load.l1_bytes = static_cast<uint32_t>(std::max(16384.0, machine.l1_bytes - shared));
  const double touched =
      static_cast<double>(counters.unique_load_sectors + counters.unique_store_sectors);
  const double asked =
      static_cast<double>(counters.global_load.sectors + counters.global_store.sectors +
                          counters.global_atomic.sectors);
  load.dram_share = asked > 0 ? std::min(1.0, touched / asked) : 0;
  out.replay = replay(machine, *map, traces, load, wish.intervals);
  std::vector<double> cycles(traces.size());
  for (const BlockTime& block : out.replay.blocks) cycles[block.block] = block.end - block.begin;
  const int axis = main_axis(traces, cycles);
  const auto of_axis = along_axis(traces, cycles, axis, grid.grid[axis]);
  const uint64_t places = multiprocessors * static_cast<uint64_t>(load.resident);
  const Placed placed = place(grid, of_axis, axis, places, machine.block_start);
  out.waves = static_cast<double>(blocks) / static_cast<double>(places);
  out.tail = placed.tail;
  // Stores may still be on their way to DRAM when the last block has ended.
  const double dram = machine.dram_bytes_per_second / machine.boost_hz;
  out.cycles = std::max(placed.cycles, 32 * touched / dram);
  fill_use(machine, &out);
  out.microseconds = 1e6 * out.cycles / out.clock_hz;
  out.launch_microseconds = 1e6 * machine.launch_seconds;
  out.tflop_per_s = static_cast<double>(counters.tensor_ops) / out.microseconds / 1e6;
  out.gigabytes_per_s = 32 * touched / out.microseconds / 1e3;
  return out;
}

}  // namespace sim::clock
