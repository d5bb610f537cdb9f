// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operands of a matrix instruction are plain data, made from a form once, carried in Inst::imm.
#pragma once

#include <cstdint>

#include "sim/ptx/form.h"

namespace sim {

enum class Element : uint8_t { f16, bf16, tf32, e4m3, e5m2, s8, u8, s4, u4, b1, f64, none };
enum class Sum : uint8_t { f32, f16, s32, f64 };

struct TensorConfig {
  Element a = Element::none, b = Element::none;
  Sum sum = Sum::f32;
  uint8_t words = 0;  // 32-bit words of one row of A (f64: 64-bit words)
  uint8_t rows = 16;  // of A, as one warp has them: 8 or 16
  uint16_t n = 8;
  bool saturate = false, exclusive_or = false;
  bool negate = false;                            // one of the factors, exactly
  bool a_in_registers = true;                     // wgmma
  bool transpose_a = false, transpose_b = false;  // wgmma: MN-major

  constexpr int64_t pack() const {
    const uint64_t flags = (saturate ? 1u : 0u) | (exclusive_or ? 2u : 0u) | (negate ? 4u : 0u) |
                           (a_in_registers ? 8u : 0u) | (transpose_a ? 16u : 0u) |
                           (transpose_b ? 32u : 0u);
    return static_cast<int64_t>(
        static_cast<uint64_t>(a) | static_cast<uint64_t>(b) << 4 | static_cast<uint64_t>(sum) << 8 |
        static_cast<uint64_t>(words) << 12 | static_cast<uint64_t>(rows) << 20 |
        static_cast<uint64_t>(n) << 28 | flags << 40);
  }
  static constexpr TensorConfig unpack(int64_t packed) {
    const auto v = static_cast<uint64_t>(packed);
    TensorConfig c;
    c.a = static_cast<Element>(v & 15);
    c.b = static_cast<Element>(v >> 4 & 15);
    c.sum = static_cast<Sum>(v >> 8 & 15);
    c.words = static_cast<uint8_t>(v >> 12);
    c.rows = static_cast<uint8_t>(v >> 20);
    c.n = static_cast<uint16_t>(v >> 28 & 0xFFF);
    c.saturate = v >> 40 & 1;
    c.exclusive_or = v >> 41 & 1;
    c.negate = v >> 42 & 1;
    c.a_in_registers = v >> 43 & 1;
    c.transpose_a = v >> 44 & 1;
    c.transpose_b = v >> 45 & 1;
    return c;
  }
  // These functions count the operand registers of one warp.
  constexpr unsigned a_registers() const { return words / 4u * (rows / 8u); }
  constexpr unsigned b_registers() const { return words / 4u; }
  constexpr unsigned d_registers() const {
    return rows / 8u * (n / 8u) * (sum == Sum::f16 ? 1u : 2u);
  }
};

constexpr unsigned element_bits(Element e) {
  if (e == Element::f16 || e == Element::bf16) return 16;
  if (e == Element::s4 || e == Element::u4) return 4;
  return e == Element::tf32 ? 32 : e == Element::b1 ? 1 : e == Element::f64 ? 64 : 8;
}

// Returns false if no such instruction exists.
bool mma_config(const Form& form, TensorConfig* out);
bool wgmma_config(const Form& form, TensorConfig* out);

}  // namespace sim
