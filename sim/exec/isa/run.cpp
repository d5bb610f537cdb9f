// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The run loop of one warp: strands, joins, and the instructions that move lanes.
#include "sim/exec/lanes.h"

namespace sim::SIM_ISA {
namespace {

enum class Step : uint8_t { next, switch_strand, stopped };

constexpr uint64_t kStrandQuantum = 2000;  // one strand's turn while others wait

void add_strand(Warp& w, uint32_t pc, uint32_t mask, int32_t node) {
  Strand& s = w.strands[w.strand_count++];
  s = Strand{};
  s.pc = pc;
  s.mask = mask;
  s.node = node;
}

int32_t new_node(Warp& w, uint32_t pc, int32_t parent) {
  for (int n = 0; n < kMaxNodes; ++n) {
    if (w.nodes[n].used) continue;
    w.nodes[n] = Node{};
    w.nodes[n].pc = pc;
    w.nodes[n].parent = parent;
    w.nodes[n].used = true;
    return n;
  }
  return -1;  // lanes simply will not meet there
}

// A strand of node n ended: it arrived with `mask`, or exited (0).
void leave(Warp& w, int32_t n, uint32_t mask) {
  while (n >= 0) {
    Node& node = w.nodes[n];
    node.arrived |= mask;
    if (--node.pending > 0) return;
    node.used = false;
    if (node.arrived) {
      add_strand(w, node.pc + 1, node.arrived, node.parent);
      return;
    }
    mask = 0;
    n = node.parent;
  }
}

void remove_strand(Warp& w, int index) { w.strands[index] = w.strands[--w.strand_count]; }

// Lanes that go elsewhere leave the current strand, which keeps `stay`.
void split(Warp& w, Strand& s, uint32_t stay, uint32_t other_pc) {
  const uint32_t other = s.mask & ~stay;
  s.mask = stay;
  if (s.node >= 0) ++w.nodes[s.node].pending;
  add_strand(w, other_pc, other, s.node);
}

// The current strand goes two ways.
Step diverge(Warp& w, const Inst& in, uint32_t taken, uint32_t pc) {
  Strand& s = w.strands[w.current];
  const uint32_t join = in.extra;
  if (join != kNoTarget && (s.node < 0 || w.nodes[s.node].pc != join)) {
    const int32_t n = new_node(w, join, s.node);
    if (n >= 0) {
      w.nodes[n].pending = 1;
      s.node = n;
    }
  }
  // Which side runs first is up to the seed.
  if (next_random(w.block->random) & 1) {
    split(w, s, taken, pc + 1);
    s.pc = in.aux;
  } else {
    split(w, s, s.mask & ~taken, in.aux);
    s.pc = pc + 1;
  }
  return Step::switch_strand;
}

Step branch_table(Warp& w, const Inst& in, uint32_t exec, uint32_t pc) {
  Strand& s = w.strands[w.current];
  const uint32_t* index = cells<uint32_t>(w, in.a);
  const unsigned lane = __builtin_ctz(exec);
  uint32_t same = 0;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const unsigned l = __builtin_ctz(rest);
    same |= index[l] == index[lane] ? 1u << l : 0u;
  }
  uint32_t target = 0;
  if (!branch_target(w, in, index[lane], &target)) {
    report(w, in, Fault::undefined_value, lane, index[lane], 4, Space::generic, false);
    return Step::stopped;
  }
  if (same == s.mask) {
    s.pc = target;
    return Step::switch_strand;
  }
  Inst split_here = in;
  split_here.aux = target;
  // The rest comes back to this instruction, or passes it if its guard is false.
  const uint32_t rest = exec & ~same;
  const Step step = diverge(w, split_here, same, pc);
  for (int i = 0; i < w.strand_count; ++i) {
    Strand& other = w.strands[i];
    if (!rest || other.pc != pc + 1 || (other.mask & rest) != rest) continue;
    other.pc = pc;
    break;
  }
  return step;
}

uint32_t parked_union(const Warp& w, Parked kind, uint32_t pc, uint32_t sync_mask, bool any_pc) {
  uint32_t all = 0;
  for (int i = 0; i < w.strand_count; ++i) {
    const Strand& s = w.strands[i];
    if (s.parked != kind || s.sync_mask != sync_mask || (!any_pc && s.pc != pc)) continue;
    all |= s.mask;
  }
  return all;
}

void unpark(Warp& w, Parked kind, uint32_t pc, uint32_t sync_mask, bool any_pc) {
  for (int i = 0; i < w.strand_count; ++i) {
    Strand& s = w.strands[i];
    if (s.parked != kind || s.sync_mask != sync_mask || (!any_pc && s.pc != pc)) continue;
    s.parked = Parked::no;
    ++s.pc;
  }
}

// Executes what a parked strand waits for, if all its lanes are there. True if something happened.
bool try_release(Warp& w, int index) {
  Strand& s = w.strands[index];
  const Inst& in = w.function->code_data[s.pc];
  const uint32_t pc = s.pc, sync_mask = s.sync_mask;
  switch (s.parked) {
    case Parked::converge: {
      const uint32_t all = parked_union(w, s.parked, pc, sync_mask, false);
      if ((sync_mask & w.live) & ~all) return false;
      w.pc = pc;
      in.fn(w, in, all);
      unpark(w, Parked::converge, pc, sync_mask, false);
      return true;
    }
    case Parked::bar_warp: {
      const uint32_t all = parked_union(w, s.parked, pc, sync_mask, true);
      if ((sync_mask & w.live) & ~all) return false;
      unpark(w, Parked::bar_warp, pc, sync_mask, true);
      return true;
    }
    case Parked::barrier: {
      const bool any_pc = in.imm == 0;  // barrier without .aligned
      if (w.live & ~parked_union(w, s.parked, pc, 0, any_pc)) return false;
      if (w.state == WarpState::parked) return false;
      w.pc = pc;
      arrive_at_barrier(w, in, s);
      return true;
    }
    default:
      return false;
  }
}

// Parks the lanes `exec` of the current strand; the others go on.
Step park(Warp& w, uint32_t exec, uint32_t pc, Parked kind, uint32_t sync_mask) {
  Strand& s = w.strands[w.current];
  s.pc = pc;
  if (exec != s.mask) split(w, s, exec, pc + 1);
  s.parked = kind;
  s.sync_mask = sync_mask;
  try_release(w, w.current);
  return w.stop ? Step::stopped : Step::switch_strand;
}

uint32_t member_mask(const Warp& w, const Inst& in, uint32_t exec) {
  return cells<uint32_t>(w, in.c)[__builtin_ctz(exec)];
}

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

Step control(Warp& w, const Inst& in, uint32_t exec, uint32_t& pc) {
  Strand& s = w.strands[w.current];
  w.pc = pc;
  switch (in.kind) {
    case Kind::branch:
      if (exec == 0) {
        ++pc;
      } else if (exec == s.mask) {
        pc = in.aux;
      } else {
        return diverge(w, in, exec, pc);
      }
      return Step::next;
    case Kind::join:
      if (s.node >= 0 && w.nodes[s.node].pc == pc) {
        const int32_t node = s.node;
        const uint32_t mask = s.mask;
        remove_strand(w, w.current);
        leave(w, node, mask);
        return Step::switch_strand;
      }
      ++pc;
      return Step::next;
    case Kind::converge: {
      if (!exec) break;
      const uint32_t members = member_mask(w, in, exec);
      if (exec & ~members) {
        report(w, in, Fault::divergent, __builtin_ctz(exec & ~members), 0, 0, Space::generic,
               false);
        return Step::stopped;
      }
      if ((members & w.live) & ~exec) return park(w, exec, pc, Parked::converge, members);
      in.fn(w, in, exec);
      if (w.stop) return Step::stopped;
      break;
    }
    case Kind::bar_warp: {
      if (!exec) break;
      const uint32_t members = member_mask(w, in, exec);
      if ((members & w.live) & ~exec) return park(w, exec, pc, Parked::bar_warp, members);
      break;
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
    case Kind::pause:
      s.pc = pc + 1;
      w.current = (w.current + 1) % w.strand_count;
      return Step::switch_strand;
    default:
      break;
  }
  ++pc;
  return Step::next;
}

// The next strand that can run, or -1 after trying everything that may free one.
int next_strand(Warp& w) {
  for (int round = 0; round < 2; ++round) {
    for (int k = 1; k <= w.strand_count; ++k) {
      const int i = (w.current + k) % w.strand_count;
      if (w.strands[i].parked == Parked::no) return i;
    }
    bool changed = false;
    for (int i = 0; i < w.strand_count && !changed; ++i) changed = try_release(w, i);
    if (w.stop || w.state == WarpState::parked) return -1;
    // Lanes that wait at a join for partners that are stuck go ahead.
    for (int n = 0; n < kMaxNodes && !changed; ++n) {
      Node& node = w.nodes[n];
      if (!node.used || !node.arrived) continue;
      const uint32_t mask = node.arrived;
      node.arrived = 0;
      if (node.parent >= 0) ++w.nodes[node.parent].pending;
      add_strand(w, node.pc + 1, mask, node.parent);
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
  // Lanes wait for lanes that will never come.
  for (int i = 0; i < w.strand_count; ++i) {
    const Strand& s = w.strands[i];
    w.pc = s.pc;
    report(w, w.function->code_data[s.pc], Fault::divergent, __builtin_ctz(s.mask), 0, 0,
           Space::generic, false);
  }
  return RunResult::stopped;
}

}  // namespace

RunResult run(Warp& w, uint64_t quantum) {
  const Inst* const code = w.function->code_data;
  uint64_t* const counts = w.worker->pc_counts;
  uint64_t left = quantum, threads = 0;
  RunResult result = RunResult::quantum;
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
    Step step = Step::next;
    while (turn > 0) {
      --turn;
      const Inst& in = code[pc];
      const uint32_t exec = mask & pred(w, in.guard);
      ++counts[pc];
      threads += in.counted ? static_cast<uint64_t>(__builtin_popcount(exec)) : 0u;
      if (in.kind == Kind::simple) {
        if (exec) in.fn(w, in, exec);
        ++pc;
        continue;
      }
      if (in.kind == Kind::checked) {
        if (exec) {
          w.pc = pc;
          in.fn(w, in, exec);
          if (w.stop) {
            step = Step::stopped;
            break;
          }
        }
        ++pc;
        continue;
      }
      step = control(w, in, exec, pc);
      if (step != Step::next) break;
    }
    left += turn;
    if (step == Step::next) {  // the turn is over
      w.strands[w.current].pc = pc;
      w.current = (w.current + 1) % w.strand_count;
    } else if (step == Step::stopped) {
      result = RunResult::stopped;
      break;
    }
  }
  w.block->executed += quantum - left;
  w.worker->tally.thread_instructions += threads;
  return result;
}

}  // namespace sim::SIM_ISA
