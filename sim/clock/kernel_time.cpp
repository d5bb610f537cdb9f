// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "sim/clock/listing.h"
#include "sim/clock/placing.h"
#include "sim/clock/ptx_program.h"
#include "sim/clock/tools.h"
#include "sim/clock/walk/agreement.h"

namespace sim::clock {
namespace {

constexpr double kLeastMapped = 0.9;  // below this a walk through machine code means nothing
constexpr int kParts = 4;

// Blocks that fit on a multiprocessor: registers come in units of 256 for a warp.
int resident_blocks(const Grid& grid, const Profile& profile, uint32_t registers) {
  const uint64_t threads = count_of(grid.block), warps = (threads + 31) / 32;
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

// This returns the share of its instructions that a trace has. A long block is cut, and goes on as
// it began.
double recorded_share(const BlockTrace& trace) {
  if (!trace.cut || trace.executed == 0) return 1;
  return static_cast<double>(trace.recorded) / static_cast<double>(trace.executed);
}

double recorded_share(std::span<const BlockTrace> traces) {
  double recorded = 0, all = 0;
  for (const BlockTrace& trace : traces) {
    const auto executed = static_cast<double>(trace.executed);
    recorded += executed * recorded_share(trace);
    all += executed;
  }
  return all > 0 ? recorded / all : 1;
}

// Returns the first block behind the cluster of another one.
size_t end_of_cluster(const std::vector<BlockTrace>& traces, size_t first) {
  size_t end = first + 1;
  while (end < traces.size() && traces[end].rank != 0) ++end;
  return end;
}

// Cycles of each block: the blocks of a cluster start together, wait for each other on the way, and
// the next cluster needs the places of all, so that each of them takes as long as the cluster. Of
// one that was cut the blocks may have come to different places, as the simulator took turns.
std::vector<double> block_cycles(const std::vector<BlockTrace>& traces,
                                 const ReplayResult& replay) {
  std::vector<BlockTime> times(traces.size());
  for (const BlockTime& block : replay.blocks) times[block.block] = block;
  std::vector<double> cycles(traces.size());
  for (size_t first = 0, end = 0; first < traces.size(); first = end) {
    end = end_of_cluster(traces, first);
    double begin = times[first].begin, over = times[first].end;
    for (size_t k = first; k < end; ++k) {
      begin = std::min(begin, times[k].begin);
      over = std::max(over, times[k].end);
    }
    const double whole =
        (over - begin) / recorded_share(std::span(traces).subspan(first, end - first));
    std::fill(cycles.begin() + static_cast<ptrdiff_t>(first),
              cycles.begin() + static_cast<ptrdiff_t>(end), whole);
  }
  return cycles;
}

// Returns how much of a cluster's walks agrees: its blocks may have different tasks.
double middle_agreement(const SassMap& map, const std::vector<BlockTrace>& traces) {
  size_t first = traces.size() / 2;
  while (first > 0 && traces[first].rank != 0) --first;
  return agreement(map, std::span(traces).subspan(first, end_of_cluster(traces, first) - first));
}

void fill_use(const Machine& machine, KernelTime* out) {
  const ReplayResult& r = out->replay;
  if (r.cycles <= 0) return;
  auto add = [&](const std::string& name, double busy) {
    out->use.push_back({name, busy / r.cycles});
  };
  add("issue", r.issued / kParts);
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

// Returns `count` traces. Long blocks may leave fewer recorded than a multiprocessor holds at a
// time; then those that there are come again.
std::vector<BlockTrace> repeated(const std::vector<BlockTrace>& traces, size_t count) {
  std::vector<BlockTrace> all;
  for (size_t k = 0; k < count; ++k) all.push_back(traces[k % traces.size()]);
  return all;
}

// Cycles of blocks for each instruction that was recorded of them.
double pace(const std::vector<BlockTime>& times, const std::vector<BlockTrace>& traces,
            size_t most) {
  double cycles = 0, instructions = 0;
  for (const BlockTime& time : times) {
    if (time.block >= most) continue;
    cycles += time.end - time.begin;
    instructions += static_cast<double>(traces[time.block].recorded);
  }
  return instructions > 0 ? cycles / instructions : 0;
}

// The blocks of a last wave that is not full have more of L2, and perhaps a multiprocessor, for
// themselves: the last ones of the traces are replayed so.
Tail tail_of(const Machine& machine, const SassMap& map, const std::vector<BlockTrace>& traces,
             const ReplaySetup& full, const ReplayResult& replayed, uint64_t blocks) {
  const auto multiprocessors = static_cast<uint64_t>(machine.multiprocessors);
  const uint64_t places = multiprocessors * static_cast<uint64_t>(full.resident);
  Tail tail;
  tail.blocks = blocks % places;
  ReplaySetup light = full;
  light.resident = static_cast<int>((tail.blocks + multiprocessors - 1) / multiprocessors);
  light.active = static_cast<double>(std::min(tail.blocks, multiprocessors));
  const auto cluster = static_cast<size_t>(full.cluster);
  const size_t last = static_cast<size_t>(full.resident) * cluster,
               wanted = static_cast<size_t>(light.resident) * cluster;
  const bool lighter = light.resident < full.resident || light.active < full.active;
  if (blocks < places || tail.blocks == 0 || !lighter || last >= traces.size()) return tail;
  const std::vector<BlockTrace> few(traces.end() - static_cast<ptrdiff_t>(wanted), traces.end());
  // The last ones of the whole replay had room too.
  const double of_full = pace(replayed.blocks, traces, traces.size() - last);
  const double of_light = pace(replay(machine, map, few, light, 0).blocks, few, few.size());
  if (of_light > 0) tail.speed = std::max(1.0, of_full / of_light);
  return tail;
}

}  // namespace

uint64_t blocks_to_trace(const Grid& grid, const Profile& profile) {
  const auto resident =
      static_cast<uint64_t>(resident_blocks(grid, profile, grid.kernel->registers));
  return std::min(count_of(grid.grid), std::max<uint64_t>(8, 2 * resident));
}

KernelTime time_kernel(const Grid& grid, const Profile& profile, const Counters& counters,
                       const std::vector<BlockTrace>& traces, const Machine& machine,
                       const ReplayOptions& options) {
  Program program;
  program.made_by = "not asked for machine code";
  if (!options.ptx_only && !traces.empty()) {
    std::string why;
    program = machine_program(grid, profile.arch, &why);
    if (program.ops.empty()) program.made_by = why;
  }
  return time_program(std::move(program), grid, profile, counters, traces, machine, options);
}

KernelTime time_program(Program program, const Grid& grid, const Profile& profile,
                        const Counters& counters, const std::vector<BlockTrace>& recorded,
                        const Machine& machine, const ReplayOptions& options) {
  KernelTime out;
  out.kernel = grid.kernel->name;
  out.gpu = machine.gpu;
  if (recorded.empty()) return out;
  out.program = std::move(program);
  std::unique_ptr<SassMap> map;
  if (!out.program.ops.empty()) {
    map = std::make_unique<SassMap>(*grid.kernel->code, out.program);
    out.mapped = middle_agreement(*map, recorded);
    if (out.mapped < kLeastMapped) {
      out.program = {};
      out.program.made_by = "only " + std::to_string(static_cast<int>(100 * out.mapped)) +
                            " % of what the PTX did was found in the machine code";
    }
  }
  if (out.program.ops.empty()) {
    const std::string why = out.program.made_by;
    out.program = ptx_program(*grid.kernel->code, grid.image->module->text(), machine);
    out.program.made_by = why;
    out.program.registers = grid.kernel->registers;
    out.mapped = 1;
    map = std::make_unique<SassMap>(*grid.kernel->code, out.program);
  }
  out.from = out.program.machine_code ? "sass" : "ptx";
  out.made_by = out.program.made_by;
  out.registers = out.program.registers;
  const uint64_t blocks = count_of(grid.grid);
  const auto multiprocessors = static_cast<uint64_t>(machine.multiprocessors);
  out.resident = resident_blocks(grid, profile, out.registers);
  const auto filled = static_cast<int>((blocks + multiprocessors - 1) / multiprocessors);
  ReplaySetup setup;
  setup.resident = std::min(out.resident, filled);
  for (const BlockTrace& trace : recorded)
    setup.cluster = std::max(setup.cluster, static_cast<int>(trace.rank) + 1);
  const size_t least = static_cast<size_t>(setup.resident) * static_cast<size_t>(setup.cluster);
  std::vector<BlockTrace> more;
  if (recorded.size() < least) more = repeated(recorded, least);
  const std::vector<BlockTrace>& traces = more.empty() ? recorded : more;
  setup.active = static_cast<double>(std::min(blocks, multiprocessors));
  const double shared = static_cast<double>(setup.resident) *
                        (grid.kernel->static_shared_bytes + grid.dynamic_shared_bytes + 1024);
  setup.l1_bytes = static_cast<uint32_t>(std::max(16384.0, machine.l1_bytes - shared));
  const auto loaded = static_cast<double>(counters.unique_load_sectors),
             stored = static_cast<double>(counters.unique_store_sectors), touched = loaded + stored;
  const double asked =
      static_cast<double>(counters.global_load.sectors + counters.global_store.sectors +
                          counters.global_atomic.sectors);
  setup.dram_share = asked > 0 ? std::min(1.0, touched / asked) : 0;
  const auto ahead = static_cast<double>(counters.unique_prefetch_sectors);
  setup.prefetched = loaded > 0 ? std::min(1.0, ahead / loaded) : 0;
  out.replay = replay(machine, *map, traces, setup, options.intervals);
  if (out.replay.stuck && out.program.machine_code) {
    Program none;
    none.made_by = "in the replay of machine code warps waited for each other in vain";
    return time_program(std::move(none), grid, profile, counters, recorded, machine, options);
  }
  const std::vector<double> cycles = block_cycles(traces, out.replay);
  out.recorded = recorded_share(traces);
  const int axis = main_axis(traces, cycles);
  const auto of_axis = along_axis(traces, cycles, axis, grid.grid[axis]);
  const uint64_t places = multiprocessors * static_cast<uint64_t>(setup.resident);
  const Tail tail = tail_of(machine, *map, traces, setup, out.replay, blocks);
  const Placed placed = place(grid, of_axis, axis, places, machine.block_start, tail);
  out.waves = static_cast<double>(blocks) / static_cast<double>(places);
  out.tail = placed.tail;
  // Stores may still be on their way to DRAM when the last block has ended.
  const double dram = machine.dram_bytes_per_second / machine.boost_hz;
  out.cycles = std::max(placed.cycles, 32 * (loaded + stored * machine.dram_store) / dram);
  fill_use(machine, &out);
  out.microseconds = 1e6 * out.cycles / out.clock_hz;
  out.launch_microseconds = 1e6 * machine.launch_seconds;
  out.tflop_per_s = static_cast<double>(counters.tensor_ops) / out.microseconds / 1e6;
  out.gigabytes_per_s = 32 * touched / out.microseconds / 1e3;
  return out;
}

}  // namespace sim::clock
