// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/resident.h"

namespace sim::clock {
namespace {

bool waits_for_phase(const Function& f, const Effect& e) {
  const sim::Op op = f.infos[f.code[e.pc].info].form.op;
  return op == sim::Op::mbarrier_try_wait || op == sim::Op::mbarrier_test_wait;
}

bool of_block(const Function& f, const Effect& e) {
  return f.infos[f.code[e.pc].info].form.op == sim::Op::bar;
}

}  // namespace

BlockRun::BlockRun(const Map& map, const BlockTrace& trace, uint32_t number, int at)
    : index(number), slot(at) {
  for (uint32_t k = 0; k < trace.warps.size(); ++k) {
    warps.push_back(std::make_unique<WarpRun>(map, trace.warps[k]));
    warps.back()->block = this;
    warps.back()->index = k;
    for (const Effect& e : trace.warps[k].effects) {
      if (e.barrier == kNoBarrier || of_block(map.function, e)) continue;
      if (!waits_for_phase(map.function, e)) ++phases[{e.barrier, e.phase}].left;
    }
  }
}

void BlockRun::release(double time, Result* result) {
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
    changed |= !b.waiting.empty();
    b = {};
  }
}

}  // namespace sim::clock
