// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles mma.sync of everything but f64: fragments to tables, the product, accumulators.
#include "sim/exec/isa/mma_tile.h"

namespace sim::SIM_ISA {

// mma_f64.cpp
void mma_f64(Warp& w, const Inst& i, uint32_t exec);

namespace {

// A's register r covers rows 8 * (r % halves) and words 4 * (r / halves); B's words 4 * r.
void gather_a(const Warp& w, const uint16_t* list, const TensorConfig& c, uint32_t* words) {
  const unsigned halves = c.rows / 8u;
  if (halves == 1) memset(words, 0, c.words * kTileRows * sizeof(uint32_t));
  for (unsigned r = 0; r < c.a_registers(); ++r) {
    turn_piece(cells<uint32_t>(w, list[r]), words + r / halves * 4 * kTileRows + r % halves * 8,
               kTileRows);
  }
}
void gather_b(const Warp& w, const uint16_t* list, const TensorConfig& c, uint32_t* words) {
  for (unsigned r = 0; r < c.b_registers(); ++r) {
    turn_piece(cells<uint32_t>(w, list[r]), words + r * 4 * kTileCols, kTileCols);
  }
}

void mma(Warp& w, const Inst& i, uint32_t exec) {
  if (!whole_warp(w, i, exec)) return;
  const auto [c, d, a, b, from] = mma_operands(w, i);
  const unsigned halves = c.rows / 8u;
  alignas(64) uint32_t a_words[8 * kTileRows], b_words[8 * kTileCols];
  gather_a(w, a, c, a_words);
  gather_b(w, b, c, b_words);
  TensorTile t;
  const unsigned k = c.words * 32u / element_bits(c.a);
  w.worker->tally.tensor_ops += 2ull * c.rows * 8 * k;
  if (c.a == Element::b1) {
    count_bits(a_words, b_words, c.words, c.exclusive_or, t.sum);
    return add_integers(w, from, d, halves, false, t.sum);
  }
  expand_a(c.a, a_words, c.words, t.a);
  expand_b(c.b, b_words, c.words, t.b);
  if (c.sum == Sum::s32) {
    memset(t.sum, 0, sizeof(t.sum));
    multiply(t, k, TensorSum::exact, 0);
    return add_integers(w, from, d, halves, c.saturate, t.sum);
  }
  load_sums(w, from, c.sum, halves, t.sum);
  multiply(t, k, view(*w.worker).tensor_sum, coarse_bits(c.a));
  store_sums(w, d, c.sum, halves, t.sum);
}

}  // namespace

Handler resolve_mma(const Form& f) {
  if (f.op != Op::mma) return nullptr;
  return f.type() == Type::f64 ? mma_f64 : mma;
}

}  // namespace sim::SIM_ISA
