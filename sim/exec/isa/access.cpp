// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file leads from registers to addresses, and handles the spaces that need little: depots,
// parameters, generic.
#include "sim/exec/isa/access_parts.h"

namespace sim::SIM_ISA {
namespace {

// Serves a thread's depot, and kernel parameters by address.
bool local(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  const LaunchView& launch = view(*w.worker);
  const uint64_t depot = launch.depot_bytes;
  Traffic& counts = use == Use::load ? w.worker->tally.local_load : w.worker->tally.local_store;
  ++counts.requests;
  counts.bytes += static_cast<uint64_t>(__builtin_popcount(exec)) * size;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const uint64_t x = a.address[l];
    if (x > depot || size > depot - x) {
      return fault(w, i, Fault::out_of_bounds, l, a, size, Space::local, use);
    }
    if (x & (size - 1)) return fault(w, i, Fault::misaligned, l, a, size, Space::local, use);
    const uint64_t at = static_cast<uint64_t>(l) * depot + x;
    a.pointer[l] = w.local + at;
    if (!launch.check_defined) continue;
    if (use != Use::store && !range_defined(w.local_defined, at, size)) {
      fault(w, i, Fault::uninitialized, l, a, size, Space::local, use);
    }
    if (use != Use::load) define_private(w.local_defined, at, size);
  }
  a.dense = false;
  return true;
}

bool param(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  const LaunchView& launch = view(*w.worker);
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const uint64_t x = a.address[l] - kKernelParams;
    if (x > launch.param_bytes || size > launch.param_bytes - x) {
      return fault(w, i, Fault::out_of_bounds, l, a, size, Space::param, use);
    }
    if (x & (size - 1)) return fault(w, i, Fault::misaligned, l, a, size, Space::param, use);
    if (use != Use::load) return fault(w, i, Fault::read_only, l, a, size, Space::param, use);
    a.pointer[l] = const_cast<uint8_t*>(launch.params) + x;
  }
  a.dense = false;
  return true;
}

Space window_of(uint64_t address) {
  const Windows& n = windows();
  if (address < n.shared || address >= n.end) return Space::global;
  if (address < n.local) return Space::shared;
  return address < n.param ? Space::local : Space::param;
}

bool generic(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  uint32_t left = exec;
  while (left) {
    Space space = window_of(a.address[__builtin_ctz(left)]);
    uint32_t same = 0;
    for (uint32_t rest = left; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      if (window_of(a.address[l]) == space) same |= 1u << l;
    }
    const uint64_t base = space == Space::shared  ? windows().shared
                          : space == Space::local ? windows().local
                          : space == Space::param ? windows().param
                                                  : 0;
    if (space == Space::shared && w.block->cluster->size > 1) space = Space::cluster;
    if (same == exec) {
      for (int l = 0; l < 32; ++l) a.address[l] -= base;
      return prepare_addresses(a, w, i, exec, size, space, use);
    }
    Access part;
    for (int l = 0; l < 32; ++l) part.address[l] = a.address[l] - base;
    if (!prepare_addresses(part, w, i, same, size, space, use)) return false;
    for (uint32_t rest = same; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      a.pointer[l] = part.pointer[l];
    }
    left &= ~same;
  }
  a.dense = a.shared = false;
  return true;
}

}  // namespace

bool prepare_addresses(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
                       Use use) {
  switch (space) {
    case Space::shared:
      return prepare_shared(a, w, i, exec, size, use);
    case Space::cluster:
      return prepare_cluster(a, w, i, exec, size, use);
    case Space::local:
      return local(a, w, i, exec, size, use);
    case Space::param:
      if (a.address[__builtin_ctz(exec)] < kKernelParams) return local(a, w, i, exec, size, use);
      return param(a, w, i, exec, size, use);
    case Space::generic:
      return generic(a, w, i, exec, size, use);
    default:
      return prepare_global(a, w, i, exec, size, space, use);
  }
}

bool prepare(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
             Use use) {
  const auto offset = static_cast<uint64_t>(i.imm);
  if (i.b) {
    const uint64_t* base = cells<uint64_t>(w, i.a);
    for (int l = 0; l < 32; ++l) a.address[l] = base[l] + offset;
  } else {
    const uint32_t* base = cells<uint32_t>(w, i.a);
    for (int l = 0; l < 32; ++l) a.address[l] = base[l] + static_cast<uint32_t>(offset);
  }
  return prepare_addresses(a, w, i, exec, size, space, use);
}

}  // namespace sim::SIM_ISA
