// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles atom and red. Lanes that hit one address take turns in an order the seed picks.
#include "sim/exec/isa/access.h"
#include "sim/exec/isa/atomic/operations.h"
#include "sim/ptx/order.h"

namespace sim::SIM_ISA {
namespace {

template <class T>
using Operation = T (*)(T, T);

template <class T>
T exchange(T* p, bool is_private, Operation<T> f, T b) {
  if (is_private) {
    const T old = *p;
    *p = f(old, b);
    return old;
  }
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(p, &old, f(old, b), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return old;
}
// Writes `c` where `b` is.
template <class T>
T compare_exchange(T* p, bool is_private, T b, T c) {
  T old = b;
  if (is_private) {
    old = *p;
    *p = old == b ? c : old;
  } else {
    __atomic_compare_exchange_n(p, &old, c, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
  }
  return old;
}

template <class A, class B>
constexpr bool kSame = false;
template <class A>
constexpr bool kSame<A, A> = true;

// The change that an atomic makes to a lane's bytes.
template <class T>
struct Update {
  Operation<T> run;     // null: the second operand is compared
  Operation<T> shared;  // a generic f32 addition that meets shared memory keeps subnormals
};
template <class T, class O>
T applied(T a, T b) {
  return static_cast<T>(O()(a, b));
}

// T: bits of one element; result: the old value is wanted.
template <class T, int N>
__attribute__((noinline)) void atomic_in(Warp& w, const Inst& i, uint32_t exec, Space space,
                                         bool result, Update<T> update) {
  Access a;
  if (!prepare(a, w, i, exec, sizeof(T) * N, space, Use::atomic)) return;
  const uint16_t* list = w.code->list_data + i.aux;
  const uint16_t* operands = list + (result ? N : 0);
  using C = CellOf<T>;
  const uint64_t turn = next_random(w.block->random);
  for (int k = 0; k < 32; ++k) {
    const int l = (k + static_cast<int>(turn & 31)) & 31;
    if (!(exec >> l & 1)) continue;
    const uint64_t in_shared = static_cast<uint64_t>(a.pointer[l] - w.block->shared);
    const Operation<T> run =
        update.shared && in_shared < w.block->shared_bytes ? update.shared : update.run;
    for (int n = 0; n < N; ++n) {
      T* p = reinterpret_cast<T*>(a.pointer[l]) + n;
      const T b = static_cast<T>(cells<T>(w, operands[n])[l]);
      T old;
      if (run) {
        old = exchange(p, a.shared, run, b);
      } else {
        old = compare_exchange(p, a.shared, b, static_cast<T>(cells<T>(w, operands[N + n])[l]));
      }
      if (result) cells<T>(w, list[n])[l] = static_cast<C>(old);
    }
  }
}
template <class T, class O, Space S, int N, bool Result, bool Cas>
void atomic(Warp& w, const Inst& i, uint32_t exec) {
  Update<T> update{nullptr, nullptr};
  if constexpr (!Cas) update.run = applied<T, O>;
  if constexpr (kSame<O, AddF32Generic>) update.shared = applied<T, AddF32>;
  atomic_in<T, N>(w, i, exec, S, Result, update);
}

// A block that runs without the others has its own number for a ticket, as if those before it had
// taken theirs.
template <class T>
void ticket(Warp& w, const Inst& i, uint32_t exec) {
  atomic<T, AddInt, Space::global, 1, true, false>(w, i, exec);
  if (w.stop || !exec || !view(*w.worker).waits_left_out) return;
  const uint16_t* list = w.code->list_data + i.aux;
  const int l = __builtin_ctz(exec);
  const auto each = static_cast<T>(cells<T>(w, list[1])[l]);
  cells<T>(w, list[0])[l] = static_cast<CellOf<T>>(static_cast<T>(w.block->linear) * each);
}

template <class T, class O, int N, bool Result, bool Cas>
Handler in_space(Space space) {
  return find_handler(space, {{Space::global, atomic<T, O, Space::global, N, Result, Cas>},
                              {Space::shared, atomic<T, O, Space::shared, N, Result, Cas>},
                              {Space::cluster, atomic<T, O, Space::cluster, N, Result, Cas>},
                              {Space::generic, atomic<T, O, Space::generic, N, Result, Cas>}});
}
template <class T, class O, bool Cas = false, int N = 1>
Handler pick(const Form& f) {
  return f.op == Op::atom ? in_space<T, O, N, true, Cas>(f.space())
                          : in_space<T, O, N, false, Cas>(f.space());
}

Handler add_f32(const Form& f) {
  if (f.vector == 2) return pick<uint32_t, AddF32Ftz, false, 2>(f);
  if (f.vector == 4) return pick<uint32_t, AddF32Ftz, false, 4>(f);
  if (f.space() == Space::generic) return pick<uint32_t, AddF32Generic>(f);
  const bool shared = f.space() == Space::shared || f.space() == Space::cluster;
  return shared ? pick<uint32_t, AddF32>(f) : pick<uint32_t, AddF32Ftz>(f);
}
template <class T, class H>
Handler add_halves(const Form& f) {
  return f.has(kNoftz) ? pick<T, Halves<add_half<H>>>(f) : nullptr;
}
Handler resolve_add(const Form& f) {
  if (is_ticket(f)) return type_bytes(f.type()) == 8 ? ticket<uint64_t> : ticket<uint32_t>;
  static constexpr ResolverRow<Type> kRows[] = {
      {Type::u32, pick<uint32_t, AddInt>},      {Type::s32, pick<uint32_t, AddInt>},
      {Type::u64, pick<uint64_t, AddInt>},      {Type::s64, pick<uint64_t, AddInt>},
      {Type::f64, pick<uint64_t, AddF64>},      {Type::f32, add_f32},
      {Type::f16, add_halves<uint16_t, F16>},   {Type::bf16, add_halves<uint16_t, Bf16>},
      {Type::f16x2, add_halves<uint32_t, F16>}, {Type::bf16x2, add_halves<uint32_t, Bf16>}};
  return resolve_by(f.type(), f, kRows);
}
template <class O>
Handler resolve_order(const Form& f) {
  return resolve_by(f.type(), f,
                    {{Type::u32, pick<uint32_t, O>},
                     {Type::s32, pick<int32_t, O>},
                     {Type::u64, pick<uint64_t, O>},
                     {Type::s64, pick<int64_t, O>}});
}
template <class O>
Handler resolve_bits(const Form& f) {
  return resolve_by(f.type(), f, {{Type::b32, pick<uint32_t, O>}, {Type::b64, pick<uint64_t, O>}});
}
template <class O>
Handler resolve_u32(const Form& f) {
  return f.type() == Type::u32 ? pick<uint32_t, O>(f) : nullptr;
}
Handler resolve_cas(const Form& f) {
  return resolve_by(f.type(), f,
                    {{Type::b16, pick<uint16_t, Swap, true>},
                     {Type::b32, pick<uint32_t, Swap, true>},
                     {Type::b64, pick<uint64_t, Swap, true>}});
}

// Vectors of halves, in global memory.
template <class T, class O, int N>
Handler in_global(const Form& f) {
  return f.op == Op::atom ? atomic<T, O, Space::global, N, true, false>
                          : atomic<T, O, Space::global, N, false, false>;
}
template <class T, class O>
Handler pick_vector(const Form& f) {
  if (f.space() != Space::global || !f.has(kNoftz)) return nullptr;
  if (f.vector == 2) return in_global<T, O, 2>(f);
  if (f.vector == 4) return in_global<T, O, 4>(f);
  if constexpr (sizeof(T) == 2) {
    if (f.vector == 8) return in_global<T, O, 8>(f);
  }
  return nullptr;
}
template <class T, class H>
Handler half_vector(const Form& f) {
  return resolve_by(f.atomic, f,
                    {{Atomic::add, pick_vector<T, Halves<add_half<H>>>},
                     {Atomic::min, pick_vector<T, Halves<extreme_half<H, false>>>},
                     {Atomic::max, pick_vector<T, Halves<extreme_half<H, true>>>}});
}
Handler resolve_half_vector(const Form& f) {
  return resolve_by(f.type(), f,
                    {{Type::f16, half_vector<uint16_t, F16>},
                     {Type::bf16, half_vector<uint16_t, Bf16>},
                     {Type::f16x2, half_vector<uint32_t, F16>},
                     {Type::bf16x2, half_vector<uint32_t, Bf16>}});
}

#if defined(__x86_64__)
#define SIM_WIDE_SWAP __attribute__((target("cx16")))
#else
#define SIM_WIDE_SWAP
#endif

// 16 bytes; list: two halves each of the result, the value (cas: what to compare), the new value.
template <Space S, bool Cas>
SIM_WIDE_SWAP void atomic_wide(Warp& w, const Inst& i, uint32_t exec) {
  using V = unsigned __int128;
  Access a;
  if (!prepare(a, w, i, exec, 16, S, Use::atomic)) return;
  const uint16_t* list = w.code->list_data + i.aux;
  auto value = [&](int k, int l) {
    return static_cast<V>(cells<uint64_t>(w, list[k + 1])[l]) << 64 |
           cells<uint64_t>(w, list[k])[l];
  };
  const uint64_t turn = next_random(w.block->random);
  for (int k = 0; k < 32; ++k) {
    const int l = (k + static_cast<int>(turn & 31)) & 31;
    if (!(exec >> l & 1)) continue;
    auto* p = reinterpret_cast<V*>(a.pointer[l]);
    V old = 0;
    if (Cas) {
      old = __sync_val_compare_and_swap(p, value(2, l), value(4, l));
    } else {
      for (V seen = 0;; seen = old) {
        old = __sync_val_compare_and_swap(p, seen, value(2, l));
        if (old == seen) break;
      }
    }
    cells<uint64_t>(w, list[0])[l] = static_cast<uint64_t>(old);
    cells<uint64_t>(w, list[1])[l] = static_cast<uint64_t>(old >> 64);
  }
}
template <bool Cas>
Handler pick_wide(Space space) {
  return find_handler(space, {{Space::global, atomic_wide<Space::global, Cas>},
                              {Space::shared, atomic_wide<Space::shared, Cas>},
                              {Space::generic, atomic_wide<Space::generic, Cas>}});
}

}  // namespace

Handler resolve_atomic(const Form& f) {
  if (f.op != Op::atom && f.op != Op::red) return nullptr;
  if (f.type() == Type::b128 && f.op == Op::atom) {
    if (f.atomic == Atomic::cas) return pick_wide<true>(f.space());
    return f.atomic == Atomic::exch ? pick_wide<false>(f.space()) : nullptr;
  }
  if (f.vector != 1 && is_half(f.type())) return resolve_half_vector(f);
  if (f.vector != 1 && !(f.atomic == Atomic::add && f.type() == Type::f32)) return nullptr;
  static constexpr ResolverRow<Atomic> kRows[] = {
      {Atomic::add, resolve_add},          {Atomic::min, resolve_order<MinOf>},
      {Atomic::max, resolve_order<MaxOf>}, {Atomic::and_, resolve_bits<And>},
      {Atomic::or_, resolve_bits<Or>},     {Atomic::xor_, resolve_bits<Xor>},
      {Atomic::exch, resolve_bits<Swap>},  {Atomic::inc, resolve_u32<Inc>},
      {Atomic::dec, resolve_u32<Dec>},     {Atomic::cas, resolve_cas}};
  return resolve_by(f.atomic, f, kRows);
}

}  // namespace sim::SIM_ISA
