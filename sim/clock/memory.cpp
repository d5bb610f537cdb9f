// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/memory.h"

#include <algorithm>
#include <cmath>

namespace sim::clock {
namespace {

constexpr double kSectorBytes = 32;
constexpr uint64_t kSectorsOfLine = 4;
constexpr uint64_t kLinesOfPage = 32;
constexpr double kStoresOfL2 = 4000;       // cycles of DRAM's work
constexpr double kLately = 2000;           // cycles of a stretch
constexpr double kMissedTogether = 65536;  // bytes

}  // namespace

L1::L1(uint32_t bytes) {
  sets_ = std::max<size_t>(1, bytes / 128 / kWays);
  lines_.resize(sets_ * kWays);
}

uint64_t L1::line_of(uint64_t sector) {
  const uint64_t line = sector / kSectorsOfLine, page = line / kLinesOfPage;
  if (page != recent_) {
    recent_ = page;
    recent_number_ = pages_.try_emplace(page, pages_.size()).first->second;
  }
  return recent_number_ * kLinesOfPage + line % kLinesOfPage;
}

bool L1::touch(uint64_t sector) {
  const uint64_t tag = line_of(sector);
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

MemorySystem::MemorySystem(const Machine& machine, const ReplaySetup& setup)
    : machine_(machine), setup_(setup), l1_(setup.l1_bytes) {
  const double active = std::max(1.0, setup.active);
  l2_share_ = std::min(machine.l2_port, machine.l2_bytes / active);
  dram_share_ = machine.dram_bytes_per_second / machine.boost_hz / active;
}

double MemorySystem::shared(double time, double wavefronts) {
  while (!bulk_.empty() && bulk_.top().first <= time) {
    shared_.serve(bulk_.top().first, bulk_.top().second);
    bulk_.pop();
  }
  return shared_.serve(time, wavefronts);
}

double MemorySystem::fill(double time, double wavefronts) {
  return std::max(time, fills_.serve(time - wavefronts, wavefronts));
}

// From L2 or from DRAM, on average.
double MemorySystem::latency(double dram_share) const {
  return machine_.l2_latency +
         (machine_.dram_latency - machine_.l2_latency) * std::min(1.0, dram_share);
}

// DRAM brings what was asked for ahead in the time that loads and stores leave it.
void MemorySystem::bring(double until) {
  for (Ahead& ahead : ahead_) {
    if (ahead.cycles <= 0) continue;
    const double begin = std::max(dram_.free, ahead.asked);
    if (begin >= until) return;
    const double work = std::min(ahead.cycles, until - begin);
    ahead.over = dram_.serve(begin, work) + machine_.dram_latency - machine_.l2_latency;
    ahead.cycles -= work;
  }
}

double MemorySystem::dram(double time, double cycles) {
  bring(time);
  return dram_.serve(time, cycles);
}

double MemorySystem::prefetch(double time, double sectors) {
  const double bytes = sectors * kSectorBytes, sent = tma_.serve(time, 4);
  dram_bytes_ += bytes * setup_.dram_share;
  ahead_.push_back({sent, bytes * setup_.dram_share / dram_share_, bytes});
  return sent;
}

// Says whether a load finds what was asked for ahead. A block that nobody is before finds nothing
// of what it loads, so the loads that are not found come in a row.
bool MemorySystem::is_found(double bytes) {
  if (setup_.prefetched <= 0) return false;
  if (missing_ <= 0) {
    unasked_ += bytes * (1 - setup_.prefetched);
    if (unasked_ >= kMissedTogether) missing_ = unasked_, unasked_ = 0;
  }
  if (missing_ <= 0) return true;
  missing_ -= bytes;
  return false;
}

// Returns when so many bytes are in L2 that were asked for ahead. Another block asked for them, so
// nothing tells which they are: loads come in the order of the requests. A load that comes too
// early waits for DRAM as every other load does. The first blocks of a replay load what blocks
// asked for that nobody recorded.
double MemorySystem::load_ahead(double time, double bytes) {
  double over = time;
  bring(time);
  while (bytes > 0 && !ahead_.empty()) {
    Ahead& ahead = ahead_.front();
    if (ahead.cycles > 0) {
      ahead.over = dram_.serve(time, ahead.cycles) + machine_.dram_latency - machine_.l2_latency;
    }
    ahead.cycles = 0;
    over = std::max(over, ahead.over);
    const double taken = std::min(bytes, ahead.bytes);
    bytes -= taken, ahead.bytes -= taken;
    if (ahead.bytes <= 0) ahead_.pop_front();
  }
  return over;
}

double Lately::share(double time) {
  if (time >= begin_ + kLately) {
    before_ = time < begin_ + 2 * kLately ? busy_ : 0;
    busy_ = 0;
    begin_ = time - std::fmod(time, kLately);
  }
  const double under_way = std::clamp((time - begin_) / kLately, 0.0, 1.0);
  return std::min(1.0, ((1 - under_way) * before_ + busy_) / kLately);
}

// DRAM has what nobody of the grid touched before; a request waits for the share of its sectors
// that comes from there. DRAM reads and writes in turns, as each change costs it time: stores are
// gathered and written together, and a load that comes meanwhile waits for the end of their turn.
// As many loads do as DRAM has written for a share of the time.
double MemorySystem::beyond_l1(double time, double sectors, bool load) {
  const double bytes = sectors * kSectorBytes;
  l2_bytes_ += bytes;
  const double over = port_.serve(time, bytes / l2_share_);
  const bool found = load && is_found(bytes);
  const double share = found ? 0 : setup_.dram_share;
  const double missing = bytes * share * (load ? 1 : machine_.dram_store);
  dram_bytes_ += bytes * share;
  const double cycles = missing / dram_share_;
  double fetched = missing > 0 ? dram(time, cycles) : time;
  if (found) fetched = std::max(fetched, load_ahead(time, bytes * setup_.dram_share));
  const double writing = stores_.share(time);
  if (!load) {
    stores_.add(cycles);
    return std::max(over, fetched);
  }
  const double turn = machine_.dram_turn * writing * std::min(1.0, share);
  return std::max(over, fetched) + latency(share) + turn;
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
  const double passes = bytes / machine_.shared_bytes_per_cycle;
  const double cycles = std::max(4.0, passes);
  const double sent = tma_.serve(time, cycles);
  if (!load) bulk_.emplace(sent, passes);
  // The engine asks for line after line: the first are on their way while it asks for the last.
  const double over = std::max(sent, beyond_l1(sent - cycles, sectors, load));
  if (!load) return over;
  bulk_.emplace(over + machine_.tma_latency - passes, passes);
  return over + machine_.tma_latency;
}

double MemorySystem::send(double time, double bytes) {
  const double passes = bytes / machine_.shared_bytes_per_cycle;
  shared(time, passes);
  return tma_.serve(time, std::max(4.0, bytes / machine_.l2_port));
}

// The bytes come over the same port as those that this multiprocessor asked for itself.
double MemorySystem::receive(double time, double bytes) {
  const double over =
      port_.serve(time, bytes / l2_share_) + latency(setup_.dram_share) + machine_.tma_latency;
  bulk_.emplace(over, bytes / machine_.shared_bytes_per_cycle);
  return over;
}

double MemorySystem::backlog(double time) const {
  // Stores that DRAM has not taken wait in L2, which has room for many.
  return std::max({0.0, shared_.free - time, tags_.free - time, dram_.free - time - kStoresOfL2});
}

void MemorySystem::add_to(ReplayResult* result, double share) const {
  result->shared_busy += share * shared_.busy;
  result->l2_port_busy += share * port_.busy;
  result->dram_busy += share * dram_.busy;
  result->l2_bytes += share * l2_bytes_;
  result->dram_bytes += share * dram_bytes_;
}

}  // namespace sim::clock
