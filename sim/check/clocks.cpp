// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file joins vector clocks.
#include "sim/check/clocks.h"

#include <algorithm>

namespace sim {
namespace {

void join_near(std::vector<uint32_t>* to, const std::vector<uint32_t>& from) {
  if (to->size() < from.size()) to->resize(from.size());
  uint32_t* const d = to->data();
  const uint32_t* const s = from.data();
  for (size_t k = 0; k < from.size(); ++k) d[k] = std::max(d[k], s[k]);
}

}  // namespace

void Knowledge::clear(uint32_t first_agent, uint32_t greatest_number) {
  base = first_agent;
  span = greatest_number;
  for (auto& clocks : near) clocks.clear();
  far.clear();
}

uint32_t& Knowledge::at(ClockKind kind, uint32_t agent) {
  const uint32_t index = agent - base;
  if (index >= span) return far[agent][kind];
  if (index >= near[kind].size()) near[kind].resize(index + 1);
  return near[kind][index];
}

void Knowledge::raise(ClockKind kind, uint32_t agent, uint32_t clock) {
  uint32_t& known = at(kind, agent);
  known = std::max(known, clock);
}

void Knowledge::join(const Knowledge& other) {
  for (int kind = 0; kind < kClockKinds; ++kind) join(other, static_cast<ClockKind>(kind));
}

void Knowledge::join(const Knowledge& other, ClockKind kind) {
  if (empty()) {
    base = other.base;
    span = other.span;
  }
  const auto& from = other.near[kind];
  if (base == other.base) {
    join_near(&near[kind], from);
  } else {
    for (size_t k = 0; k < from.size(); ++k) {
      if (from[k]) raise(kind, static_cast<uint32_t>(other.base + k), from[k]);
    }
  }
  for (const auto& [agent, clocks] : other.far) {
    if (clocks[kind]) raise(kind, agent, clocks[kind]);
  }
}

void Knowledge::show(ClockKind kind) {
  join_near(&near[kind], near[kGenericClock]);
  for (auto& [agent, clocks] : far) clocks[kind] = std::max(clocks[kind], clocks[kGenericClock]);
}

}  // namespace sim
