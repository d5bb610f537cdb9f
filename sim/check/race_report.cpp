// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles findings of the race checker: both parties, with their places.
#include <algorithm>

#include "sim/check/race_shadow.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

using Party = RaceParty;

const char* access_of(const Form& f, bool async) {
  if (async) return "asynchronous access";
  if (f.op == Op::ld) return "load";
  if (f.op == Op::atom || f.op == Op::red) return "atomic";
  if (f.op == Op::st) return "store";
  if (f.op == Op::cp_async) return "copy";
  const bool mbarrier = f.op >= Op::mbarrier_init && f.op <= Op::mbarrier_pending_count;
  return mbarrier ? "mbarrier operation" : "access";
}

std::string place(const Party& p) {
  if (p.line == 0) return "";
  auto triple = [](const uint32_t* v) {
    return "(" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) +
           ")";
  };
  return " by block " + triple(p.block) + " thread " + triple(p.thread) + " at PTX line " +
         std::to_string(p.line) + " (" + p.text + ")";
}

std::string on(const std::string& access) {
  return access + (access == "load" ? " from " : access == "store" ? " to " : " on ");
}

// Says what could have ordered the two accesses.
std::string remedy(const Party& a, const Party& b, bool shared) {
  if (a.strong && b.strong) return "the scope of one does not include the other";
  const bool same_block = std::equal(a.block, a.block + 3, b.block);
  if (same_block && a.warp == b.warp) return "lanes of one warp need a bar.warp.sync between them";
  if (same_block) return "warps of one block need a barrier, or a release and an acquire";
  if (shared) return "blocks of a cluster need barrier.cluster, or a release and an acquire";
  return "blocks need a release and an acquire, of gpu scope";
}

std::string describe(RaceKind kind, const Party& now, const Party& other, const char* memory,
                     uint64_t address) {
  const std::string subject = on(now.access) + memory + " address " + hex(address) + place(now);
  const std::string object = "the " + other.access + place(other);
  switch (kind) {
    case RaceKind::nc_written:
      return subject + " and " + object +
             ": what is loaded through the read-only cache must not change during the kernel";
    case RaceKind::missing_proxy_fence:
      return subject + " goes through the asynchronous proxy, but no fence.proxy.async follows " +
             object;
    case RaceKind::source_in_flight:
      return subject + " rewrites what the copy" + place(other) +
             " may still read: nobody has waited for the copy";
    default:
      return subject + " races with " + object + ": nothing orders them; " +
             remedy(now, other, memory[0] == 's');
  }
}

}  // namespace

std::string race_other_text(const RaceLaunch& other, const RaceParty& party) {
  const bool kernel = other.function != nullptr;
  return party.access + place(party) + (kernel ? " of kernel " + other.name : "");
}

std::string race_remedy(const LaunchOrder& mine, const RaceLaunch& other) {
  if (mine.line != other.order.line) {
    return "nothing orders the two; work of different streams needs an event between them";
  }
  return mine.number > other.order.number
             ? "it may still run, so griddepcontrol.wait has to come first"
             : "it may have started already, so its griddepcontrol.wait has to come first";
}

Finding race_finding(const std::string& kernel, const RaceParty& a, const RaceParty& b,
                     uint64_t address, uint32_t bytes) {
  Finding f;
  f.check = "racecheck";
  f.kind = "race";
  f.kernel = kernel;
  for (int k = 0; k < 3; ++k) {
    f.block[k] = a.block[k];
    f.thread[k] = a.thread[k];
    f.other_block[k] = b.block[k];
    f.other_thread[k] = b.thread[k];
  }
  f.address = address;
  f.bytes = bytes;
  f.ptx_line = a.line;
  f.source = a.source;
  f.other_ptx_line = b.line;
  f.other_source = b.source;
  f.other_access = b.access;
  return f;
}

RaceParty race_party(const RaceLaunch& launch, const Stamp& s) {
  RaceParty p;
  if (!launch.function) {
    p.access = launch.name;
    return p;
  }
  const Function& f = *launch.function;
  const InstInfo& info = f.infos[s.place >> 8];
  uint32_t warp = 0;
  const bool is_warp = launch.find(s.agent, p.block, &warp);
  const uint32_t lane = s.lanes ? static_cast<uint32_t>(__builtin_ctz(s.lanes)) : 0;
  p.warp = warp;
  uint32_t thread = warp * 32 + lane;
  for (int k = 0; k < 3 && is_warp; ++k) {
    p.thread[k] = thread % launch.block[k];
    thread /= launch.block[k];
  }
  p.line = info.ptx_line;
  if (info.line && static_cast<size_t>(info.file) < f.files.size()) {
    p.source = f.files[static_cast<size_t>(info.file)] + ":" + std::to_string(info.line);
  }
  p.strong = info.form.op == Op::atom || info.form.op == Op::red ||
             info.form.has(kVolatile | kRelaxed | kAcquire | kRelease | kAcqRel);
  p.access = access_of(info.form, s.place & kAsyncAccess);
  p.text = info.text;
  return p;
}

void report_race(RaceGrid& grid, RaceKind kind, const Stamp& now, const Stamp& other,
                 uint64_t address, uint32_t bytes, bool shared) {
  auto& launch = const_cast<Launch&>(*grid.launch);
  const bool proxy = kind == RaceKind::missing_proxy_fence;
  if (!(launch.settings->check & (proxy ? kAsynccheck : kRacecheck))) return;
  const RaceLaunch* from = grid.self.get();
  if (!shared && !grid.is_own(other.agent)) from = grid.world->launch_of(other.agent);
  if (!from) return;
  int& seen = grid.reported[{now.place >> 8, other.place >> 8, kind, from}];
  if (seen >= launch.settings->findings_per_pc) return;
  ++seen;
  const auto offset = static_cast<uint32_t>(address % kGranule);
  const Party a = race_party(*grid.self, slice(now, offset, 1)),
              b = race_party(*from, slice(other, offset, 1));
  Finding f = race_finding(launch.grid->kernel->name, a, b, address, bytes);
  if (proxy) f.check = "asynccheck";
  if (proxy) f.kind = "missing_proxy_fence";
  if (kind == RaceKind::nc_written) f.kind = "nc_written";
  if (from == grid.self.get()) {
    f.text = describe(kind, a, b, shared ? "shared" : "global", address);
  } else {
    f.other_kernel = from->name;
    f.text = on(a.access) + "global address " + hex(address) + place(a) + " races with the " +
             race_other_text(*from, b) + ": " + race_remedy(grid.self->order, *from);
  }
  const std::lock_guard lock(launch.mutex);
  launch.findings.push_back(std::move(f));
}

}  // namespace sim
