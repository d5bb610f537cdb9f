// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds vector clocks. An agent is a warp, or an asynchronous engine behind an mbarrier;
// its clock moves on with each of its releases. An agent knows, for each other agent, up to which
// clock that agent's accesses are ordered before its own.
//
// Agents of one cluster have consecutive numbers and a dense vector; what is known of agents of
// other clusters, which takes a synchronisation through global memory, is in a map.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace sim {

// The kind says what the knowledge is about: everything, or only what a fence has shown to the
// asynchronous proxy, in shared or in global memory, or only mbarriers that were initialised.
enum ClockKind { kGenericClock, kSharedProxyClock, kGlobalProxyClock, kInitClock, kClockKinds };

struct Knowledge {
  using Clocks = std::array<uint32_t, kClockKinds>;

  uint32_t base = 0, span = 0;  // the first agent of the cluster, and their greatest number
  std::vector<uint32_t> near[kClockKinds];
  std::unordered_map<uint32_t, Clocks> far;

  void clear(uint32_t first_agent, uint32_t greatest_number);
  bool empty() const { return span == 0 && far.empty(); }
  uint32_t of(ClockKind kind, uint32_t agent) const {
    const uint32_t index = agent - base;
    if (index < near[kind].size()) return near[kind][index];
    if (far.empty()) return 0;
    const auto it = far.find(agent);
    return it == far.end() ? 0 : it->second[kind];
  }
  void raise(ClockKind kind, uint32_t agent, uint32_t clock);
  void join(const Knowledge& other);
  void join(const Knowledge& other, ClockKind kind);
  // This kind learns everything that is known.
  void show(ClockKind kind);

 private:
  uint32_t& at(ClockKind kind, uint32_t agent);
};

}  // namespace sim
