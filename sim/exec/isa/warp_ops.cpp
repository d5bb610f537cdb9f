// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles instructions that look across the lanes of a warp. The run loop calls them with
// all the lanes their mask names.
#include "sim/exec/handlers.h"

namespace sim::SIM_ISA {
namespace {

enum Mode { kShflUp, kShflDown, kShflBfly, kShflIdx };

template <int M>
void shfl(Warp& w, const Inst& i, uint32_t exec) {
  const uint16_t* list = w.code->list_data + i.aux;
  uint32_t a[32], b[32], c[32], r[32];
  memcpy(a, cells<uint32_t>(w, i.a), sizeof(a));
  memcpy(b, cells<uint32_t>(w, i.b), sizeof(b));
  memcpy(c, cells<uint32_t>(w, list[0]), sizeof(c));
  uint32_t p = 0, bad = 0, source[32];
  for (int l = 0; l < 32; ++l) {
    const int segment = static_cast<int>(c[l] >> 8 & 31), clamp = static_cast<int>(c[l] & 31);
    const int last = (l & segment) | (clamp & ~segment), first = l & segment;
    const int n = static_cast<int>(b[l] & 31);
    int j = 0;
    bool valid = false;
    if (M == kShflUp) {
      j = l - n;
      valid = j >= last;
    } else if (M == kShflDown) {
      j = l + n;
      valid = j <= last;
    } else if (M == kShflBfly) {
      j = l ^ n;
      valid = j <= last;
    } else {
      j = first | (n & ~segment);
      valid = j <= last;
    }
    const int from = valid ? j & 31 : l;
    r[l] = a[from];
    source[l] = static_cast<uint32_t>(from);
    p |= valid ? 1u << l : 0u;
    bad |= !(exec >> from & 1) ? 1u << l : 0u;
  }
  if (bad & exec) {
    const auto lane = static_cast<unsigned>(__builtin_ctz(bad & exec));
    report(w, i, Fault::inactive_source, lane, source[lane], 4, Space::generic, false);
  }
  blend(cells<uint32_t>(w, i.d), r, exec);
  if (list[1] != kNoSlot) w.preds[list[1]] = (w.preds[list[1]] & ~exec) | (p & exec);
}

void set_pred(Warp& w, uint16_t d, uint32_t exec, uint32_t value) {
  w.preds[d] = (w.preds[d] & ~exec) | (value & exec);
}

enum Vote { kVoteAll, kVoteAny, kVoteUni, kVoteBallot };
template <int V>
void vote(Warp& w, const Inst& i, uint32_t exec) {
  const uint32_t yes = pred(w, i.a) & exec;
  if (V == kVoteBallot) return each<uint32_t>(w, i.d, exec, [=](int) { return yes; });
  const bool r = V == kVoteAll ? yes == exec : V == kVoteAny ? yes != 0 : yes == 0 || yes == exec;
  set_pred(w, i.d, exec, r ? ~0u : 0u);
}

template <class T, bool All>
void match(Warp& w, const Inst& i, uint32_t exec) {
  const CellOf<T>* a = cells<T>(w, i.a);
  uint32_t r[32] = {};
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    for (uint32_t others = exec; others; others &= others - 1) {
      const int k = __builtin_ctz(others);
      r[l] |= a[k] == a[l] ? 1u << k : 0u;
    }
  }
  if (All) {
    const bool same = r[__builtin_ctz(exec)] == exec;
    for (uint32_t& v : r) v = same ? exec : 0;
    if (i.aux != kNoSlot) set_pred(w, static_cast<uint16_t>(i.aux), exec, same ? ~0u : 0u);
  }
  blend(cells<uint32_t>(w, i.d), r, exec);
}

template <class T, Atomic O>
void redux(Warp& w, const Inst& i, uint32_t exec) {
  const CellOf<T>* a = cells<T>(w, i.a);
  T r = a[__builtin_ctz(exec)];
  for (uint32_t rest = exec & (exec - 1); rest; rest &= rest - 1) {
    const T v = a[__builtin_ctz(rest)];
    if (O == Atomic::add) r = static_cast<T>(static_cast<uint32_t>(r) + static_cast<uint32_t>(v));
    if (O == Atomic::min) r = v < r ? v : r;
    if (O == Atomic::max) r = v > r ? v : r;
    if (O == Atomic::and_) r = r & v;
    if (O == Atomic::or_) r = r | v;
    if (O == Atomic::xor_) r = r ^ v;
  }
  each<T>(w, i.d, exec, [=](int) { return r; });
}

void activemask(Warp& w, const Inst& i, uint32_t exec) {
  each<uint32_t>(w, i.d, exec, [=](int) { return exec; });
}
// The lowest lane.
void elect(Warp& w, const Inst& i, uint32_t exec) {
  const auto lane = static_cast<uint32_t>(__builtin_ctz(exec));
  each<uint32_t>(w, i.d, exec, [=](int) { return lane; });
  if (i.aux != kNoSlot) set_pred(w, static_cast<uint16_t>(i.aux), exec, 1u << lane);
}

template <class T>
Handler redux_of(Atomic o) {
  static constexpr HandlerRow<Atomic> kRows[] = {
      {Atomic::add, redux<T, Atomic::add>}, {Atomic::min, redux<T, Atomic::min>},
      {Atomic::max, redux<T, Atomic::max>}, {Atomic::and_, redux<T, Atomic::and_>},
      {Atomic::or_, redux<T, Atomic::or_>}, {Atomic::xor_, redux<T, Atomic::xor_>}};
  return find_handler(o, kRows);
}

}  // namespace

Handler resolve_warp(const Form& f) {
  const Type t = f.type();
  switch (f.op) {
    case Op::shfl:
      if (t != Type::b32) return nullptr;
      return f.has(kUp)     ? shfl<kShflUp>
             : f.has(kDown) ? shfl<kShflDown>
             : f.has(kBfly) ? shfl<kShflBfly>
             : f.has(kIdx)  ? shfl<kShflIdx>
                            : nullptr;
    case Op::vote:
      if (f.has(kBallot)) return t == Type::b32 ? vote<kVoteBallot> : nullptr;
      if (t != Type::pred) return nullptr;
      return f.has(kAll)   ? vote<kVoteAll>
             : f.has(kAny) ? vote<kVoteAny>
             : f.has(kUni) ? vote<kVoteUni>
                           : nullptr;
    case Op::match:
      if (t == Type::b32) return f.has(kAll) ? match<uint32_t, true> : match<uint32_t, false>;
      if (t == Type::b64) return f.has(kAll) ? match<uint64_t, true> : match<uint64_t, false>;
      return nullptr;
    case Op::redux:
      if (t == Type::s32) return redux_of<int32_t>(f.atomic);
      return t == Type::u32 || t == Type::b32 ? redux_of<uint32_t>(f.atomic) : nullptr;
    case Op::activemask:
      return activemask;
    case Op::elect:
      return elect;
    default:
      return nullptr;
  }
}

}  // namespace sim::SIM_ISA
