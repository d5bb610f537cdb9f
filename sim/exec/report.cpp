// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Findings: what the checkers saw, with the place in PTX and in the source. And the look-up of
// allocations, whose failure is the most common finding.
#include <cstdio>

#include "sim/exec/async_marks.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

// Every kind of finding: its name, the check it belongs to, the error its launch ends with (0: the
// launch goes on). In the order of the enumeration.
struct FaultInfo {
  Fault fault;
  const char* name;
  Check check;
  int error;
};
constexpr FaultInfo kFaults[] = {
    {Fault::out_of_bounds, "out_of_bounds", kMemcheck, 700},
    {Fault::misaligned, "misaligned", kMemcheck, 716},
    {Fault::read_only, "read_only", kMemcheck, 700},
    {Fault::uninitialized, "uninitialized", kInitcheck, 0},
    {Fault::wrong_space, "wrong_space", kMemcheck, 717},
    {Fault::inactive_source, "inactive_source", kSynccheck, 0},
    {Fault::divergent, "divergent", kSynccheck, 719},
    {Fault::barrier, "barrier", kSynccheck, 719},
    {Fault::deadlock, "deadlock", kSynccheck, 719},
    {Fault::race, "race", kRacecheck, 0},
    {Fault::trap, "trap", kSynccheck, 719},
    {Fault::assertion, "assertion", kSynccheck, 710},
    {Fault::undefined_value, "undefined_value", kSynccheck, 719},
    {Fault::in_flight, "in_flight", kAsynccheck, 0},
    {Fault::source_overwritten, "source_overwritten", kAsynccheck, 0},
    {Fault::mbarrier, "mbarrier", kSynccheck, 719},
    {Fault::mbarrier_overwritten, "mbarrier_overwritten", kAsynccheck, 719},
    {Fault::transactions, "transactions", kAsynccheck, 0},
    {Fault::cluster_barrier, "cluster_barrier", kSynccheck, 719},
    {Fault::bulk, "bulk_copy", kAsynccheck, 719},
    {Fault::tensor_map, "tensor_map", kAsynccheck, 719},
    {Fault::leaked_group, "leaked_group", kAsynccheck, 0},
    {Fault::registers, "registers", kSynccheck, 719},
    {Fault::dsmem_after_exit, "dsmem_after_exit", kMemcheck, 719},
    {Fault::partial_warp, "partial_warp", kSynccheck, 719},
    {Fault::stack_overflow, "stack_overflow", kMemcheck, 714},
    {Fault::invalid_pc, "invalid_pc", kMemcheck, 718},
    {Fault::partial_warpgroup, "partial_warpgroup", kSynccheck, 719},
    {Fault::warpgroup, "warpgroup", kSynccheck, 0},
    {Fault::descriptor, "descriptor", kAsynccheck, 719},
    {Fault::missing_fence, "missing_fence", kAsynccheck, 0},
    {Fault::register_in_flight, "register_in_flight", kAsynccheck, 0},
    {Fault::division_by_zero, "division_by_zero", kMemcheck, 0},
};

constexpr bool in_order() {
  int k = 0;
  for (const FaultInfo& f : kFaults) {
    if (static_cast<int>(f.fault) != k++) return false;
  }
  return true;
}
static_assert(in_order());

const FaultInfo& info_of(Fault f) { return kFaults[static_cast<int>(f)]; }
const char* name(Fault f) { return info_of(f).name; }
Check check_of(Fault f) { return info_of(f).check; }
int error_of(Fault f) { return info_of(f).error; }

const char* name(Check c) {
  switch (c) {
    case kInitcheck:
      return "initcheck";
    case kRacecheck:
      return "racecheck";
    case kSynccheck:
      return "synccheck";
    case kAsynccheck:
      return "asynccheck";
    default:
      return "memcheck";
  }
}

const char* name(Space s) {
  switch (s) {
    case Space::global:
      return "global";
    case Space::cluster:
      return "shared::cluster";
    case Space::shared:
      return "shared";
    case Space::local:
      return "local";
    case Space::constant:
      return "constant";
    case Space::param:
      return "parameter";
    default:
      return "generic";
  }
}

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string access_text(const Warp& w, Fault f, uint64_t address, uint32_t bytes, Space space,
                        bool store) {
  const Launch& launch = *w.worker->launch;
  std::string text = std::to_string(bytes) + "-byte " + (store ? "store to " : "load from ") +
                     name(space) + " address " + hex(address);
  switch (f) {
    case Fault::misaligned:
      text += " is not aligned to its size";
      break;
    case Fault::read_only:
      text += ", which is read-only";
      break;
    case Fault::uninitialized:
      text += " reads bytes that nobody wrote";
      break;
    default:
      text += " is out of bounds";
      break;
  }
  if (space == Space::global || space == Space::constant) {
    text += ": " + launch.memory->nearest(address);
  } else if (space == Space::shared) {
    text += "; the block has [" + hex(launch.view.shared_begin) + ", " +
            hex(launch.view.shared_bytes) + ")";
  } else if (space == Space::local) {
    text += "; the thread has " + std::to_string(launch.view.depot_bytes) + " bytes";
  }
  return text;
}

std::string barrier_text(uint64_t id, uint32_t threads) {
  return "misuse of barrier " + std::to_string(id) + " with thread count " +
         std::to_string(threads) +
         ": the number must be below 16, the count a multiple of 32 and the same for all, and a "
         "warp arrives once a phase";
}

// What a warp that waits for others waits for.
std::string waits_for(const Warp& w, const Strand& s) {
  const Inst& inst = w.function->code[s.pc];
  if (s.parked == Parked::blocked) return blocked_text(w, inst, s);
  if (s.parked != Parked::barrier) return "lanes of its own warp";
  std::string text = "a barrier";
  for (int k = 0; k < 16; ++k) {
    const Barrier& b = w.block->barriers[k];
    if (!(b.waiting >> w.index & 1)) continue;
    const uint32_t expected = b.expected ? b.expected : w.block->warps - w.block->warps_done;
    text += " (number " + std::to_string(k) + ", " + std::to_string(b.arrived) + " of " +
            std::to_string(expected) + " warps arrived)";
  }
  return text;
}

std::string describe(const Warp& w, Fault f, uint64_t address, uint32_t bytes, Space space,
                     bool store) {
  switch (f) {
    case Fault::inactive_source:
      return "shfl reads a lane that does not take part";
    case Fault::divergent:
      return "lanes wait at a convergent instruction for lanes of their warp that do not come";
    case Fault::barrier:
      return barrier_text(address, bytes);
    case Fault::trap:
      return "trap";
    case Fault::assertion:
      return "a device assertion failed";
    case Fault::partial_warp:
      return "an .aligned instruction that needs all 32 lanes runs with fewer";
    case Fault::stack_overflow:
      return "the stack of " + std::to_string(address) +
             " bytes is used up: " + std::to_string(bytes) +
             " more are needed; the context's stack limit sets its size";
    case Fault::invalid_pc:
      return "a call through " + hex(address) +
             ", which is not the address of a function with these parameters";
    case Fault::division_by_zero:
      return "an integer is divided by zero: the result is not defined";
    case Fault::undefined_value:
      return "index " + std::to_string(address) + " is past the table";
    default:
      return access_text(w, f, address, bytes, space, store);
  }
}

// Appends, unless this instruction has had its share.
void add(Warp& w, const Inst& inst, Fault f, unsigned lane, uint64_t address, uint32_t bytes,
         const std::string& text) {
  Launch& launch = *w.worker->launch;
  const std::lock_guard lock(launch.mutex);
  const Findings::Place place{inst.info, static_cast<int>(f)};
  const InstInfo& info = w.function->infos[inst.info];
  Finding finding;
  finding.check = name(check_of(f));
  finding.kind = name(f);
  finding.text = text + " (" + info.text + ")";
  finding.kernel = launch.grid->kernel->name;
  for (int k = 0; k < 3; ++k) {
    finding.block[k] = w.block->id[k];
    finding.thread[k] = launch.tid[k][w.index * 32 + lane];
  }
  finding.address = address;
  finding.bytes = bytes;
  finding.ptx_line = info.ptx_line;
  const auto file = static_cast<size_t>(info.file);
  if (info.line && file < w.function->files.size()) {
    finding.source = w.function->files[file] + ":" + std::to_string(info.line);
  }
  launch.kept.add(place, w.block->cluster->linear, std::move(finding));
}

bool wanted(Warp& w, const Inst& inst, Fault f) {
  Launch& launch = *w.worker->launch;
  const std::lock_guard lock(launch.mutex);
  return launch.kept.wanted({inst.info, static_cast<int>(f)}, w.block->cluster->linear);
}

}  // namespace

void report(Warp& w, const Inst& inst, Fault f, unsigned lane, uint64_t address, uint32_t bytes,
            Space space, bool store) {
  Launch& launch = *w.worker->launch;
  const int error = error_of(f);
  if (error == 0 && !(launch.settings->check & check_of(f))) return;
  if (f == Fault::assertion && wanted(w, inst, f)) {
    add(w, inst, f, lane, address, bytes, assertion_text(w, inst, lane));
  } else if (wanted(w, inst, f)) {
    add(w, inst, f, lane, address, bytes, describe(w, f, address, bytes, space, store));
  }
  if (error == 0) return;
  w.stop = true;
  launch.fail(w.block->cluster->linear, error);
}

void report_text(Warp& w, const Inst& inst, Fault f, unsigned lane, uint64_t address,
                 uint32_t bytes, const char* text) {
  Launch& launch = *w.worker->launch;
  const int error = error_of(f);
  if (error == 0 && !(launch.settings->check & check_of(f))) return;
  if (wanted(w, inst, f)) add(w, inst, f, lane, address, bytes, text);
  if (error == 0) return;
  w.stop = true;
  launch.fail(w.block->cluster->linear, error);
}

bool check_marks(Warp& w, const Inst& inst, unsigned lane, const Block& block, uint32_t offset,
                 uint32_t bytes, bool store) {
  const uint16_t marks = marks_of(block, offset, bytes);
  const std::string what =
      std::string(store ? "store to" : "load from") + " shared address " + hex(offset);
  if (marks & kMarkInFlight) {
    report_text(w, inst, Fault::in_flight, lane, offset, bytes,
                (what + ": a copy to these bytes is under way; nobody has waited for it").c_str());
  } else if (store && (marks & kMarkBorrowed)) {
    report_text(w, inst, Fault::source_overwritten, lane, offset, bytes,
                (what + ": a copy or product that has not been waited for may still read these "
                        "bytes")
                    .c_str());
  } else if (marks & kMarkMbarrier) {
    report_text(w, inst, Fault::mbarrier_overwritten, lane, offset, bytes,
                (what + ": a live mbarrier is there").c_str());
  } else {
    return true;
  }
  return false;
}

void report_deadlock(Warp& w) {
  const Strand& s = w.strands[0];
  w.pc = s.pc;
  const std::string text = "deadlock: warp " + std::to_string(w.index) + " of block " +
                           std::to_string(w.block->rank) + " of its cluster waits for " +
                           waits_for(w, s);
  report_text(w, w.function->code[s.pc], Fault::deadlock,
              static_cast<unsigned>(__builtin_ctz(s.mask)), 0, 0, text.c_str());
}

bool branch_target(const Warp& w, const Inst& inst, uint32_t index, uint32_t* target) {
  const auto& table = w.function->tables[inst.aux];
  if (index >= table.size()) return false;
  *target = table[index];
  return true;
}

const LaunchView& view(const Worker& worker) { return worker.launch->view; }

Region* find_region(Warp& w, const Inst& inst, uint64_t low, uint64_t high) {
  auto& worker = static_cast<HostWorker&>(*w.worker);
  if (high < low) return nullptr;
  const uint64_t version = worker.launch->memory->version().load();
  if (version != worker.memory_version) {
    for (Region& r : worker.region_by_ordinal) r = Region{};
    worker.memory_version = version;
    worker.recent = nullptr;
  }
  KnownAllocation* k = worker.recent;
  if (!k || low < k->region.base || high > k->region.end) {
    const auto found = worker.launch->memory->find_live(low, high - low);
    if (!found) return nullptr;
    auto& slot = worker.known[found.get()];
    if (!slot) {
      slot = std::make_unique<KnownAllocation>();
      slot->allocation = found;
      const uint64_t sectors = ((found->base + found->bytes) >> 5) - (found->base >> 5) + 1;
      slot->loaded.resize(sectors / 64 + 1);
      slot->stored.resize(sectors / 64 + 1);
      Region& r = slot->region;
      r.base = found->base;
      r.end = found->base + found->bytes;
      r.read_only = found->read_only;
      r.defined = found->defined ? found->defined->data() : nullptr;
      r.loaded = slot->loaded.data();
      r.stored = slot->stored.data();
    }
    k = slot.get();
    worker.recent = k;
  }
  worker.region_by_ordinal[inst.extra] = k->region;
  return &worker.region_by_ordinal[inst.extra];
}

}  // namespace sim
