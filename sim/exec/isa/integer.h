// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// integer.cpp, bits.cpp and bytes.cpp share types by width, one-line handlers and the choice by
// type.
#pragma once

#include "sim/exec/handlers.h"

namespace sim::SIM_ISA {

// Serves shifts, bits and predicate logic; returns null for other instructions.
Handler resolve_bits(const Form& f);
// Serves bytes and masks.
Handler resolve_bytes(const Form& f);

namespace {

template <class T>
constexpr int kBits = sizeof(T) * 8;

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

// Bit patterns use the unsigned type of the size.
#define SIM_BITS(F)           \
  (bytes == 2   ? F<uint16_t> \
   : bytes == 4 ? F<uint32_t> \
   : bytes == 8 ? F<uint64_t> \
                : Handler(nullptr))
// These macros choose types of both signs by width; ELSE is what other widths get.
#define SIM_16(F, ELSE) (t == Type::u16 ? F<uint16_t> : t == Type::s16 ? F<int16_t> : ELSE)
#define SIM_32(F, ELSE) (t == Type::u32 ? F<uint32_t> : t == Type::s32 ? F<int32_t> : ELSE)
#define SIM_64(F, ELSE) (t == Type::u64 ? F<uint64_t> : t == Type::s64 ? F<int64_t> : ELSE)
#define SIM_TYPED(F) SIM_16(F, SIM_32(F, SIM_64(F, Handler(nullptr))))
#define SIM_NARROW(F) SIM_16(F, SIM_32(F, Handler(nullptr)))
#define SIM_WORD(F) SIM_32(F, SIM_64(F, Handler(nullptr)))
// The unsigned type serves both where the sign makes no difference.
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

}  // namespace
}  // namespace sim::SIM_ISA
