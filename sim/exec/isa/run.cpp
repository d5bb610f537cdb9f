// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the run loop of one warp, and the instructions that move lanes.
#include <algorithm>

#include "sim/check/race.h"
#include "sim/exec/isa/strands.h"

namespace sim::SIM_ISA {
namespace {

constexpr uint64_t kStrandQuantum = 2000;  // one strand's turn while others wait

Step exit_lanes(Warp& w, uint32_t exec, uint32_t pc) {
  Strand& s = w.strands[w.current];
  w.live &= ~exec;
  s.mask &= ~exec;
  s.pc = pc + 1;
  if (s.mask) return Step::switch_strand;
  const int32_t node = s.node;
  remove_strand(w, w.current);
  leave(w, node, 0);
  return Step::switch_strand;
}

// Says whether a convergent instruction has its usual form: all lanes name one mask, and all that
// live of it are here.
inline bool all_meet(const Warp& w, const Inst& in, uint32_t exec) {
  const uint32_t* named = cells<uint32_t>(w, in.c);
  const uint32_t members = named[__builtin_ctz(exec)];
  uint32_t other = 0;
  for (int l = 0; l < 32; ++l) other |= named[l] ^ members;
  return !other && !(exec & ~members) && !(members & w.live & ~exec);
}

Step control(Warp& w, const Inst& in, uint32_t exec, uint32_t& pc) {
  Strand& s = w.strands[w.current];
  w.pc = pc;
  switch (in.kind) {
    case Kind::branch:
      if (in.imm != kNoWaitExit && view(*w.worker).waits_left_out) {
        exec = in.imm == kLeavesByJump ? s.mask : 0;
      }
      if (exec == 0) {
        ++pc;
      } else if (exec == s.mask) {
        pc = in.aux;
      } else {
        return diverge(w, in, exec, pc);
      }
      return Step::next;
    case Kind::join:
      if (s.node >= 0 && w.nodes[s.node].pc == pc && w.nodes[s.node].depth == s.depth) {
        const int32_t node = s.node;
        const uint32_t mask = s.mask;
        remove_strand(w, w.current);
        leave(w, node, mask);
        return Step::switch_strand;
      }
      ++pc;
      return Step::next;
    case Kind::bar_warp:
      if (!exec) break;
      if (!all_meet(w, in, exec)) return collective(w, in, exec, pc);
      race_warp_sync(w, cells<uint32_t>(w, in.c)[__builtin_ctz(exec)]);
      break;
    case Kind::converge:
      if (!exec) break;
      if (!all_meet(w, in, exec)) return collective(w, in, exec, pc);
      [[fallthrough]];
    case Kind::blocking: {
      if (!exec) break;
      in.fn(w, in, exec);
      if (w.stop) return Step::stopped;
      if (!w.blocked) break;
      w.blocked = false;
      park(w, exec, pc, Parked::blocked, 0);
      return Step::blocked;
    }
    case Kind::barrier:
      if (!exec) break;
      return park(w, exec, pc, Parked::barrier, 0);
    case Kind::branch_table:
      if (!exec) break;
      return branch_table(w, in, exec, pc);
    case Kind::exit:
      if (!exec) break;
      return exit_lanes(w, exec, pc);
    case Kind::trap:
      if (!exec) break;
      report(w, in, in.imm == 710 ? Fault::assertion : Fault::trap, __builtin_ctz(exec), 0, 0,
             Space::generic, false);
      return Step::stopped;
    case Kind::call:
      return call(w, in, exec, pc);
    case Kind::ret:
      return give_back(w, exec, pc);
    case Kind::pause:
      s.pc = pc + 1;
      w.current = (w.current + 1) % w.strand_count;
      return Step::switch_strand;
    case Kind::fence:
      if (exec && w.race) race_fence(w, in);
      break;
    case Kind::dependents:
      if (!exec || grid_control(w, in)) break;
      park(w, exec, pc, Parked::blocked, 0);
      return Step::blocked;
    default:
      break;
  }
  ++pc;
  return Step::next;
}

// Says whether lanes at a join must wait there: their partners wait for other warps.
bool joins_hold(const Warp& w) {
  if (!w.worker->recorder || w.worker->lanes_part) return false;
  return std::any_of(w.strands, w.strands + w.strand_count,
                     [](const Strand& s) { return s.parked == Parked::blocked; });
}

// Returns the next strand that can run, or -1 after trying everything that may free one.
int next_strand(Warp& w) {
  for (int round = 0; round < 2; ++round) {
    for (int k = 1; k <= w.strand_count; ++k) {
      const int i = (w.current + k) % w.strand_count;
      if (w.strands[i].parked != Parked::no) continue;
      w.blocked = false;
      return i;
    }
    bool changed = false;
    for (int i = 0; i < w.strand_count && !changed; ++i) changed = try_release(w, i);
    if (w.stop || w.state == WarpState::parked) return -1;
    if (!changed && joins_hold(w)) return -1;
    // Lanes that wait at a join for partners that are stuck go ahead.
    for (int n = 0; n < w.node_end && !changed; ++n) {
      Node& node = w.nodes[n];
      if (!node.used || !node.arrived) continue;
      const uint32_t mask = node.arrived;
      node.arrived = 0;
      if (node.parent >= 0) ++w.nodes[node.parent].pending;
      add_strand(w, node.pc + 1, mask, node.parent, node.depth);
      changed = true;
    }
    if (changed) round = -1;
  }
  return -1;
}

RunResult settle(Warp& w) {
  if (w.stop) return RunResult::stopped;
  if (w.strand_count == 0) {
    w.state = WarpState::done;
    return RunResult::done;
  }
  if (w.state == WarpState::parked) return RunResult::parked;
  if (w.blocked) {  // lanes are together at an instruction that waits for other warps
    w.blocked = false;
    w.state = WarpState::waiting;
    return RunResult::parked;
  }
  for (int i = 0; i < w.strand_count; ++i) {
    if (w.strands[i].parked != Parked::blocked) continue;
    w.state = WarpState::waiting;
    return RunResult::parked;
  }
  // Lanes wait for lanes that will never come.
  for (int i = 0; i < w.strand_count; ++i) {
    const Strand& s = w.strands[i];
    w.pc = s.pc;
    report(w, w.code->code_data[s.pc], Fault::divergent, __builtin_ctz(s.mask), 0, 0,
           Space::generic, false);
  }
  return RunResult::stopped;
}

// These functions take notes for a profile, for a trace and of undefined registers, whichever is
// wanted: before an instruction, after it, and where it will be tried again.
void note_begin(Warp& w, const Inst& in, uint32_t mask, uint32_t exec) {
  if (w.undefined) watch_registers(w, in, mask, exec);
  if (!w.worker->lines) return;
  const auto pc = static_cast<uint32_t>(&in - w.code->code_data);
  w.worker->lines[pc].thread_instructions += static_cast<uint64_t>(__builtin_popcount(exec));
}
void note(Warp& w, uint32_t pc, uint32_t exec) {
  if (w.worker->lines) note_line(*w.worker, pc);
  if (w.worker->recorder) trace_step(w, pc, exec);
}
void forget(Warp& w, uint32_t pc, uint32_t exec) {
  if (w.worker->recorder) trace_forget(w);
  if (!w.worker->lines) return;
  w.worker->lines[pc].thread_instructions -= static_cast<uint64_t>(__builtin_popcount(exec));
}

// A Straight is the run of instructions that a strand is in; a trace gets it when it ends.
struct Straight {
  uint32_t first, lanes;
  void end(const Warp& w, uint32_t pc) const {
    if (w.worker->recorder) trace_turn(w, first, pc, lanes);
  }
  // The instruction at `at` led to `pc`, and notes are taken of it.
  void step(Warp& w, uint32_t at, uint32_t pc, uint32_t exec, Step step) {
    const bool again = step == Step::blocked;
    if (again) {
      forget(w, at, exec);
    } else {
      note(w, at, exec);
    }
    if (step == Step::next && pc == at + 1) return;
    end(w, again ? at : at + 1);
    first = pc;
  }
};

// `kNotes`: also takes notes.
template <bool kNotes>
RunResult run_warp(Warp& w, uint64_t quantum) {
  const Inst* const code = w.code->code_data;
  uint64_t* const counts = w.worker->pc_counts;
  if (kNotes && w.worker->lines) note_line(*w.worker, kNoTarget);
  uint64_t left = quantum, threads = 0;
  RunResult result = RunResult::quantum;
  if (w.state == WarpState::waiting) {
    w.state = WarpState::runnable;
    for (int i = 0; i < w.strand_count; ++i) {
      if (w.strands[i].parked == Parked::blocked) w.strands[i].parked = Parked::no;
    }
  }
  while (left > 0) {
    if (w.current >= w.strand_count || w.strands[w.current].parked != Parked::no) {
      if (w.strand_count) w.current %= w.strand_count;
      const int next = w.strand_count ? next_strand(w) : -1;
      if (next < 0) {
        result = settle(w);
        break;
      }
      w.current = next;
    }
    uint64_t turn = w.strand_count > 1 && left > kStrandQuantum ? kStrandQuantum : left;
    left -= turn;
    uint32_t pc = w.strands[w.current].pc;
    const uint32_t mask = w.strands[w.current].mask;
    Straight straight = {pc, mask};
    Step step = Step::next;
    while (turn > 0) {
      --turn;
      const Inst& in = code[pc];
      const uint32_t exec = mask & pred(w, in.guard);
      ++counts[pc];
      threads += in.counted ? static_cast<uint64_t>(__builtin_popcount(exec)) : 0u;
      if (kNotes) note_begin(w, in, mask, exec);
      if (in.kind == Kind::simple) {
        if (exec) in.fn(w, in, exec);
        ++pc;
        continue;
      }
      if (in.kind == Kind::checked) {
        if (exec) {
          w.pc = pc;
          in.fn(w, in, exec);
        }
        if (kNotes) note(w, pc, exec);
        if (w.stop) {
          step = Step::stopped;
          break;
        }
        ++pc;
        continue;
      }
      const uint32_t at = pc;
      step = control(w, in, exec, pc);
      if (kNotes) straight.step(w, at, pc, exec, step);
      if (step == Step::next) continue;
      if (step == Step::blocked) {
        --counts[pc];
        threads -= static_cast<uint64_t>(__builtin_popcount(exec));
        ++turn;
      }
      break;
    }
    left += turn;
    if (step == Step::next) {  // the turn is over
      if (kNotes) straight.end(w, pc);
      w.strands[w.current].pc = pc;
      w.current = (w.current + 1) % w.strand_count;
    } else if (step == Step::stopped) {
      result = RunResult::stopped;
      break;
    }
  }
  w.block->executed += quantum - left;
  w.executed += quantum - left;
  w.worker->tally.thread_instructions += threads;
  return result;
}

}  // namespace

RunResult run(Warp& w, uint64_t quantum) {
  const bool notes = w.worker->lines || w.worker->recorder || w.undefined;
  return notes ? run_warp<true>(w, quantum) : run_warp<false>(w, quantum);
}

}  // namespace sim::SIM_ISA
