// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles findings of the race checker: both parties, with their places.
#include <algorithm>
#include <cstdio>

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
  auto triple = [](const uint32_t* v) {
    return "(" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) +
           ")";
  };
  return "block " + triple(p.block) + " thread " + triple(p.thread) + " at PTX line " +
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
  char hex[32];
  std::snprintf(hex, sizeof(hex), "0x%llx", static_cast<unsigned long long>(address));
  const std::string subject = on(now.access) + memory + " address " + hex + " by " + place(now);
  const std::string object = "the " + other.access + " by " + place(other);
  switch (kind) {
    case RaceKind::nc_written:
      return subject + " and " + object +
             ": what is loaded through the read-only cache must not change during the kernel";
    case RaceKind::missing_proxy_fence:
      return subject + " goes through the asynchronous proxy, but no fence.proxy.async follows " +
             object;
    case RaceKind::source_in_flight:
      return subject + " rewrites what the copy by " + place(other) +
             " may still read: nobody has waited for the copy";
    default:
      return subject + " races with " + object + ": nothing orders them; " +
             remedy(now, other, memory[0] == 's');
  }
}

// A finding with its first party and the place of the other.
Finding finding_of(const Launch& launch, const Party& a, const Party& b, uint64_t address,
                   uint32_t bytes) {
  Finding f;
  f.check = "racecheck";
  f.kind = "race";
  f.kernel = launch.grid->kernel->name;
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

}  // namespace

RaceParty race_party(const RaceGrid& grid, const Stamp& s) {
  RaceParty p;
  const Launch& launch = *grid.launch;
  const Function& f = *launch.function;
  const InstInfo& info = f.infos[s.place >> 8];
  uint32_t warp = 0;
  const bool is_warp = grid.find(s.agent, p.block, &warp);
  const uint32_t lane = s.lanes ? static_cast<uint32_t>(__builtin_ctz(s.lanes)) : 0;
  p.warp = warp;
  for (int k = 0; k < 3 && is_warp; ++k) p.thread[k] = launch.tid[k][warp * 32 + lane];
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
  int& seen = grid.reported[{now.place >> 8, other.place >> 8, kind}];
  if (seen >= launch.settings->findings_per_pc) return;
  ++seen;
  const auto offset = static_cast<uint32_t>(address % kGranule);
  const Party a = race_party(grid, slice(now, offset, 1)),
              b = race_party(grid, slice(other, offset, 1));
  Finding f = finding_of(launch, a, b, address, bytes);
  if (proxy) f.check = "asynccheck";
  if (proxy) f.kind = "missing_proxy_fence";
  if (kind == RaceKind::nc_written) f.kind = "nc_written";
  f.text = describe(kind, a, b, shared ? "shared" : "global", address);
  const std::lock_guard lock(launch.mutex);
  launch.findings.push_back(std::move(f));
}

void report_past(RaceGrid& grid, const Stamp& mine, const RaceParty& other,
                 const std::string& kernel, uint64_t address, uint32_t bytes) {
  auto& launch = const_cast<Launch&>(*grid.launch);
  constexpr uint32_t kPastParty = 0xFFFFFF00;  // no instruction of this grid
  int& seen = grid.reported[{mine.place >> 8, kPastParty, RaceKind::race}];
  if (seen >= launch.settings->findings_per_pc) return;
  ++seen;
  const Party a = race_party(grid, slice(mine, static_cast<uint32_t>(address % kGranule), 1));
  Finding f = finding_of(launch, a, other, address, bytes);
  f.text = on(a.access) + "global address " + hex(address) + " by " + place(a) +
           " races with the " + other.access + " by " + place(other) + " of kernel " + kernel +
           ", which may still run: griddepcontrol.wait has to come first";
  const std::lock_guard lock(launch.mutex);
  launch.findings.push_back(std::move(f));
}

}  // namespace sim
