// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/memory.h"

#include <algorithm>

namespace sim::clock {
namespace {

constexpr double kSectorBytes = 32;
constexpr uint64_t kSectorsOfLine = 4;
constexpr double kStoresOfL2 = 4000;  // cycles of DRAM's work

}  // namespace

L1::L1(uint32_t bytes) {
  sets_ = std::max<size_t>(1, bytes / 128 / kWays);
  lines_.resize(sets_ * kWays);
}

bool L1::touch(uint64_t sector) {
  const uint64_t tag = sector / kSectorsOfLine;
  const auto bit = static_cast<uint8_t>(1u << (sector % kSectorsOfLine));
  Line* const set = &lines_[tag * 0x9E3779B97F4A7C15ull % sets_ * kWays];
  Line* oldest = set;
  for (Line* line = set; line != set + kWays; ++line) {
    if (line->tag == tag) {
      const bool there = (line->sectors & bit) != 0;
      line->sectors |= bit;
      line->used = ++now_;
      return there;
    }
    if (line->used < oldest->used) oldest = line;
  }
  *oldest = {tag, ++now_, bit};
  return false;
}

MemorySystem::MemorySystem(const Machine& machine, const Load& load)
    : machine_(machine), load_(load), l1_(load.l1_bytes) {
  const double active = std::max(1.0, load.active);
  l2_share_ = std::min(machine.l2_port, machine.l2_bytes / active);
  dram_share_ = machine.dram_bytes_per_second / machine.boost_hz / active;
}

double MemorySystem::shared(double time, double wavefronts) {
  while (!landings_.empty() && landings_.top().first <= time) {
    shared_.serve(landings_.top().first, landings_.top().second);
    landings_.pop();
  }
  return shared_.serve(time, wavefronts);
}

// DRAM has what nobody of the grid touched before; a request waits for the share of its sectors
// that comes from there.
double MemorySystem::beyond_l1(double time, double sectors, bool load) {
  const double bytes = sectors * kSectorBytes;
  l2_bytes_ += bytes;
  const double over = port_.serve(time, bytes / l2_share_);
  const double missing = bytes * load_.dram_share;
  dram_bytes_ += missing;
  const double fetched = missing > 0 ? dram_.serve(time, missing / dram_share_) : time;
  const double latency = machine_.l2_latency + (machine_.dram_latency - machine_.l2_latency) *
                                                   std::min(1.0, load_.dram_share);
  return load ? std::max(over, fetched) + latency : std::max(over, fetched);
}

double MemorySystem::global(double time, const WarpTrace& trace, const Effect& effect, bool load,
                            bool cached) {
  double lines = 0, missed = 0;
  uint64_t last_line = ~0ull;
  for (uint32_t k = 0; k < effect.runs; ++k) {
    const SectorRun& run = trace.sectors[effect.first_run + k];
    for (uint64_t sector = run.first; sector < run.first + run.count; ++sector) {
      lines += sector / kSectorsOfLine != last_line ? 1 : 0;
      last_line = sector / kSectorsOfLine;
      missed += load && cached && l1_.touch(sector) ? 0 : 1;
    }
  }
  const double looked_up = tags_.serve(time, std::max(1.0, lines));
  if (missed == 0) return looked_up + machine_.l1_latency;
  return beyond_l1(looked_up, missed, load);
}

double MemorySystem::bulk(double time, double bytes, double sectors, bool load) {
  const double sent = tma_.serve(time, std::max(4.0, bytes / machine_.shared_bytes_per_cycle));
  const double passes = bytes / machine_.shared_bytes_per_cycle;
  if (!load) shared_later(sent, passes);
  const double over = beyond_l1(sent, sectors, load);
  if (!load) return over;
  shared_later(over + machine_.tma_latency - passes, passes);
  return over + machine_.tma_latency;
}

double MemorySystem::backlog(double time) const {
  // Stores that DRAM has not taken wait in L2, which has room for many.
  return std::max({0.0, shared_.free - time, tags_.free - time, dram_.free - time - kStoresOfL2});
}

void MemorySystem::fill(Result* result) const {
  result->shared_busy = shared_.busy;
  result->l2_port_busy = port_.busy;
  result->dram_busy = dram_.busy;
  result->l2_bytes = l2_bytes_;
  result->dram_bytes = dram_bytes_;
}

}  // namespace sim::clock
