// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles loads and stores of every state space: addresses, checks, counters, the copy
// itself.
#include "sim/exec/isa/access.h"

namespace sim::SIM_ISA {
namespace {

// Blocks on several host threads may touch the same bytes, as the simulated program has it (a lock
// that is polled by plain loads); whether that is a race is for sim/check to say, not for the
// host's tools.
#define SIM_GUEST_ACCESS __attribute__((noinline, no_sanitize("thread")))

// The elements of one access, lane by lane, into or out of cells. N elements of type E.
template <class E, int N, bool Cut>
SIM_GUEST_ACCESS void gather(Warp& w, const uint16_t* list, uint32_t exec, const uint8_t* const* p,
                             bool dense) {
  using C = CellOf<E>;
  C* d[N];
  for (int k = 0; k < N; ++k) d[k] = cells<E>(w, list[k]);
  const auto value = [](E v) __attribute__((always_inline)) {
    if constexpr (Cut)
      return static_cast<C>(static_cast<uint16_t>(v));
    else
      return static_cast<C>(v);
  };
  if (dense && exec == 0xFFFFFFFFu) {
    E e[32 * N];
    memcpy(e, p[0], sizeof(e));
    for (int k = 0; k < N; ++k) {
      for (int l = 0; l < 32; ++l) d[k][l] = value(e[l * N + k]);
    }
    return;
  }
  const auto lane = [&](int l) __attribute__((always_inline)) {
    E e[N];
    memcpy(e, p[l], sizeof(e));
    for (int k = 0; k < N; ++k) d[k][l] = value(e[k]);
  };
  if (exec == 0xFFFFFFFFu) {
    for (int l = 0; l < 32; ++l) lane(l);
    return;
  }
  for (uint32_t rest = exec; rest; rest &= rest - 1) lane(__builtin_ctz(rest));
}
template <class E, int N>
SIM_GUEST_ACCESS void scatter(Warp& w, const uint16_t* list, uint32_t exec, uint8_t* const* p,
                              bool dense) {
  const CellOf<E>* s[N];
  for (int k = 0; k < N; ++k) s[k] = cells<E>(w, list[k]);
  if (dense && exec == 0xFFFFFFFFu) {
    E e[32 * N];
    for (int k = 0; k < N; ++k) {
      for (int l = 0; l < 32; ++l) e[l * N + k] = static_cast<E>(s[k][l]);
    }
    memcpy(p[0], e, sizeof(e));
    return;
  }
  const auto lane = [&](int l) __attribute__((always_inline)) {
    E e[N];
    for (int k = 0; k < N; ++k) e[k] = static_cast<E>(s[k][l]);
    memcpy(p[l], e, sizeof(e));
  };
  if (exec == 0xFFFFFFFFu) {
    for (int l = 0; l < 32; ++l) lane(l);
    return;
  }
  for (uint32_t rest = exec; rest; rest &= rest - 1) lane(__builtin_ctz(rest));
}

// The space is an argument, so that one body serves all of them.
template <class E, int N, bool Cut>
__attribute__((noinline)) void load_from(Warp& w, const Inst& i, uint32_t exec, Space space) {
  Access a;
  if (!prepare(a, w, i, exec, sizeof(E) * N, space, Use::load)) return;
  gather<E, N, Cut>(w, w.code->list_data + i.aux, exec, a.pointer, a.dense);
}
template <class E, int N>
__attribute__((noinline)) void store_to(Warp& w, const Inst& i, uint32_t exec, Space space) {
  Access a;
  if (!prepare(a, w, i, exec, sizeof(E) * N, space, Use::store)) return;
  scatter<E, N>(w, w.code->list_data + i.aux, exec, a.pointer, a.dense);
}

template <Space S, class E, int N, bool Cut>
void load(Warp& w, const Inst& i, uint32_t exec) {
  load_from<E, N, Cut>(w, i, exec, S);
}
template <Space S, class E, int N>
void store(Warp& w, const Inst& i, uint32_t exec) {
  store_to<E, N>(w, i, exec, S);
}

// A signed narrow load fills a 16- or a 32-bit register; Inst::c says which, at run time.
template <Space S, class E, int N>
void load_narrow(Warp& w, const Inst& i, uint32_t exec) {
  if (i.c)
    load<S, E, N, true>(w, i, exec);
  else
    load<S, E, N, false>(w, i, exec);
}

template <Space S, class E>
Handler loads(unsigned n) {
  if constexpr (sizeof(E) < 4 && E(-1) < E(0)) {
    return n == 1   ? load_narrow<S, E, 1>
           : n == 2 ? load_narrow<S, E, 2>
           : n == 4 ? load_narrow<S, E, 4>
                    : nullptr;
  } else {
    return n == 1   ? load<S, E, 1, false>
           : n == 2 ? load<S, E, 2, false>
           : n == 4 ? load<S, E, 4, false>
           : n == 8 ? load<S, E, 8, false>
                    : nullptr;
  }
}
template <Space S, class E>
Handler stores(unsigned n) {
  return n == 1   ? store<S, E, 1>
         : n == 2 ? store<S, E, 2>
         : n == 4 ? store<S, E, 4>
         : n == 8 ? store<S, E, 8>
                  : nullptr;
}
template <Space S>
Handler in_space(const Form& f) {
  const Type t = f.type();
  const unsigned bytes = type_bytes(t), n = f.vector;
  if (bytes * n > 32 || (bytes * n == 32 && S != Space::global)) return nullptr;
  if (f.op == Op::ld) {
    if (t == Type::s8) return loads<S, int8_t>(n);
    if (t == Type::s16) return loads<S, int16_t>(n);
    return bytes == 1   ? loads<S, uint8_t>(n)
           : bytes == 2 ? loads<S, uint16_t>(n)
           : bytes == 4 ? loads<S, uint32_t>(n)
           : bytes == 8 ? loads<S, uint64_t>(n)
                        : nullptr;
  }
  return bytes == 1   ? stores<S, uint8_t>(n)
         : bytes == 2 ? stores<S, uint16_t>(n)
         : bytes == 4 ? stores<S, uint32_t>(n)
         : bytes == 8 ? stores<S, uint64_t>(n)
                      : nullptr;
}

}  // namespace

Handler resolve_memory(const Form& f) {
  if (f.op != Op::ld && f.op != Op::st) return nullptr;
  if (f.type_count != 1 || f.space_count > 1) return nullptr;
  switch (f.space()) {
    case Space::generic:
      return in_space<Space::generic>(f);
    case Space::global:
      return in_space<Space::global>(f);
    case Space::shared:
      return in_space<Space::shared>(f);
    case Space::cluster:
      return in_space<Space::cluster>(f);
    case Space::local:
      return in_space<Space::local>(f);
    case Space::constant:
      return f.op == Op::ld ? in_space<Space::constant>(f) : nullptr;
    case Space::param:
      return f.op == Op::ld ? in_space<Space::param>(f) : nullptr;
  }
  return nullptr;
}

}  // namespace sim::SIM_ISA
