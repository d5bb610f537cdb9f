// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds loops over the 32 lanes of a warp. It is included by the files that are compiled
// once per instruction set, inside that set's namespace: everything here has internal linkage or
// lives there, and no standard template is used, so that no code for a newer machine leaks into a
// shared symbol.
#pragma once

#include <cstdint>
#include <cstring>

#include "sim/exec/warp.h"

#ifndef SIM_ISA
#define SIM_ISA base
#endif

// This macro is for a form that kernels hardly have: the builds for wide registers answer null and
// the plain one's handler runs (table.cpp). Compiling handlers is most of the simulator's build.
#ifdef SIM_WIDE
#define SIM_RARE(...) (::sim::Handler(nullptr))
#else
#define SIM_RARE(...) (::sim::Handler(__VA_ARGS__))
#endif

namespace sim::SIM_ISA {
namespace {

using half_t = struct Half { uint16_t bits; };
using bfloat_t = struct Bfloat { uint16_t bits; };

// A lane of type T occupies a cell. Types under 32 bits live zero-extended in 32.
template <class T, bool Narrow = (sizeof(T) < 4)>
struct Cell {
  using type = T;
};
template <class T>
struct Cell<T, true> {
  using type = uint32_t;
};
template <class T>
using CellOf = typename Cell<T>::type;

template <class T>
inline __attribute__((always_inline)) T get(CellOf<T> v) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<T>(v);
  } else if constexpr (sizeof(T) == 2) {
    if constexpr (__is_class(T)) {
      return T{static_cast<uint16_t>(v)};
    } else {
      return static_cast<T>(v);
    }
  } else {
    return v;
  }
}

template <class T>
inline __attribute__((always_inline)) CellOf<T> put(T v) {
  if constexpr (__is_class(T)) {
    return v.bits;
  } else if constexpr (sizeof(T) == 1) {
    return static_cast<uint8_t>(v);
  } else if constexpr (sizeof(T) == 2) {
    return static_cast<uint16_t>(v);
  } else {
    return v;
  }
}

template <class T>
inline __attribute__((always_inline)) CellOf<T>* cells(const Warp& w, uint16_t slot) {
  return reinterpret_cast<CellOf<T>*>(w.regs + slot * static_cast<size_t>(kSlotBytes));
}

inline __attribute__((always_inline)) uint32_t pred(const Warp& w, uint16_t p) {
  const uint32_t v = w.preds[p & ~kPredNegate];
  return (p & kPredNegate) ? ~v : v;
}

// Sets d[l] = v[l] where exec has bit l.
template <class C>
__attribute__((noinline)) void blend(C* __restrict d, const C* __restrict v, uint32_t exec) {
  for (int l = 0; l < 32; ++l) d[l] = ((exec >> l) & 1u) ? v[l] : d[l];
}

// One loop serves full and partial warps: each handler is an instance of it, and compiling them is
// most of the simulator's build.
template <class D, class F>
inline __attribute__((always_inline)) void each(const Warp& w, uint16_t slot, uint32_t exec, F f) {
  CellOf<D>* const d = cells<D>(w, slot);
  CellOf<D> spare[32];
  const bool full = exec == 0xFFFFFFFFu;
  CellOf<D>* const out = full ? d : spare;
#pragma GCC ivdep
  for (int l = 0; l < 32; ++l) out[l] = put<D>(f(l));
  if (!full) blend(d, spare, exec);
}

template <class D, class A, class F>
inline __attribute__((always_inline)) void unary(Warp& w, const Inst& i, uint32_t exec, F f) {
  const CellOf<A>* a = cells<A>(w, i.a);
  each<D>(
      w, i.d, exec, [=](int l) __attribute__((always_inline)) { return f(get<A>(a[l])); });
}

template <class D, class A, class B, class F>
inline __attribute__((always_inline)) void binary(Warp& w, const Inst& i, uint32_t exec, F f) {
  const CellOf<A>* a = cells<A>(w, i.a);
  const CellOf<B>* b = cells<B>(w, i.b);
  each<D>(
      w, i.d,
      exec, [=](int l) __attribute__((always_inline)) { return f(get<A>(a[l]), get<B>(b[l])); });
}

template <class D, class A, class B, class C, class F>
inline __attribute__((always_inline)) void ternary(Warp& w, const Inst& i, uint32_t exec, F f) {
  const CellOf<A>* a = cells<A>(w, i.a);
  const CellOf<B>* b = cells<B>(w, i.b);
  const CellOf<C>* c = cells<C>(w, i.c);
  each<D>(
      w, i.d, exec, [=](int l) __attribute__((always_inline)) {
        return f(get<A>(a[l]), get<B>(b[l]), get<C>(c[l]));
      });
}

inline __attribute__((always_inline)) uint32_t bits_of(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
inline __attribute__((always_inline)) float float_of(uint32_t x) {
  return __builtin_bit_cast(float, x);
}
inline __attribute__((always_inline)) uint64_t bits_of(double x) {
  return __builtin_bit_cast(uint64_t, x);
}
inline __attribute__((always_inline)) double double_of(uint64_t x) {
  return __builtin_bit_cast(double, x);
}

}  // namespace
}  // namespace sim::SIM_ISA

namespace sim {
using Resolver = Handler(const Form& f);
}  // namespace sim

// This namespace is compiled for the plain machine alone: lanes take turns, there is nothing to
// vectorise.
namespace sim::base {
Resolver resolve_atomic, resolve_copy, resolve_mbarrier, resolve_bulk, resolve_cluster,
    resolve_stack, resolve_rare, resolve_wmma;
}  // namespace sim::base

namespace sim::SIM_ISA {

// Each family has one resolver, which returns null if the family does not know the form, or leaves
// it to the plain build.
#define SIM_RESOLVERS                                                                           \
  Resolver resolve_integer, resolve_float, resolve_half, resolve_math, resolve_compare,         \
      resolve_select, resolve_convert, resolve_move, resolve_memory, resolve_warp, resolve_mma, \
      resolve_matrix, resolve_wgmma;
SIM_RESOLVERS
RunResult run(Warp& warp, uint64_t quantum);

}  // namespace sim::SIM_ISA

namespace sim::base {
SIM_RESOLVERS
}  // namespace sim::base
