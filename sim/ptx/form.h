// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The meaning of an opcode with its modifiers is plain data that the parser makes and the handler
// tables read. Modifiers are a set; only types and state spaces keep their order.
#pragma once

#include <cstdint>

#include "sim/ptx/modifiers.h"
#include "sim/ptx/op.h"

namespace sim {

enum class Type : uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f64,
  tf32,
  e4m3x2,
  e5m2x2,
  u16x2,
  s16x2,
  // These types belong to factors of matrix instructions, never to registers.
  e4m3,
  e5m2,
  s4,
  u4,
  b1
};

enum class Space : uint8_t { generic, global, shared, local, constant, param, cluster };
enum class Round : uint8_t { none, rn, rz, rm, rp, rna, rni, rzi, rmi, rpi };
enum class Compare : uint8_t {
  none,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  lo,
  ls,
  hi,
  hs,
  equ,
  neu,
  ltu,
  leu,
  gtu,
  geu,
  num,
  nan
};
enum class Bool : uint8_t { none, and_, or_, xor_ };

// A MapField is the field that tensormap.replace replaces.
enum class MapField : uint8_t {
  none,
  global_address,
  rank,
  box_dim,
  global_dim,
  global_stride,
  element_stride,
  element_type,
  interleave,
  swizzle,
  fill_mode
};

enum class Atomic : uint8_t { none, add, min, max, and_, or_, xor_, inc, dec, exch, cas };
enum class Prmt : uint8_t { none, f4e, b4e, rc8, ecl, ecr, rc16 };
enum class TestP : uint8_t { none, finite, infinite, number, notanumber, normal, subnormal };

struct Form {
  Op op = Op::none;
  Type types[4] = {Type::none, Type::none, Type::none, Type::none};
  uint8_t type_count = 0;
  Space spaces[2] = {Space::generic, Space::generic};
  uint8_t space_count = 0;
  uint8_t vector = 1;
  Round round = Round::none;
  Compare compare = Compare::none;
  Bool combine = Bool::none;
  Atomic atomic = Atomic::none;
  Prmt prmt = Prmt::none;
  MapField field = MapField::none;
  TestP testp = TestP::none;
  uint64_t mods = 0;
  uint16_t m = 0, n = 0, k = 0;  // shape of a matrix instruction
  uint32_t detail = 0;           // modifiers of one family alone: TensorMod or AsyncMod
  uint8_t scope = 0;             // 1 cta, 2 cluster, 3 gpu, 4 sys; 0: not written

  bool has(uint64_t mod) const { return (mods & mod) != 0; }
  Type type() const { return types[0]; }
  Type last_type() const { return type_count ? types[type_count - 1] : Type::none; }
  Space space() const { return spaces[0]; }
};

// Returns an instruction of one type without modifiers, as the decoder makes them.
inline Form plain_form(Op op, Type type) {
  Form f;
  f.op = op;
  f.types[0] = type;
  f.type_count = 1;
  return f;
}

// The entries are in the order of Type.
constexpr uint8_t kTypeBytes[] = {
    0, 0,               // none, pred
    1, 2, 4, 8, 16,     // b8 to b128
    1, 2, 4, 8,         // u8 to u64
    1, 2, 4, 8,         // s8 to s64
    2, 4, 2, 4, 4,  8,  // f16, f16x2, bf16, bf16x2, f32, f64
    4, 2, 2, 4, 4,      // tf32, e4m3x2, e5m2x2, u16x2, s16x2
    4, 4, 4, 4, 4       // e4m3 to b1
};
constexpr unsigned type_bytes(Type t) { return kTypeBytes[static_cast<unsigned>(t)]; }
constexpr bool is_signed(Type t) {
  return t == Type::s8 || t == Type::s16 || t == Type::s32 || t == Type::s64;
}
constexpr bool is_integer(Type t) { return t >= Type::b8 && t <= Type::s64; }
constexpr bool is_bits(Type t) { return t >= Type::b8 && t <= Type::b128; }
constexpr bool is_half(Type t) { return t >= Type::f16 && t <= Type::bf16x2; }
constexpr bool is_float(Type t) { return t == Type::f32 || t == Type::f64 || is_half(t); }

}  // namespace sim
