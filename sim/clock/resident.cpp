// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/resident.h"

namespace sim::clock {
BlockRun::BlockRun(const SassMap& map, const BlockTrace& trace, uint32_t number)
    : index(number), rank(trace.rank) {
  for (uint32_t k = 0; k < trace.warps.size(); ++k) {
    warps.push_back(std::make_unique<WarpRun>(map, trace.warps[k]));
    warps.back()->block = this;
    warps.back()->index = k;
  }
}

void BlockRun::release(double time, ReplayResult* result) {
  for (Barrier& b : barriers) {
    const size_t wanted = b.expected ? b.expected : warps.size() - ended;
    if (b.arrived == 0 || b.arrived < wanted) continue;
    for (WarpRun* w : b.waiting) {
      const double cycles = time - w->blocked_since;
      result->warps[w->index][static_cast<size_t>(Stall::barrier)] += cycles;
      w->blocked = false;
      w->ready = std::max(w->ready, time);
      w->last_issue = time - 1;
      w->asked = 0;
    }
    cluster->changed |= !b.waiting.empty();
    b = {};
  }
}

ClusterRun::ClusterRun(const SassMap& map, const BlockTrace* traces, size_t size, uint32_t number,
                       int at)
    : slot(at) {
  for (size_t k = 0; k < size; ++k) {
    blocks.push_back(std::make_unique<BlockRun>(map, traces[k], number + static_cast<uint32_t>(k)));
    blocks.back()->cluster = this;
    live += traces[k].warps.size();
    for (const auto& warp : blocks.back()->warps) expect(*warp);
  }
}

// A walk may miss an instruction of the trace; a phase does not wait for what no walk will do.
void ClusterRun::expect(const WarpRun& warp) {
  if (warp.trace->signals.empty()) return;
  std::vector<bool> met(warp.trace->effects.size());
  Walk ahead = warp.walk;
  for (Walk::Step step = ahead.next(); step.op != kNowhere; step = ahead.next()) {
    if (!step.effect || step.effect->signals == 0) continue;
    const auto at = static_cast<size_t>(step.effect - warp.trace->effects.data());
    if (met[at]) continue;
    met[at] = true;
    for (uint32_t k = 0; k < step.effect->signals; ++k) {
      const Signal& signal = warp.trace->signals[step.effect->first_signal + k];
      ++phases[{signal.barrier, signal.phase}].left;
    }
  }
}

void ClusterRun::arrive(double time, double latency) {
  if (++arrived_ >= live) complete(time + latency);
}

void ClusterRun::leave(double time, double latency) {
  --live;
  if (arrived_ > 0 && arrived_ >= live) complete(time + latency);
}

void ClusterRun::complete(double time) {
  barriers_over.push_back(time);
  arrived_ = 0;
  changed = true;
}

}  // namespace sim::clock
