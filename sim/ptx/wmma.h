// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// wmma: matrices in fragments whose layout belongs to the implementation. Here a fragment holds its
// elements in order, so many to a register, lane after lane and then register after register. A and
// B are in the order of memory (by rows or by columns, as the load says), accumulators by rows.
#pragma once

#include "sim/ptx/tensor.h"

namespace sim {

enum class WmmaPart : uint8_t { a, b, accumulator };

// A WmmaMatrix is one matrix and how its fragment holds it.
struct WmmaMatrix {
  unsigned rows = 0, cols = 0;
  unsigned bits = 32;       // of an element
  bool by_columns = false;  // the order of the fragment
  unsigned registers = 0;   // of 32 bits; of 64 if an element has as many

  constexpr unsigned register_bits() const { return bits == 64 ? 64 : 32; }
  constexpr unsigned per_register() const { return register_bits() / bits; }
  // Registers without copies: an f16 factor has eight, whatever its size.
  constexpr unsigned distinct() const { return rows * cols / (32 * per_register()); }
  constexpr unsigned index(unsigned row, unsigned col) const {
    return by_columns ? col * rows + row : row * cols + col;
  }
};

struct WmmaConfig {
  uint8_t m = 0, n = 0, k = 0;
  Element a = Element::none, b = Element::none;
  Sum c = Sum::f32, d = Sum::f32;
  bool columns_a = false, columns_b = false;
  bool saturate = false, exclusive_or = false;
  // These fields are a load's or a store's alone.
  WmmaPart part = WmmaPart::a;
  bool columns = false;  // the order of memory

  constexpr WmmaMatrix matrix_a() const { return factor(m, k, a, columns_a); }
  constexpr WmmaMatrix matrix_b() const { return factor(k, n, b, columns_b); }
  constexpr WmmaMatrix accumulator(Sum sum) const {
    WmmaMatrix x{m, n, sum == Sum::f64 ? 64u : sum == Sum::f16 ? 16u : 32u, false, 0};
    x.registers = x.distinct();
    return x;
  }
  // Returns the matrix that a load or a store moves.
  constexpr WmmaMatrix moved() const {
    return part == WmmaPart::a ? matrix_a() : part == WmmaPart::b ? matrix_b() : accumulator(c);
  }

 private:
  static constexpr WmmaMatrix factor(unsigned rows, unsigned cols, Element e, bool by_columns) {
    WmmaMatrix x{rows, cols, element_bits(e), by_columns, 0};
    x.registers = e == Element::f16 ? 8 : x.distinct();
    return x;
  }
};

// Returns false if no such instruction exists.
bool wmma_config(const Form& form, WmmaConfig* out);

}  // namespace sim
