// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx/flow/wait_loops.h"

#include <algorithm>

#include "sim/ptx/order.h"

namespace sim {
namespace {

const Form& form_of(const Function& f, size_t pc) { return f.infos[f.code[pc].info].form; }

bool is_look(const Form& form) { return form.op == Op::ld && sees_blocks(form); }

// Says whether an instruction only computes what decides about another round.
bool only_decides(const Function& f, size_t pc) {
  const Inst& inst = f.code[pc];
  switch (inst.kind) {
    case Kind::branch:
    case Kind::join:
    case Kind::pause:
    case Kind::fence:
    case Kind::simple:
      return true;
    default:
      return form_of(f, pc).op == Op::ld;
  }
}

// Marks the branches that leave the loop from `first` to `last`, which branches back; returns
// whether it is a wait loop.
bool mark(Function* f, size_t first, size_t last) {
  bool looks = false;
  for (size_t pc = first; pc <= last; ++pc) {
    if (!only_decides(*f, pc)) return false;
    looks |= is_look(form_of(*f, pc));
  }
  if (!looks) return false;
  for (size_t pc = first; pc <= last; ++pc) {
    Inst& inst = f->code[pc];
    if (inst.kind != Kind::branch) continue;
    if (inst.aux < first || inst.aux > last) inst.imm = kLeavesByJump;
    if (pc == last && inst.guard != kPredTrue) inst.imm = kLeavesByFall;
  }
  return true;
}

// Says whether the result of the atomic goes anywhere.
bool is_read(const Function& f, size_t pc, const std::vector<bool>& read) {
  return std::any_of(f.uses.begin() + f.use_start[pc], f.uses.begin() + f.use_start[pc + 1],
                     [&](const RegisterUse& use) {
                       return use.kind == RegisterUse::Kind::result && read[use.number];
                     });
}

std::vector<bool> read_registers(const Function& f) {
  std::vector<bool> read(f.virtual_registers + f.predicates + 1);
  for (const RegisterUse& use : f.uses) {
    if (use.number >= read.size()) read.resize(use.number + 1);
    if (use.kind == RegisterUse::Kind::source) read[use.number] = true;
  }
  return read;
}

}  // namespace

void find_wait_loops(Function* function) {
  Function& f = *function;
  std::vector<bool> waits(f.code.size());
  for (size_t pc = 0; pc < f.code.size(); ++pc) {
    const Inst& inst = f.code[pc];
    if (inst.kind != Kind::branch || inst.aux > pc || !mark(&f, inst.aux, pc)) continue;
    std::fill(waits.begin() + inst.aux, waits.begin() + static_cast<std::ptrdiff_t>(pc) + 1, true);
  }
  const std::vector<bool> read = read_registers(f);
  bool any_loop = false, other_looks = false;
  for (size_t pc = 0; pc < f.code.size(); ++pc) {
    const Form& form = form_of(f, pc);
    any_loop |= waits[pc];
    if (is_look(form)) {
      f.sees_blocks = true;
      other_looks |= !waits[pc];
    }
    // An atomic whose result nobody reads tells its block nothing: compilers write it for a sum.
    if (form.op != Op::atom || !sees_blocks(form) || !is_read(f, pc, read)) continue;
    f.sees_blocks = true;
    other_looks |= !is_ticket(form);
  }
  f.alone_if_sampled = any_loop && !other_looks;
}

}  // namespace sim
