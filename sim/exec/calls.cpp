// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles calls at run time. Each lane has a stack of what its callers need again: where
// to go on, the frame, the registers that are live across the call. Lanes of one warp may be at
// different depths.
#include <cstring>

#include "sim/exec/grid_state.h"

namespace sim {

struct CallStack {
  std::vector<uint32_t> words[32];
};

bool same_sizes(const CallSite& site, const Callee& callee) {
  auto equal = [](const std::vector<CallPiece>& a, const std::vector<CallPiece>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].bytes != b[i].bytes) return false;
    }
    return true;
  };
  return equal(site.arguments, callee.params) && equal(site.results, callee.returns);
}

std::shared_ptr<CallStack> make_call_stack() { return std::make_shared<CallStack>(); }

void reset_calls(Warp& w) {
  for (int l = 0; l < 32; ++l) {
    w.calls->words[l].clear();
    w.frame[l] = 0;
    w.top[l] = w.function->local_bytes;
  }
}

namespace {

// Returns a lane's part of a slot, or of a pair of slots.
uint32_t* cell(const Warp& w, uint16_t slot, unsigned lane) {
  const size_t at = static_cast<size_t>(slot & ~kWideSlot) * kSlotBytes;
  return reinterpret_cast<uint32_t*>(w.regs + at) + (slot & kWideSlot ? 2 * lane : lane);
}

void define(Warp& w, uint64_t at, uint64_t bytes, bool value) {
  for (uint64_t i = at; i < at + bytes; ++i) {
    if (value)
      w.local_defined[i / 64] |= 1ull << (i % 64);
    else
      w.local_defined[i / 64] &= ~(1ull << (i % 64));
  }
}

void copy(Warp& w, unsigned lane, uint32_t to, uint32_t from, uint32_t bytes) {
  const uint64_t base = static_cast<uint64_t>(lane) * view(*w.worker).depot_bytes;
  std::memcpy(w.local + base + to, w.local + base + from, bytes);
  for (uint32_t i = 0; i < bytes; ++i) {
    const uint64_t bit = base + from + i;
    define(w, base + to + i, 1, w.local_defined[bit / 64] >> (bit % 64) & 1);
  }
}

}  // namespace

bool enter_function(Warp& w, const Inst& in, uint32_t number, uint32_t exec, uint32_t return_pc,
                    uint32_t* pc) {
  const CallSite& site = w.function->sites[in.aux];
  const Callee& callee = w.function->callees[number];
  const uint32_t depot = view(*w.worker).depot_bytes;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const uint32_t frame = (w.top[l] + 15) / 16 * 16;
    if (frame > depot || callee.frame_bytes > depot - frame) {
      report(w, in, Fault::stack_overflow, l, depot - w.function->local_bytes, callee.frame_bytes,
             Space::local, true);
      return false;
    }
    std::vector<uint32_t>& words = w.calls->words[l];
    for (const uint16_t slot : site.slots) {
      const uint32_t* value = cell(w, slot, l);
      words.push_back(value[0]);
      if (slot & kWideSlot) words.push_back(value[1]);
    }
    for (const uint16_t p : site.predicates) words.push_back(w.preds[p] >> l & 1);
    words.insert(words.end(), {w.frame[l], w.top[l], in.aux, number, return_pc});
    const uint64_t base = static_cast<uint64_t>(l) * depot + frame;
    std::memset(w.local + base, 0x7F, callee.frame_bytes);
    define(w, base, callee.frame_bytes, false);
    for (size_t k = 0; k < site.arguments.size(); ++k) {
      copy(w, l, frame + callee.params[k].offset, w.frame[l] + site.arguments[k].offset,
           site.arguments[k].bytes);
    }
    w.frame[l] = frame;
    w.top[l] = frame + callee.frame_bytes;
  }
  *pc = callee.pc;
  return true;
}

uint32_t leave_function(Warp& w, uint32_t exec, uint32_t* pc) {
  *pc = w.calls->words[__builtin_ctz(exec)].back();
  uint32_t same = 0;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    std::vector<uint32_t>& words = w.calls->words[l];
    if (words.back() != *pc) continue;
    same |= 1u << l;
    auto pop = [&] {
      const uint32_t v = words.back();
      words.pop_back();
      return v;
    };
    pop();
    const Callee& callee = w.function->callees[pop()];
    const CallSite& site = w.function->sites[pop()];
    const uint32_t top = pop(), frame = pop();
    for (size_t k = 0; k < site.results.size(); ++k) {
      copy(w, l, frame + site.results[k].offset, w.frame[l] + callee.returns[k].offset,
           site.results[k].bytes);
    }
    w.frame[l] = frame;
    w.top[l] = top;
    for (size_t k = site.predicates.size(); k-- > 0;) {
      uint32_t& p = w.preds[site.predicates[k]];
      p = (p & ~(1u << l)) | pop() << l;
    }
    for (size_t k = site.slots.size(); k-- > 0;) {
      uint32_t* value = cell(w, site.slots[k], l);
      if (site.slots[k] & kWideSlot) value[1] = pop();
      value[0] = pop();
    }
  }
  return same;
}

bool callee_at(const Warp& w, const Inst& in, uint64_t address, uint32_t* callee) {
  const auto it = w.function->callee_by_address.find(address);
  if (it == w.function->callee_by_address.end()) return false;
  *callee = it->second;
  return same_sizes(w.function->sites[in.aux], w.function->callees[*callee]);
}

}  // namespace sim
