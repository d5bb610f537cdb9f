// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles mma.sync of f64: fused steps in order of k, as the instruction is defined.
#include "sim/exec/isa/mma_tile.h"
#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

void turn(const double* piece, double* out, unsigned stride) {
  for (unsigned q = 0; q < 4; ++q) {
    for (unsigned g = 0; g < 8; ++g) out[q * stride + g] = piece[4 * g + q];
  }
}

}  // namespace

void mma_f64(Warp& w, const Inst& i, uint32_t exec) {
  if (!whole_warp(w, i, exec)) return;
  const auto [c, d, a, b, from] = mma_operands(w, i);
  const unsigned halves = c.rows / 8u, rows = c.rows;
  double x[16 * kTileRows], y[16 * kTileCols], sum[kTileRows * kTileCols];
  for (unsigned r = 0; r < c.a_registers(); ++r) {
    turn(cells<double>(w, a[r]), x + r / halves * 4 * kTileRows + r % halves * 8, kTileRows);
  }
  for (unsigned r = 0; r < c.b_registers(); ++r) {
    turn(cells<double>(w, b[r]), y + r * 4 * kTileCols, kTileCols);
  }
  for (unsigned r = 0; r < 2 * halves; ++r) {
    const double* s = cells<double>(w, from[r]);
    for (unsigned l = 0; l < 32; ++l) sum[r / 2 * 64 + 2 * l + r % 2] = s[l];
  }
  for (unsigned k = 0; k < c.words; ++k) {
    for (unsigned row = 0; row < rows; ++row) {
      const double v = x[k * kTileRows + row];
      double* s = sum + row * kTileCols;
      for (unsigned n = 0; n < kTileCols; ++n) s[n] = __builtin_fma(v, y[k * kTileCols + n], s[n]);
    }
  }
  for (unsigned r = 0; r < 2 * halves; ++r) {
    double* to = cells<double>(w, d[r]);
    for (unsigned l = 0; l < 32; ++l) to[l] = canonical(sum[r / 2 * 64 + 2 * l + r % 2]);
  }
  w.worker->tally.tensor_ops += 2ull * rows * 8 * c.words;
}

}  // namespace sim::SIM_ISA
