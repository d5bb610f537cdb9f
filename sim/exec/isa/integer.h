// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What integer.cpp, bits.cpp and bytes.cpp share: types by width, one-line handlers, picking by
// type.
#pragma once

#include "sim/exec/lanes.h"

namespace sim::SIM_ISA {

// Shifts, bits, predicate logic; null for other instructions.
Handler resolve_bits(const Form& f);
// Bytes and masks.
Handler resolve_bytes(const Form& f);

namespace {

template <class T>
struct Wide;
template <>
struct Wide<uint16_t> {
  using type = uint32_t;
};
template <>
struct Wide<int16_t> {
  using type = int32_t;
};
template <>
struct Wide<uint32_t> {
  using type = uint64_t;
};
template <>
struct Wide<int32_t> {
  using type = int64_t;
};
template <>
struct Wide<uint64_t> {
  using type = unsigned __int128;
};
template <>
struct Wide<int64_t> {
  using type = __int128;
};
template <class T>
struct Unsigned;
template <>
struct Unsigned<uint16_t> {
  using type = uint16_t;
};
template <>
struct Unsigned<int16_t> {
  using type = uint16_t;
};
template <>
struct Unsigned<uint32_t> {
  using type = uint32_t;
};
template <>
struct Unsigned<int32_t> {
  using type = uint32_t;
};
template <>
struct Unsigned<uint64_t> {
  using type = uint64_t;
};
template <>
struct Unsigned<int64_t> {
  using type = uint64_t;
};
template <class T>
using U = typename Unsigned<T>::type;
template <class T>
constexpr int kBits = sizeof(T) * 8;
template <class T>
constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);

#define SIM_OP(NAME, ...)                            \
  template <class T>                                 \
  void NAME(Warp& w, const Inst& i, uint32_t exec) { \
    __VA_ARGS__;                                     \
  }
#define SIM_BINARY(NAME, EXPR) \
  SIM_OP(NAME, binary<T, T, T>(w, i, exec, [](T a, T b) { return static_cast<T>(EXPR); }))
#define SIM_UNARY(NAME, EXPR) \
  SIM_OP(NAME, unary<T, T>(w, i, exec, [](T a) { return static_cast<T>(EXPR); }))
#define SIM_TERNARY(NAME, EXPR) \
  SIM_OP(NAME, ternary<T, T, T, T>(w, i, exec, [](T a, T b, T c) { return static_cast<T>(EXPR); }))

// Bit patterns: the unsigned type of the size.
#define SIM_BITS(F)           \
  (bytes == 2   ? F<uint16_t> \
   : bytes == 4 ? F<uint32_t> \
   : bytes == 8 ? F<uint64_t> \
                : Handler(nullptr))
#define SIM_TYPED(F)              \
  (t == Type::u16   ? F<uint16_t> \
   : t == Type::s16 ? F<int16_t>  \
   : t == Type::u32 ? F<uint32_t> \
   : t == Type::s32 ? F<int32_t>  \
   : t == Type::u64 ? F<uint64_t> \
   : t == Type::s64 ? F<int64_t>  \
                    : Handler(nullptr))
// Where the sign makes no difference: the unsigned twin serves both.
#define SIM_SIZED(F)                                \
  (t == Type::u16 || t == Type::s16   ? F<uint16_t> \
   : t == Type::u32 || t == Type::s32 ? F<uint32_t> \
   : t == Type::u64 || t == Type::s64 ? F<uint64_t> \
                                      : Handler(nullptr))
#define SIM_SIGNED(F)            \
  (t == Type::s16   ? F<int16_t> \
   : t == Type::s32 ? F<int32_t> \
   : t == Type::s64 ? F<int64_t> \
                    : Handler(nullptr))
#define SIM_NARROW(F)             \
  (t == Type::u16   ? F<uint16_t> \
   : t == Type::s16 ? F<int16_t>  \
   : t == Type::u32 ? F<uint32_t> \
   : t == Type::s32 ? F<int32_t>  \
                    : Handler(nullptr))
#define SIM_WORD(F)               \
  (t == Type::u32   ? F<uint32_t> \
   : t == Type::s32 ? F<int32_t>  \
   : t == Type::u64 ? F<uint64_t> \
   : t == Type::s64 ? F<int64_t>  \
                    : Handler(nullptr))

}  // namespace
}  // namespace sim::SIM_ISA
