// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles blocks, join points and the final code.
#include "sim/ptx/flow/flow.h"

#include <algorithm>

#include "sim/ptx/flow/wait_loops.h"

namespace sim {
namespace {

bool ends_block(Kind k) {
  return k == Kind::branch || k == Kind::branch_table || k == Kind::exit || k == Kind::trap ||
         k == Kind::call || k == Kind::ret;
}

bool unconditional(const Inst& i) { return i.guard == kPredTrue; }

}  // namespace

void Flow::run() {
  resolve_targets();
  make_blocks();
  post_dominators();
  insert_joins();
  liveness();
  assign_slots();
  finish();
}

uint32_t Flow::resolve(int scope, const std::string& label, int line) const {
  for (int s = scope; s >= 0; s = d_.text_.scope_parents[s]) {
    const auto it = d_.labels_.find({s, label});
    if (it != d_.labels_.end()) return it->second;
  }
  throw PtxError(line, "undefined label '" + label + "'");
}

void Flow::resolve_targets() {
  for (const FunctionText::Callee& c : d_.text_.callees) {
    callee_starts_.push_back(d_.labels_.at({c.scope, "start of function"}));
  }
  for (Draft& draft : d_.drafts_) {
    const int line = d_.out_.infos[draft.inst.info].ptx_line;
    if (!draft.target.empty()) draft.inst.aux = resolve(draft.scope, draft.target, line);
    if (draft.table.empty()) continue;
    std::vector<uint32_t> table;
    for (const std::string& label : d_.text_.branch_tables.at({draft.scope, draft.table})) {
      table.push_back(resolve(draft.scope, label, line));
    }
    draft.inst.aux = static_cast<uint32_t>(d_.out_.tables.size());
    d_.out_.tables.push_back(std::move(table));
  }
}

// Lists the slots that the callee may overwrite and the caller reads afterwards. Predicates have
// slots of their own, so only a function that is entered again loses them.
void Flow::keep_across_call(uint32_t block, CallSite* site) const {
  for (uint32_t r = 0; r < slots_.size(); ++r) {
    if (!(live_out_[block][r / 64] >> (r % 64) & 1)) continue;
    const uint32_t cells = d_.registers_[r].cells, step = cells == 1 ? 1 : 2;
    for (uint32_t k = 0; k < cells; k += step) {
      const uint32_t wide = step == 2 ? static_cast<uint32_t>(kWideSlot) : 0u;
      site->slots.push_back(static_cast<uint16_t>((slots_[r] + k) | wide));
    }
  }
  if (site->frame == 0) return;
  const auto& callees = d_.text_.callees;
  const auto from = static_cast<size_t>(callees[site->frame - 1].first_register);
  const size_t to = site->frame < callees.size()
                        ? static_cast<size_t>(callees[site->frame].first_register)
                        : d_.text_.registers.size();
  for (size_t r = from; r < to; ++r) {
    if (d_.map_[r].kind == Ref::Kind::raw) {
      site->predicates.push_back(static_cast<uint16_t>(d_.map_[r].value));
    }
  }
}

void Flow::make_blocks() {
  const auto n = static_cast<uint32_t>(d_.drafts_.size());
  std::vector<uint8_t> leader(n + 1, 0);
  leader[0] = 1;
  for (uint32_t i = 0; i < n; ++i) {
    const Inst& inst = d_.drafts_[i].inst;
    if (inst.kind == Kind::branch) leader[inst.aux] = 1;
    if (inst.kind == Kind::branch_table) {
      for (const uint32_t t : d_.out_.tables[inst.aux]) leader[t] = 1;
    }
    if (ends_block(inst.kind)) leader[i + 1] = 1;
  }
  for (const uint32_t start : callee_starts_) leader[start] = 1;
  block_of_.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    if (leader[i]) {
      blocks_.emplace_back();
      blocks_.back().begin = i;
    }
    blocks_.back().end = i + 1;
    block_of_[i] = static_cast<uint32_t>(blocks_.size() - 1);
  }
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    const Inst& last = d_.drafts_[blocks_[b].end - 1].inst;
    std::vector<uint32_t>& next = blocks_[b].next;
    if (last.kind == Kind::branch) next.push_back(block_of_[last.aux]);
    if (last.kind == Kind::branch_table) {
      for (const uint32_t t : d_.out_.tables[last.aux]) next.push_back(block_of_[t]);
    }
    const bool falls = last.kind == Kind::call || !(ends_block(last.kind) && unconditional(last));
    if (falls && b + 1 < blocks_.size()) next.push_back(b + 1);
    blocks_[b].leaves = (last.kind == Kind::exit || last.kind == Kind::ret) && unconditional(last);
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    for (const uint32_t s : next) blocks_[s].previous.push_back(b);
  }
}

// Cooper, Harvey and Kennedy's iteration on the reversed graph. Blocks that only trap or never end
// are left out, so that an assertion in a loop does not spoil the joins around it.
void Flow::post_dominators() {
  const int n = static_cast<int>(blocks_.size()), exit = n;
  std::vector<int> order, number(n + 1, -1);  // postorder from the exit, against the edges
  std::vector<std::pair<int, size_t>> stack = {{exit, 0}};
  std::vector<uint8_t> seen(n + 1, 0);
  std::vector<uint32_t> leaving;
  for (int b = 0; b < n; ++b) {
    if (blocks_[b].leaves) leaving.push_back(static_cast<uint32_t>(b));
  }
  seen[exit] = 1;
  while (!stack.empty()) {
    auto& [b, k] = stack.back();
    const std::vector<uint32_t>& from = b == exit ? leaving : blocks_[b].previous;
    if (k == from.size()) {
      number[b] = static_cast<int>(order.size());
      order.push_back(b);
      stack.pop_back();
      continue;
    }
    const auto p = static_cast<int>(from[k++]);
    if (!seen[p]) {
      seen[p] = 1;
      stack.emplace_back(p, 0);
    }
  }
  std::vector<int> up(n + 1, -1);
  up[exit] = exit;
  auto meet = [&](int x, int y) {
    while (x != y) {
      while (number[x] < number[y]) x = up[x];
      while (number[y] < number[x]) y = up[y];
    }
    return x;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const int b = *it;
      if (b == exit) continue;
      int best = blocks_[b].leaves ? exit : -1;
      for (const uint32_t s : blocks_[b].next) {
        if (up[s] < 0) continue;
        best = best < 0 ? static_cast<int>(s) : meet(best, static_cast<int>(s));
      }
      if (best != up[b]) {
        up[b] = best;
        changed = true;
      }
    }
  }
  for (int b = 0; b < n; ++b) blocks_[b].join = up[b] >= 0 && up[b] != exit ? up[b] : -1;
}

void Flow::insert_joins() {
  needs_join_.assign(blocks_.size(), 0);
  for (const BasicBlock& b : blocks_) {
    const Inst& last = d_.drafts_[b.end - 1].inst;
    const bool splits =
        last.kind == Kind::branch_table || (last.kind == Kind::branch && !unconditional(last));
    if (splits && b.join >= 0) needs_join_[b.join] = 1;
    // Lanes that call different functions meet after the call.
    if (last.kind == Kind::call && last.imm < 0) needs_join_[block_of_[b.end]] = 1;
  }
  new_index_.resize(d_.drafts_.size());
  uint32_t at = 0;
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    at += needs_join_[b];
    for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) new_index_[i] = at++;
  }
}

uint16_t Flow::slot(const Ref& r) const {
  switch (r.kind) {
    case Ref::Kind::reg:
      return static_cast<uint16_t>(slots_[r.value] + 2u * r.half);
    case Ref::Kind::constant:
      return constant_slots_[r.value];
    case Ref::Kind::raw:
      return static_cast<uint16_t>(r.value);
    default:
      return kNoSlot;
  }
}

// A raw operand is a predicate as a result, and as a source of what computes with predicates.
void Flow::note_uses(const Draft& draft) {
  using Role = RegisterUse::Kind;
  Function& out = d_.out_;
  const Op op = out.infos[draft.inst.info].form.op;
  const bool logic = op == Op::mov || op == Op::selp || op == Op::setp || op == Op::set ||
                     op == Op::and_ || op == Op::or_ || op == Op::xor_ || op == Op::not_;
  auto note = [&](const Ref& r, Role role, uint8_t place, bool predicate) {
    const auto registers = static_cast<uint32_t>(d_.registers_.size());
    if (r.kind == Ref::Kind::reg) out.uses.push_back({r.value, role, place});
    if (r.kind != Ref::Kind::raw || !predicate || r.value == kNoSlot) return;
    out.uses.push_back({registers + (r.value & ~uint32_t{kPredNegate}), role, place});
  };
  note(draft.a, Role::source, 0, logic);
  note(draft.b, Role::source, 1, logic);
  note(draft.c, Role::source, 2, logic);
  const bool pair = op == Op::setp || op == Op::match || op == Op::elect;
  note(draft.e, pair ? Role::result : Role::source, 3, pair);
  for (size_t i = 0; i < draft.list.size(); ++i) {
    // The predicates in a list: that of shfl, and of lop3 the result and then a source.
    const bool predicate = op == Op::lop3 || (op == Op::shfl && i == 1);
    const bool result = i < draft.list_results || (predicate && (op == Op::shfl || i == 0));
    note(draft.list[i], result ? Role::result : Role::source, 4, predicate);
  }
  note(draft.d, Role::result, 5, true);
}

void Flow::finish() {
  Function& out = d_.out_;
  out.virtual_registers = static_cast<uint32_t>(d_.registers_.size());
  auto start = [&](uint32_t block) {  // the join in front of a block belongs to it
    return new_index_[blocks_[block].begin] - needs_join_[block];
  };
  for (auto& table : out.tables) {
    for (uint32_t& t : table) t = start(block_of_[t]);
  }
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    if (needs_join_[b]) {
      Inst join;
      join.kind = Kind::join;
      join.counted = 0;
      InstInfo info = out.infos[d_.drafts_[blocks_[b].begin].inst.info];
      info.cls = Class::pseudo;
      join.info = static_cast<uint32_t>(out.infos.size());
      out.infos.push_back(std::move(info));
      out.code.push_back(join);
      out.use_start.push_back(static_cast<uint32_t>(out.uses.size()));
    }
    for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
      const Draft& draft = d_.drafts_[i];
      Inst inst = draft.inst;
      out.use_start.push_back(static_cast<uint32_t>(out.uses.size()));
      note_uses(draft);
      inst.d = slot(draft.d);
      inst.a = slot(draft.a);
      inst.b = slot(draft.b);
      inst.c = slot(draft.c);
      if (draft.e.kind != Ref::Kind::none) inst.aux = slot(draft.e);
      if (!draft.list.empty()) {
        inst.aux = static_cast<uint32_t>(out.lists.size());
        for (const Ref& r : draft.list) out.lists.push_back(slot(r));
      }
      if (inst.kind == Kind::branch) inst.aux = start(block_of_[inst.aux]);
      if (inst.kind == Kind::branch || inst.kind == Kind::branch_table) {
        const int join = blocks_[b].join;
        inst.extra =
            join >= 0 && needs_join_[join] ? start(static_cast<uint32_t>(join)) : kNoTarget;
      }
      if (inst.kind == Kind::call) {
        inst.extra = start(b + 1);
        keep_across_call(b, &out.sites[inst.aux]);
      }
      out.code.push_back(inst);
    }
  }
  for (size_t k = 0; k < out.callees.size(); ++k) {
    out.callees[k].pc = start(block_of_[callee_starts_[k]]);
  }
  out.use_start.push_back(static_cast<uint32_t>(out.uses.size()));
  find_wait_loops(&out);
  out.code_data = out.code.data();
  for (const InstInfo& info : out.infos) out.orders.push_back(order_of(info.form));
  out.list_data = out.lists.data();
}

}  // namespace sim
