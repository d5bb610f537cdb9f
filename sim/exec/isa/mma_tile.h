// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// mma and wgmma share this product: 16 rows of A times 8 columns of B, in double. Fragments and
// shared memory bring 8x4 pieces of 32-bit words, one row after the other; tables hold k by rows
// and k by columns.
#pragma once

#include "sim/exec/lanes.h"
#include "sim/ptx/tensor.h"

namespace sim::base {
// These functions add in the two other orders. `sum` holds single-precision values before and
// after.
void multiply_sequential(const double* a, const double* b, unsigned k, double* sum);
void multiply_coarse(const double* a, const double* b, unsigned k, int bits, double* sum);
}  // namespace sim::base

namespace sim::SIM_ISA {

constexpr unsigned kTileRows = 16, kTileCols = 8, kTileK = 64;

struct TensorTile {
  alignas(64) double a[kTileK * kTileRows];
  alignas(64) double b[kTileK * kTileCols];
  alignas(64) double sum[kTileRows * kTileCols];
};

// Expands words[word][column] to out[k][column], for 16 columns (of A) or 8 (of B).
void expand_a(Element e, const uint32_t* words, unsigned count, double* out);
void expand_b(Element e, const uint32_t* words, unsigned count, double* out);
// Expands 16-bit elements that lie along the columns: 8 in 16 bytes.
void expand_columns(Element e, const uint8_t* bytes, double* out);
// Computes sum += a * b. For `coarse_bits` see coarse_bits().
void multiply(TensorTile& t, unsigned k, TensorSum mode, int coarse_bits);
// Returns the number of bits that sums of this element keep: fewer for fp8.
constexpr int coarse_bits(Element e) { return e == Element::e4m3 || e == Element::e5m2 ? 13 : 24; }

// Moves sums to and from accumulator registers: 2 per half of the rows, or 1 where a register holds
// two.
void load_sums(const Warp& w, const uint16_t* list, Sum kind, unsigned halves, double* sum);
void store_sums(Warp& w, const uint16_t* list, Sum kind, unsigned halves, const double* sum);
// Adds exact sums of integer products to the old value (or to nothing); wraps or saturates.
void add_integers(Warp& w, const uint16_t* from, const uint16_t* to, unsigned halves, bool saturate,
                  const double* sum);
// Counts bits: sum[row][column] = population counts.
void count_bits(const uint32_t* a, const uint32_t* b, unsigned words, bool exclusive_or,
                double* sum);

namespace {

// Turns a piece of 8 rows by 4 words, as a fragment register or a core matrix has it, to columns.
inline __attribute__((always_inline)) void turn_piece(const uint32_t* piece, uint32_t* out,
                                                      unsigned stride) {
  for (unsigned q = 0; q < 4; ++q) {
    for (unsigned g = 0; g < 8; ++g) out[q * stride + g] = piece[4 * g + q];
  }
}

// Holds the registers of mma, in the order of its list: D, A, B, C.
struct MmaOperands {
  TensorConfig config;
  const uint16_t *d, *a, *b, *c;
};
inline MmaOperands mma_operands(const Warp& w, const Inst& i) {
  const TensorConfig config = TensorConfig::unpack(i.imm);
  const uint16_t* d = w.code->list_data + i.aux;
  const uint16_t* a = d + config.d_registers();
  const uint16_t* b = a + config.a_registers();
  return {config, d, a, b, b + config.b_registers()};
}

inline bool whole_warp(Warp& w, const Inst& i, uint32_t exec) {
  if (exec == 0xFFFFFFFFu) return true;
  report(w, i, Fault::partial_warp, static_cast<unsigned>(__builtin_ctz(exec)), 0, 0,
         Space::generic, false);
  return false;
}

}  // namespace
}  // namespace sim::SIM_ISA
