// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles liveness and the renaming of virtual registers to slots. A thread's path
// through the code decides what is live in its lane, and every write touches only the lanes that
// execute it; so divergence does not matter here.
#include <algorithm>

#include "sim/ptx/flow/flow.h"

namespace sim {
namespace {

bool test(const std::vector<uint64_t>& bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }
void set(std::vector<uint64_t>& bits, uint32_t i) { bits[i / 64] |= 1ull << (i % 64); }

template <class F>
void each_bit(const std::vector<uint64_t>& bits, F f) {
  for (uint32_t k = 0; k < bits.size(); ++k) {
    for (uint64_t rest = bits[k]; rest; rest &= rest - 1) {
      f(64 * k + static_cast<uint32_t>(__builtin_ctzll(rest)));
    }
  }
}

}  // namespace

// f(register, is_result)
void Flow::visit_registers(const Draft& draft, const std::function<void(uint32_t, bool)>& f) const {
  for (const Ref* r : {&draft.a, &draft.b, &draft.c}) {
    if (r->kind == Ref::Kind::reg) f(r->value, false);
  }
  if (draft.e.kind == Ref::Kind::reg) f(draft.e.value, false);
  for (size_t i = 0; i < draft.list.size(); ++i) {
    if (draft.list[i].kind == Ref::Kind::reg) f(draft.list[i].value, i < draft.list_results);
  }
  if (draft.d.kind == Ref::Kind::reg) f(draft.d.value, true);
}

void Flow::liveness() {
  const size_t words = d_.registers_.size() / 64 + 1;
  const size_t n = blocks_.size();
  if (n * words > 1u << 24) throw PtxError(d_.text_.line, "the function is too large");
  std::vector<Bits> used(n, Bits(words)), defined(n, Bits(words));
  live_in_.assign(n, Bits(words));
  live_out_.assign(n, Bits(words));
  for (size_t b = 0; b < n; ++b) {
    for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
      const Draft& draft = d_.drafts_[i];
      const bool always = draft.inst.guard == kPredTrue;
      visit_registers(draft, [&](uint32_t r, bool result) {
        if (!result && !test(defined[b], r)) set(used[b], r);
      });
      visit_registers(draft, [&](uint32_t r, bool result) {
        if (result && (always || d_.registers_[r].temporary)) set(defined[b], r);
      });
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t k = n; k-- > 0;) {
      for (const uint32_t s : blocks_[k].next) {
        for (size_t w = 0; w < words; ++w) live_out_[k][w] |= live_in_[s][w];
      }
      for (size_t w = 0; w < words; ++w) {
        const uint64_t in = used[k][w] | (live_out_[k][w] & ~defined[k][w]);
        changed |= in != live_in_[k][w];
        live_in_[k][w] = in;
      }
    }
  }
  for (const uint64_t w : live_in_[0]) d_.out_.reads_undefined_registers |= w != 0;
  for (const uint32_t start : callee_starts_) {
    for (const uint64_t w : live_in_[block_of_[start]]) {
      d_.out_.reads_undefined_registers |= w != 0;
    }
  }
}

// Linear scan over one interval per register. Intervals include both ends: a result never shares a
// slot with an operand of its own instruction, which lets the handlers' loops run in any order.
// Lanes lie elsewhere in a 64-bit pair than in a slot of 32 bits, and lanes of one warp may be at
// different places: so no slot is ever used for both widths.
void Flow::assign_slots() {
  const size_t n = d_.registers_.size();
  constexpr uint32_t kNever = UINT32_MAX;
  std::vector<uint32_t> from(n, kNever), to(n, 0);
  auto extend = [&](uint32_t r, uint32_t at) {
    from[r] = std::min(from[r], at);
    to[r] = std::max(to[r], at);
  };
  for (uint32_t r = 0; r < n; ++r) {
    if (!d_.registers_[r].exclusive) continue;
    extend(r, 0);
    extend(r, static_cast<uint32_t>(d_.drafts_.size()));
  }
  for (size_t b = 0; b < blocks_.size(); ++b) {
    for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
      visit_registers(d_.drafts_[i], [&](uint32_t r, bool) { extend(r, i); });
    }
    each_bit(live_in_[b], [&](uint32_t r) { extend(r, blocks_[b].begin); });
    each_bit(live_out_[b], [&](uint32_t r) { extend(r, blocks_[b].end - 1); });
  }
  Function& out = d_.out_;
  uint32_t constants = 0;
  for (Constant& c : out.constants) {
    c.slot = static_cast<uint16_t>(constants);
    constant_slots_.push_back(c.slot);
    constants += c.bytes == 8 ? 2 : 1;
  }
  std::vector<uint32_t> order;
  for (uint32_t r = 0; r < n; ++r) {
    if (from[r] != kNever) order.push_back(r);
  }
  std::sort(order.begin(), order.end(),
            [&](uint32_t x, uint32_t y) { return from[x] != from[y] ? from[x] < from[y] : x < y; });
  slots_.assign(n, 0);
  std::vector<uint8_t> pools[2];  // 32 bits, 64 bits
  std::vector<uint32_t> active;
  uint32_t live = 0;
  for (const uint32_t r : order) {
    std::erase_if(active, [&](uint32_t old) {
      if (to[old] >= from[r]) return false;
      const uint32_t cells = d_.registers_[old].cells;
      for (uint32_t k = 0; k < cells; ++k) pools[cells > 1][slots_[old] + k] = 0;
      live -= cells;
      return true;
    });
    const uint32_t cells = d_.registers_[r].cells;
    std::vector<uint8_t>& taken = pools[cells > 1];
    uint32_t at = 0;
    for (uint32_t run = 0;; ++at) {
      if (at == taken.size()) taken.push_back(0);
      run = taken[at] ? 0 : run + 1;
      if (run == cells) break;
    }
    at -= cells - 1;
    for (uint32_t k = 0; k < cells; ++k) taken[at + k] = 1;
    slots_[r] = at;
    active.push_back(r);
    live += cells;
    d_.live_registers_ = std::max(d_.live_registers_, live);
  }
  const auto narrow = static_cast<uint32_t>(pools[0].size());
  for (uint32_t r = 0; r < n; ++r) {
    slots_[r] += constants + (d_.registers_[r].cells > 1 ? narrow : 0);
  }
  out.slots = constants + narrow + static_cast<uint32_t>(pools[1].size());
  if (out.slots >= kPredNegate) throw PtxError(d_.text_.line, "too many registers and constants");
}

}  // namespace sim
