// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles findings: what the checkers saw, with the place in PTX and in the source.
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

// A Trait says what else is true of a kind. `checked`: the kernel could go on, so that without any
// check nothing happens. `borne`: PTX forbids it, but the hardware does what the program means.
enum class Trait : uint8_t { none, checked, borne };

// Every kind of finding: its name, the check it belongs to, the error its launch ends with (0: the
// launch goes on). They are in the order of the enumeration.
struct FaultInfo {
  Fault fault;
  const char* name;
  Check check;
  int error;
  Trait trait = Trait::none;
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
    {Fault::undefined_value, "undefined_value", kMemcheck, 719},
    {Fault::in_flight, "in_flight", kAsynccheck, 0},
    {Fault::source_overwritten, "source_overwritten", kAsynccheck, 0},
    {Fault::mbarrier, "mbarrier", kSynccheck, 719},
    {Fault::mbarrier_overwritten, "mbarrier_overwritten", kAsynccheck, 0, Trait::borne},
    {Fault::transactions, "transactions", kAsynccheck, 0},
    {Fault::cluster_barrier, "cluster_barrier", kSynccheck, 719},
    {Fault::bulk, "bulk_copy", kAsynccheck, 719},
    {Fault::tensor_map, "tensor_map", kAsynccheck, 719},
    {Fault::leaked_group, "leaked_group", kAsynccheck, 0},
    {Fault::registers, "registers", kSynccheck, 719, Trait::checked},
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
    {Fault::undefined_register, "undefined_register", kRegcheck, 0},
    {Fault::left_barrier, "left_barrier", kSynccheck, 0},
    {Fault::invalid_free, "invalid_free", kMemcheck, 719},
    {Fault::member_mask, "divergent", kSynccheck, 719, Trait::checked},
    {Fault::mbarrier_rule, "mbarrier", kSynccheck, 719, Trait::checked},
    {Fault::late_arrival, "dsmem_after_exit", kMemcheck, 719, Trait::checked},
    {Fault::repeated_arrive, "barrier", kSynccheck, 719, Trait::checked},
    {Fault::unobserved_phase, "unobserved_phase", kSynccheck, 0, Trait::borne},
    {Fault::repeated_init, "repeated_init", kSynccheck, 0, Trait::borne},
    {Fault::narrow_scope, "narrow_scope", kRacecheck, 0, Trait::borne},
    {Fault::unread_source, "unread_source", kAsynccheck, 0, Trait::borne},
    {Fault::tile_off_repeat, "tile_off_repeat", kAsynccheck, 0, Trait::borne},
    {Fault::unbounded_registers, "unbounded_registers", kSynccheck, 0},
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
  return c == kInitcheck    ? "initcheck"
         : c == kRacecheck  ? "racecheck"
         : c == kSynccheck  ? "synccheck"
         : c == kAsynccheck ? "asynccheck"
         : c == kRegcheck   ? "regcheck"
                            : "memcheck";
}

// In the order of Space.
constexpr const char* kSpaceNames[] = {"generic",  "global",    "shared",         "local",
                                       "constant", "parameter", "shared::cluster"};
const char* name(Space s) { return kSpaceNames[static_cast<int>(s)]; }

// Addresses below this are what null pointers and offsets from them look like.
constexpr uint64_t kNullPage = 4096;

// Returns the space that a generic address is in, by its window.
const char* space_of(uint64_t address) {
  const Windows& n = windows();
  if (address < n.shared || address >= n.end) return "global";
  if (address < n.local) return "shared";
  return address < n.param ? "local" : "parameter";
}

// Says what the address of an access is near to, or how large its space is.
std::string surroundings(const Warp& w, Fault f, uint64_t address, Space space) {
  const Launch& launch = *w.worker->launch;
  switch (space) {
    case Space::global:
    case Space::constant: {
      if (address < kNullPage) return ": a null pointer, or a small offset from one";
      const auto held = launch.memory->find(address);
      const bool reaches = f == Fault::out_of_bounds && held && !held->freed;
      return ": " + std::string(reaches ? "it begins at " : "") + launch.memory->nearest(address);
    }
    case Space::shared:
      return "; the block has [" + hex(launch.view.shared_begin) + ", " +
             hex(launch.view.shared_bytes) + ")";
    case Space::cluster:
      return "; the cluster has " + std::to_string(w.block->cluster->size) + " blocks, each [" +
             hex(launch.view.shared_begin) + ", " + hex(launch.view.shared_bytes) + ")";
    case Space::local:
      return "; the thread has " + std::to_string(launch.view.depot_bytes) + " bytes";
    case Space::param:
      return "; the kernel's parameters take " + std::to_string(launch.view.param_bytes) + " bytes";
    default:
      return "";
  }
}

std::string access_text(const Warp& w, const Inst& inst, Fault f, uint64_t address, uint32_t bytes,
                        Space space, bool store) {
  const Op op = w.function->infos[inst.info].form.op;
  const bool atomic = op == Op::atom || op == Op::red;
  const uint64_t shown = space == Space::param ? address - windows().param : address;
  std::string text = std::to_string(bytes) +
                     (atomic  ? "-byte atomic on "
                      : store ? "-byte store to "
                              : "-byte load from ") +
                     name(space);
  if (f == Fault::wrong_space) {
    return text + " memory through " + hex(address) + ", which is an address of " +
           space_of(address) + " memory";
  }
  text += " address " + hex(shown);
  switch (f) {
    case Fault::misaligned:
      text += " is misaligned: it must be a multiple of " + std::to_string(bytes);
      break;
    case Fault::read_only:
      text += ", which is read-only";
      break;
    case Fault::uninitialized:
      text += atomic ? " begins with bytes that nobody wrote" : " reads bytes that nobody wrote";
      break;
    default:
      text += " is out of bounds";
      break;
  }
  return text + surroundings(w, f, address, space);
}

std::string describe(const Warp& w, const Inst& inst, Fault f, uint64_t address, uint32_t bytes,
                     Space space, bool store) {
  switch (f) {
    case Fault::inactive_source:
      return "shfl reads the value of lane " + std::to_string(address) +
             ", which does not take part: it has exited, or the mask does not name it";
    case Fault::divergent:
      return divergent_text(w);
    case Fault::member_mask:
      return "a mask of " + hex(address) + " without the lane that runs the instruction";
    case Fault::dsmem_after_exit:
      return std::string(store ? "store to" : "load from") + " the shared memory of block " +
             std::to_string(address >> kRankShift) + " of the cluster, which has ended";
    case Fault::trap:
      return "the kernel ran into a trap";
    case Fault::assertion:
      return "a device assertion failed";
    case Fault::partial_warp:
      return "this instruction needs all 32 lanes; of warp " + std::to_string(w.index) + ", " +
             (w.live ? lanes_text(w.live) : "none") + " are left";
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
      return "brx with index " + std::to_string(address) + " and a table of " +
             std::to_string(w.function->tables[inst.aux].size()) + " targets";
    default:
      return access_text(w, inst, f, address, bytes, space, store);
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
  if (info_of(f).trait == Trait::borne) {
    finding.text += "; PTX does not allow this, today's hardware bears it";
  }
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

// Says whether a finding of this kind is to be told, and ends its launch if it has an error.
bool counts(const Launch& launch, Fault f) {
  const FaultInfo& info = info_of(f);
  const uint32_t check = launch.settings->check;
  if (info.trait == Trait::checked && check == kCheckNone) return false;
  return info.error != 0 || (check & info.check);
}

}  // namespace

void report(Warp& w, const Inst& inst, Fault f, unsigned lane, uint64_t address, uint32_t bytes,
            Space space, bool store) {
  // A generic address of another space is no wild one.
  const uint64_t low = windows().shared, high = windows().end;
  if (f == Fault::out_of_bounds && space == Space::global && address >= low && address < high) {
    f = Fault::wrong_space;
  }
  Launch& launch = *w.worker->launch;
  const int error = error_of(f);
  if (!counts(launch, f)) return;
  if (f == Fault::assertion && wanted(w, inst, f)) {
    add(w, inst, f, lane, address, bytes, assertion_text(w, inst, lane));
  } else if (wanted(w, inst, f)) {
    add(w, inst, f, lane, address, bytes, describe(w, inst, f, address, bytes, space, store));
  }
  if (error == 0) return;
  w.stop = true;
  launch.fail(w.block->cluster->linear, error);
}

void report_text(Warp& w, const Inst& inst, Fault f, unsigned lane, uint64_t address,
                 uint32_t bytes, const char* text) {
  Launch& launch = *w.worker->launch;
  const int error = error_of(f);
  if (!counts(launch, f)) return;
  if (wanted(w, inst, f)) add(w, inst, f, lane, address, bytes, text);
  if (error == 0) return;
  w.stop = true;
  launch.fail(w.block->cluster->linear, error);
}

const Form& form_of(const Warp& w, const Inst& inst) { return w.function->infos[inst.info].form; }

bool branch_target(const Warp& w, const Inst& inst, uint32_t index, uint32_t* target) {
  const auto& table = w.function->tables[inst.aux];
  if (index >= table.size()) return false;
  *target = table[index];
  return true;
}

const LaunchView& view(const Worker& worker) { return worker.launch->view; }

}  // namespace sim
