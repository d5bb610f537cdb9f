// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions split, join and park strands.
#include "sim/exec/isa/strands.h"

#include "sim/check/race.h"

namespace sim::SIM_ISA {
namespace {

int32_t new_node(Warp& w, uint32_t pc, int32_t parent, uint32_t depth) {
  for (int n = 0; n < kMaxNodes; ++n) {
    if (n == w.node_end)
      ++w.node_end;
    else if (w.nodes[n].used)
      continue;
    w.nodes[n] = Node{};
    w.nodes[n].pc = pc;
    w.nodes[n].parent = parent;
    w.nodes[n].depth = depth;
    w.nodes[n].used = true;
    return n;
  }
  return -1;  // lanes simply will not meet there
}

// Lanes that go elsewhere leave the current strand, which keeps `stay`.
void split(Warp& w, Strand& s, uint32_t stay, uint32_t other_pc) {
  const uint32_t other = s.mask & ~stay;
  s.mask = stay;
  if (s.node >= 0) ++w.nodes[s.node].pending;
  add_strand(w, other_pc, other, s.node, s.depth);
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

// The lanes of a convergent instruction that name the same mask are a collective of their own.
struct Group {
  uint32_t members, lanes;
};

int groups_by_mask(const Warp& w, const Inst& in, uint32_t exec, Group (&out)[32]) {
  const uint32_t* named = cells<uint32_t>(w, in.c);
  int count = 0;
  while (exec) {
    const uint32_t members = named[__builtin_ctz(exec)];
    uint32_t lanes = 0;
    for (int l = 0; l < 32; ++l) lanes |= (named[l] == members ? 1u : 0u) << l;
    out[count++] = {members, lanes & exec};
    exec &= ~lanes;
  }
  return count;
}

// A lane must be in the mask that it names, and two masks are equal or have no lane in common.
bool masks_agree(Warp& w, const Inst& in, const Group* groups, int count) {
  for (int g = 0; g < count; ++g) {
    const Group& group = groups[g];
    if (const uint32_t outside = group.lanes & ~group.members) {
      report(w, in, Fault::member_mask, static_cast<unsigned>(__builtin_ctz(outside)),
             group.members, 4, Space::generic, false);
      if (w.stop) return false;
    }
    for (int k = 0; k < g; ++k) {
      if (!(groups[k].members & group.members & w.live)) continue;
      report_overlap(w, in, groups[k].lanes, groups[k].members, group.lanes, group.members);
      if (w.stop) return false;
    }
  }
  return true;
}

void unpark(Warp& w, Parked kind, uint32_t pc, uint32_t sync_mask, bool any_pc) {
  for (int i = 0; i < w.strand_count; ++i) {
    Strand& s = w.strands[i];
    if (s.parked != kind || s.sync_mask != sync_mask || (!any_pc && s.pc != pc)) continue;
    s.parked = Parked::no;
    ++s.pc;
  }
}

}  // namespace

void add_strand(Warp& w, uint32_t pc, uint32_t mask, int32_t node, uint32_t depth) {
  Strand& s = w.strands[w.strand_count++];
  s = Strand{};
  s.pc = pc;
  s.mask = mask;
  s.node = node;
  s.depth = depth;
}

void remove_strand(Warp& w, int index) { w.strands[index] = w.strands[--w.strand_count]; }

void leave(Warp& w, int32_t n, uint32_t mask) {
  while (n >= 0) {
    Node& node = w.nodes[n];
    node.arrived |= mask;
    if (--node.pending > 0) return;
    node.used = false;
    if (node.arrived) {
      add_strand(w, node.pc + 1, node.arrived, node.parent, node.depth);
      return;
    }
    mask = 0;
    n = node.parent;
  }
}

Step diverge(Warp& w, const Inst& in, uint32_t taken, uint32_t pc) {
  Strand& s = w.strands[w.current];
  const uint32_t join = in.extra;
  if (join != kNoTarget &&
      (s.node < 0 || w.nodes[s.node].pc != join || w.nodes[s.node].depth != s.depth)) {
    const int32_t n = new_node(w, join, s.node, s.depth);
    if (n >= 0) {
      w.nodes[n].pending = 1;
      s.node = n;
    }
  }
  // The seed decides which side runs first.
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

bool try_release(Warp& w, int index) {
  Strand& s = w.strands[index];
  const Inst& in = w.code->code_data[s.pc];
  const uint32_t pc = s.pc, sync_mask = s.sync_mask;
  switch (s.parked) {
    case Parked::converge: {
      const uint32_t all = parked_union(w, s.parked, pc, sync_mask, false);
      if ((sync_mask & w.live) & ~all) return false;
      w.pc = pc;
      in.fn(w, in, all);
      if (w.blocked) return false;
      unpark(w, Parked::converge, pc, sync_mask, false);
      return true;
    }
    case Parked::bar_warp: {
      const uint32_t all = parked_union(w, s.parked, pc, sync_mask, true);
      if ((sync_mask & w.live) & ~all) return false;
      unpark(w, Parked::bar_warp, pc, sync_mask, true);
      race_warp_sync(w, sync_mask);
      return true;
    }
    case Parked::barrier: {
      // barrier without .aligned; and only a checker forbids an aligned one in two places.
      const bool any_pc = in.imm == 0 || view(*w.worker).check_nothing;
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

Step park(Warp& w, uint32_t exec, uint32_t pc, Parked kind, uint32_t sync_mask) {
  Strand& s = w.strands[w.current];
  s.pc = pc;
  if (exec != s.mask) split(w, s, exec, pc + 1);
  s.parked = kind;
  s.sync_mask = sync_mask;
  try_release(w, w.current);
  return w.stop ? Step::stopped : Step::switch_strand;
}

Step collective(Warp& w, const Inst& in, uint32_t exec, uint32_t& pc) {
  Group groups[32];
  const int count = groups_by_mask(w, in, exec, groups);
  if (!masks_agree(w, in, groups, count)) return Step::stopped;
  int waiting = 0;
  for (int g = 0; g < count; ++g) {
    const Group group = groups[g];
    // Unchecked, masks may overlap: lanes that are here with another mask are not waited for.
    const uint32_t here = view(*w.worker).check_nothing ? exec : group.lanes;
    if (group.members & w.live & ~here) {
      groups[waiting++] = group;
    } else if (in.kind == Kind::bar_warp) {
      race_warp_sync(w, group.members);
    } else {
      in.fn(w, in, group.lanes);
      if (w.stop) return Step::stopped;
      if (!w.blocked) continue;
      w.blocked = false;  // instructions that block name every lane: this is the only group
      park(w, exec, pc, Parked::blocked, 0);
      return Step::blocked;
    }
  }
  if (waiting == 0) {
    ++pc;
    return Step::next;
  }
  const Parked kind = in.kind == Kind::bar_warp ? Parked::bar_warp : Parked::converge;
  Strand& s = w.strands[w.current];
  for (int g = 1; g < waiting; ++g) {
    split(w, s, s.mask & ~groups[g].lanes, pc);
    Strand& other = w.strands[w.strand_count - 1];
    other.parked = kind;
    other.sync_mask = groups[g].members;
  }
  const int last = w.strand_count;
  const Step step = park(w, groups[0].lanes, pc, kind, groups[0].members);
  for (int i = last - waiting + 1; i < last && !w.stop; ++i) try_release(w, i);
  return w.stop ? Step::stopped : step;
}

}  // namespace sim::SIM_ISA
