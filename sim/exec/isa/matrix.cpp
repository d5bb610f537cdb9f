// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles ldmatrix, stmatrix, movmatrix: 8x8 matrices of 16-bit elements between rows of
// shared memory and fragments. Register lane 4g + q holds columns 2q and 2q + 1 of row g.
#include "sim/exec/isa/access.h"
#include "sim/exec/isa/mma_tile.h"

namespace sim::SIM_ISA {
namespace {

// Row r, pair p in word 4r + p; out: rows 2q, 2q + 1 of column g in lane 4g + q. Its own inverse.
void transpose_halves(const uint32_t* in, uint32_t* out) {
  uint16_t h[64], t[64];
  memcpy(h, in, sizeof(h));
  for (int r = 0; r < 8; ++r) {
    for (int c = 0; c < 8; ++c) t[c * 8 + r] = h[r * 8 + c];
  }
  memcpy(out, t, sizeof(t));
}

// Lane 8j + r has the address of row r of matrix j; further lanes have none.
template <int N, bool Trans, bool Store>
void matrix(Warp& w, const Inst& i, uint32_t exec) {
  if (!whole_warp(w, i, exec)) return;
  constexpr uint32_t lanes = N == 4 ? 0xFFFFFFFFu : (1u << (8 * N)) - 1;
  const Form& form = form_of(w, i);
  Access a;
  if (!prepare(a, w, i, lanes, 16, form.space(), Store ? Use::store : Use::load)) return;
  const uint16_t* list = w.code->list_data + i.aux;
  uint32_t words[N][32];
  if (Store) {
    for (int j = 0; j < N; ++j) {
      const uint32_t* from = cells<uint32_t>(w, list[j]);
      if (Trans)
        transpose_halves(from, words[j]);
      else
        memcpy(words[j], from, sizeof(words[j]));
      for (int r = 0; r < 8; ++r) memcpy(a.pointer[8 * j + r], words[j] + 4 * r, 16);
    }
    return;
  }
  for (int j = 0; j < N; ++j) {
    for (int r = 0; r < 8; ++r) memcpy(words[j] + 4 * r, a.pointer[8 * j + r], 16);
  }
  for (int j = 0; j < N; ++j) {
    uint32_t* to = cells<uint32_t>(w, list[j]);
    if (Trans)
      transpose_halves(words[j], to);
    else
      memcpy(to, words[j], sizeof(words[j]));
  }
}

void movmatrix(Warp& w, const Inst& i, uint32_t exec) {
  if (!whole_warp(w, i, exec)) return;
  transpose_halves(cells<uint32_t>(w, i.a), cells<uint32_t>(w, i.d));
}

template <bool Trans, bool Store>
Handler of_count(unsigned n) {
  return n == 1   ? matrix<1, Trans, Store>
         : n == 2 ? matrix<2, Trans, Store>
         : n == 4 ? matrix<4, Trans, Store>
                  : nullptr;
}

}  // namespace

Handler resolve_matrix(const Form& f) {
  const bool trans = (f.detail & kTensorTrans) != 0;
  if (f.op == Op::ldmatrix) {
    return trans ? of_count<true, false>(f.vector) : of_count<false, false>(f.vector);
  }
  if (f.op == Op::stmatrix) {
    return trans ? of_count<true, true>(f.vector) : of_count<false, true>(f.vector);
  }
  return f.op == Op::movmatrix ? movmatrix : nullptr;
}

}  // namespace sim::SIM_ISA
