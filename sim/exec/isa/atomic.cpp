// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// atom and red. Lanes that hit one address take turns in an order the seed picks.
#include "sim/exec/isa/access.h"
#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

struct Swap {
  template <class T>
  static T of(T, T b) {
    return b;
  }
};
struct AddInt {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct MinOf {
  template <class T>
  static T of(T a, T b) {
    return a < b ? a : b;
  }
};
struct MaxOf {
  template <class T>
  static T of(T a, T b) {
    return a > b ? a : b;
  }
};
struct And {
  template <class T>
  static T of(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return a ^ b;
  }
};
struct Inc {
  template <class T>
  static T of(T a, T b) {
    return a >= b ? 0 : a + 1;
  }
};
struct Dec {
  template <class T>
  static T of(T a, T b) {
    return a == 0 || a > b ? b : a - 1;
  }
};
struct AddF32 {
  static uint32_t of(uint32_t a, uint32_t b) {
    return bits_of(canonical(float_of(a) + float_of(b)));
  }
};
// On global memory the addition flushes subnormals.
struct AddF32Ftz {
  static uint32_t of(uint32_t a, uint32_t b) {
    return bits_of(flush(canonical(flush(float_of(a)) + flush(float_of(b)))));
  }
};
struct AddF64 {
  static uint64_t of(uint64_t a, uint64_t b) {
    return bits_of(canonical(double_of(a) + double_of(b)));
  }
};
// Generic: by where each lane's address leads.
struct AddF32Generic {
  static uint32_t of(uint32_t a, uint32_t b) { return AddF32Ftz::of(a, b); }
};
template <class H, bool Max>
struct ExtremeHalf {
  static uint32_t one(uint32_t a, uint32_t b) {
    const uint32_t inf = H::inf;
    if ((a & 0x7FFFu) > inf) return (b & 0x7FFFu) > inf ? 0x7FFFu : b;
    if ((b & 0x7FFFu) > inf) return a;
    const int32_t x = order(a), y = order(b);
    return (Max ? x > y : x < y) ? a : b;
  }
  // As integers in the order of the numbers, -0 below +0.
  static int32_t order(uint32_t h) {
    return h & 0x8000u ? -1 - static_cast<int32_t>(h & 0x7FFFu) : static_cast<int32_t>(h);
  }
  template <class T>
  static T of(T a, T b) {
    if constexpr (sizeof(T) == 2)
      return static_cast<T>(one(a, b));
    else
      return one(a & 0xFFFFu, b & 0xFFFFu) | one(a >> 16, b >> 16) << 16;
  }
};
template <class H>
struct AddHalf {
  static uint32_t one(uint32_t a, uint32_t b) {
    const uint32_t r = H::round(to_odd(sum_to_odd(H::load(a & 0xFFFFu), H::load(b & 0xFFFFu))));
    return r & 0xFFFFu;
  }
  template <class T>
  static T of(T a, T b) {
    if constexpr (sizeof(T) == 2)
      return static_cast<T>(one(a, b));
    else
      return one(a, b) | one(a >> 16, b >> 16) << 16;
  }
};

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

// How an atomic changes a lane's bytes.
template <class T>
struct Update {
  Operation<T> run;     // null: the second operand is compared
  Operation<T> shared;  // a generic f32 addition that meets shared memory keeps subnormals
};
template <class T, class O>
T applied(T a, T b) {
  return static_cast<T>(O::of(a, b));
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

template <class T, class O, bool Cas = false, int N = 1>
Handler pick(const Form& f) {
  const bool result = f.op == Op::atom;
  switch (f.space()) {
    case Space::global:
      return result ? atomic<T, O, Space::global, N, true, Cas>
                    : atomic<T, O, Space::global, N, false, Cas>;
    case Space::shared:
      return result ? atomic<T, O, Space::shared, N, true, Cas>
                    : atomic<T, O, Space::shared, N, false, Cas>;
    case Space::cluster:
      return result ? atomic<T, O, Space::cluster, N, true, Cas>
                    : atomic<T, O, Space::cluster, N, false, Cas>;
    case Space::generic:
      return result ? atomic<T, O, Space::generic, N, true, Cas>
                    : atomic<T, O, Space::generic, N, false, Cas>;
    default:
      return nullptr;
  }
}

Handler resolve_add(const Form& f) {
  const bool shared = f.space() == Space::shared || f.space() == Space::cluster;
  switch (f.type()) {
    case Type::u32:
    case Type::s32:
      return pick<uint32_t, AddInt>(f);
    case Type::u64:
    case Type::s64:
      return pick<uint64_t, AddInt>(f);
    case Type::f64:
      return pick<uint64_t, AddF64>(f);
    case Type::f32:
      if (f.vector == 2) return pick<uint32_t, AddF32Ftz, false, 2>(f);
      if (f.vector == 4) return pick<uint32_t, AddF32Ftz, false, 4>(f);
      if (f.space() == Space::generic) return pick<uint32_t, AddF32Generic>(f);
      return shared ? pick<uint32_t, AddF32>(f) : pick<uint32_t, AddF32Ftz>(f);
    case Type::f16:
      return f.has(kNoftz) ? pick<uint16_t, AddHalf<F16>>(f) : nullptr;
    case Type::bf16:
      return f.has(kNoftz) ? pick<uint16_t, AddHalf<Bf16>>(f) : nullptr;
    case Type::f16x2:
      return f.has(kNoftz) ? pick<uint32_t, AddHalf<F16>>(f) : nullptr;
    case Type::bf16x2:
      return f.has(kNoftz) ? pick<uint32_t, AddHalf<Bf16>>(f) : nullptr;
    default:
      return nullptr;
  }
}
template <class O>
Handler resolve_order(const Form& f) {
  switch (f.type()) {
    case Type::u32:
      return pick<uint32_t, O>(f);
    case Type::s32:
      return pick<int32_t, O>(f);
    case Type::u64:
      return pick<uint64_t, O>(f);
    case Type::s64:
      return pick<int64_t, O>(f);
    default:
      return nullptr;
  }
}
template <class O>
Handler resolve_bits(const Form& f) {
  return f.type() == Type::b32   ? pick<uint32_t, O>(f)
         : f.type() == Type::b64 ? pick<uint64_t, O>(f)
                                 : nullptr;
}

// Vectors of halves, in global memory.
template <class T, class O>
Handler pick_vector(const Form& f) {
  const bool result = f.op == Op::atom;
  if (f.space() != Space::global || !f.has(kNoftz)) return nullptr;
  switch (f.vector) {
    case 2:
      return result ? atomic<T, O, Space::global, 2, true, false>
                    : atomic<T, O, Space::global, 2, false, false>;
    case 4:
      return result ? atomic<T, O, Space::global, 4, true, false>
                    : atomic<T, O, Space::global, 4, false, false>;
    case 8:
      if constexpr (sizeof(T) == 2)
        return result ? atomic<T, O, Space::global, 8, true, false>
                      : atomic<T, O, Space::global, 8, false, false>;
      return nullptr;
    default:
      return nullptr;
  }
}
template <class T, class H>
Handler half_vector(const Form& f) {
  switch (f.atomic) {
    case Atomic::add:
      return pick_vector<T, AddHalf<H>>(f);
    case Atomic::min:
      return pick_vector<T, ExtremeHalf<H, false>>(f);
    case Atomic::max:
      return pick_vector<T, ExtremeHalf<H, true>>(f);
    default:
      return nullptr;
  }
}
Handler resolve_half_vector(const Form& f) {
  switch (f.type()) {
    case Type::f16:
      return half_vector<uint16_t, F16>(f);
    case Type::bf16:
      return half_vector<uint16_t, Bf16>(f);
    case Type::f16x2:
      return half_vector<uint32_t, F16>(f);
    case Type::bf16x2:
      return half_vector<uint32_t, Bf16>(f);
    default:
      return nullptr;
  }
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
  switch (space) {
    case Space::global:
      return atomic_wide<Space::global, Cas>;
    case Space::shared:
      return atomic_wide<Space::shared, Cas>;
    case Space::generic:
      return atomic_wide<Space::generic, Cas>;
    default:
      return nullptr;
  }
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
  const Type t = f.type();
  switch (f.atomic) {
    case Atomic::add:
      return resolve_add(f);
    case Atomic::min:
      return resolve_order<MinOf>(f);
    case Atomic::max:
      return resolve_order<MaxOf>(f);
    case Atomic::and_:
      return resolve_bits<And>(f);
    case Atomic::or_:
      return resolve_bits<Or>(f);
    case Atomic::xor_:
      return resolve_bits<Xor>(f);
    case Atomic::exch:
      return resolve_bits<Swap>(f);
    case Atomic::inc:
      return t == Type::u32 ? pick<uint32_t, Inc>(f) : nullptr;
    case Atomic::dec:
      return t == Type::u32 ? pick<uint32_t, Dec>(f) : nullptr;
    case Atomic::cas:
      if (t == Type::b16) return pick<uint16_t, Swap, true>(f);
      if (t == Type::b32) return pick<uint32_t, Swap, true>(f);
      return t == Type::b64 ? pick<uint64_t, Swap, true>(f) : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace sim::SIM_ISA
