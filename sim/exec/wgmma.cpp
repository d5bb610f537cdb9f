// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles order of wgmma: fences, groups, waits, and what the warps of a warpgroup must
// agree on.
#include "sim/exec/wgmma.h"

#include <algorithm>

#include "sim/exec/wgmma_state.h"

namespace sim {
namespace {

constexpr uint32_t kWarps = 4;

unsigned lane_of(uint32_t exec) { return static_cast<unsigned>(__builtin_ctz(exec)); }

void say(Warp& w, const Inst& i, Fault f, uint32_t exec, const char* text) {
  report_text(w, i, f, lane_of(exec), 0, 0, text);
}

// Checks that all 32 lanes, of a warp in a whole warpgroup, take part.
bool takes_part(Warp& w, const Inst& i, uint32_t exec) {
  if (exec != 0xFFFFFFFFu) {
    report(w, i, Fault::partial_warp, lane_of(exec), 0, 0, Space::generic, false);
    return false;
  }
  if (w.index / kWarps * kWarps + kWarps > w.block->warps) {
    say(w, i, Fault::partial_warpgroup, exec,
        "wgmma needs four warps, from one whose number is a multiple of four");
    return false;
  }
  return true;
}

// The n-th instruction of the family is the same in all four warps.
void agree(Warp& w, const Inst& i, uint64_t a, uint64_t b, uint32_t scale) {
  WgmmaState& state = *w.wgmma;
  state.last = &i;
  const uint64_t number = ++state.sequence;
  WgmmaRecord& r = w.block->warpgroups[w.index / kWarps].records[number % Warpgroup::kRecords];
  if (r.number < number) {
    r = {number, &i, a, b, scale};
    return;
  }
  if (r.number > number) return;  // too far behind to compare
  if (r.inst == &i && r.a == a && r.b == b && r.scale == scale) return;
  say(w, i, Fault::warpgroup, 1u,
      "the warps of a warpgroup disagree: their n-th wgmma instruction must be the same one, with "
      "the same descriptors and scale-d");
}

void compute(Warp& w, uint32_t groups) {
  for (WgmmaOp& op : w.wgmma->pending) {
    if (op.group >= groups) return;
    if (!op.computed) op.product(w, op);
    op.computed = true;
  }
}

// Under the random policy a few of the oldest products happen now.
void perhaps_compute(Warp& w) {
  const LaunchView& launch = view(*w.worker);
  if (launch.async_policy != AsyncPolicy::random) return;
  WgmmaState& state = *w.wgmma;
  const uint64_t r = mix(launch.seed ^ mix(w.block->linear * 64 + w.index) ^ state.sequence);
  uint64_t budget = r % 4;
  for (WgmmaOp& op : state.pending) {
    if (op.computed) continue;
    if (budget-- == 0) return;
    op.product(w, op);
    op.computed = true;
  }
}

// Groups below `groups` are complete for this warp: their registers and sources are free again.
void retire(Warp& w, uint32_t groups) {
  WgmmaState& state = *w.wgmma;
  while (!state.pending.empty() && state.pending.front().group < groups) {
    release_operands(w, state.pending.front());
    state.pending.pop_front();
  }
}

bool all_have_come(const Warp& w) {
  const Warp* first = w.block->warp + w.index / kWarps * kWarps;
  for (uint32_t k = 0; k < kWarps; ++k) {
    if (first[k].wgmma->committed < w.wgmma->target) return false;
  }
  return true;
}

// A warp that passes may at once give the sources away, so everybody's rows are computed first.
void pass(Warp& w) {
  Warp* first = w.block->warp + w.index / kWarps * kWarps;
  for (uint32_t k = 0; k < kWarps; ++k) {
    compute(first[k], w.wgmma->target);
    for (WgmmaOp& op : first[k].wgmma->pending) op.over |= op.group < w.wgmma->target;
  }
  retire(w, w.wgmma->target);
}

}  // namespace

void WgmmaState::reset() {
  pending.clear();
  std::fill(slots.begin(), slots.end(), WgmmaSlot{});
  committed = fences = target = 0;
  sequence = 0;
  waiting = false;
  last = nullptr;
}

void wgmma_issue(Warp& w, const Inst& i, uint32_t exec, WgmmaProduct product) {
  if (!takes_part(w, i, exec)) return;
  WgmmaOp op;
  op.inst = &i;
  op.product = product;
  op.group = w.wgmma->committed;
  if (!read_operands(w, &op)) return;
  agree(w, i, op.a, op.b, op.accumulate);
  check_registers(w, op);
  if (!claim_operands(w, op)) return;
  const LaunchView& launch = view(*w.worker);
  w.wgmma->pending.push_back(op);
  if (launch.async_policy == AsyncPolicy::eager) compute(w, op.group + 1);
  perhaps_compute(w);
}

void wgmma_fence(Warp& w, const Inst& i, uint32_t exec) {
  if (!takes_part(w, i, exec)) return;
  agree(w, i, 0, 0, 0);
  ++w.wgmma->fences;
  perhaps_compute(w);
}

void wgmma_commit(Warp& w, const Inst& i, uint32_t exec) {
  if (!takes_part(w, i, exec)) return;
  agree(w, i, 0, 0, 0);
  ++w.wgmma->committed;
  perhaps_compute(w);
}

void wgmma_wait(Warp& w, const Inst& i, uint32_t exec) {
  WgmmaState& state = *w.wgmma;
  if (!state.waiting) {
    if (!takes_part(w, i, exec)) return;
    agree(w, i, 0, 0, 0);
    perhaps_compute(w);
    const auto allowed = static_cast<uint64_t>(i.imm);
    state.target = state.committed > allowed ? static_cast<uint32_t>(state.committed - allowed) : 0;
  }
  state.waiting = !all_have_come(w);
  w.blocked = state.waiting;
  if (!state.waiting) pass(w);
}

bool wgmma_waits(const Warp& w) { return w.wgmma->waiting; }

void wgmma_touch(Warp& w, const Inst& i, uint32_t exec) {
  WgmmaState& state = *w.wgmma;
  const uint16_t* list = w.function->list_data + i.aux;
  bool clash = false;
  for (uint32_t k = 0; k < i.extra; ++k) {
    WgmmaSlot& slot = state.slots[list[k]];
    const bool written = k < static_cast<uint64_t>(i.imm);
    clash |= slot.results != 0 || (written && slot.factors != 0);
    (written ? slot.written_at : slot.read_at) = state.fences + 1;
  }
  if (!clash) return;
  say(w, i, Fault::register_in_flight, exec,
      "a register of a wgmma in flight is used before the wgmma.wait_group that covers it");
}

void wgmma_end(Warp& w) {
  WgmmaState& state = *w.wgmma;
  if (!state.pending.empty()) {
    const WgmmaOp& op = state.pending.front();
    say(w, *op.inst, Fault::leaked_group, 1u,
        op.group >= state.committed ? "the warp ends with a wgmma that it never committed"
                                    : "the warp ends with a wgmma that it never waited for");
  }
  Warpgroup& group = w.block->warpgroups[w.index / kWarps];
  if (!group.ended) {
    group.ended = true;
    group.length = state.sequence;
  } else if (group.length != state.sequence) {
    const Inst& at = state.last ? *state.last : w.function->code_data[0];
    say(w, at, Fault::warpgroup, 1u,
        "the warps of a warpgroup disagree: they execute different numbers of wgmma instructions");
  }
}

}  // namespace sim
