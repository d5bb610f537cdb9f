// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles strands that enter functions and return. A function has one return, where its
// lanes have met; only lanes that another call brought together part there.
#include "sim/exec/isa/strands.h"

namespace sim::SIM_ISA {

Step call(Warp& w, const Inst& in, uint32_t exec, uint32_t& pc) {
  Strand& s = w.strands[w.current];
  auto callee = static_cast<uint32_t>(in.imm);
  if (in.imm < 0) {
    const uint64_t* target = cells<uint64_t>(w, in.a);
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(exec));
    uint32_t same = 0;
    for (uint32_t rest = exec; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      same |= target[l] == target[lane] ? 1u << l : 0u;
    }
    if (same != exec) {  // both sides come back to this instruction; they meet after it
      const uint32_t others = exec & ~same;
      Inst here = in;
      here.aux = pc;
      const Step step = diverge(w, here, same, pc);
      for (int k = 0; k < w.strand_count; ++k) {
        Strand& other = w.strands[k];
        if (other.pc == pc + 1 && other.mask == others) other.pc = pc;
      }
      return step;
    }
    if (!callee_at(w, in, target[lane], &callee)) {
      report(w, in, Fault::invalid_pc, lane, target[lane], 8, Space::generic, false);
      return Step::stopped;
    }
  }
  if (!enter_function(w, in, callee, exec, pc + 1, &pc)) return Step::stopped;
  ++s.depth;
  return Step::next;
}

Step give_back(Warp& w, uint32_t exec, uint32_t& pc) {
  Strand& s = w.strands[w.current];
  uint32_t to = 0;
  const uint32_t same = leave_function(w, exec, &to);
  const uint32_t others = s.mask & ~same;
  if (others) {
    s.mask = same;
    if (s.node >= 0) ++w.nodes[s.node].pending;
    add_strand(w, pc, others, s.node, s.depth);
  }
  --s.depth;
  s.pc = pc = to;
  return others ? Step::switch_strand : Step::next;
}

}  // namespace sim::SIM_ISA
