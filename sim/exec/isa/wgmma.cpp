// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles wgmma: one warp's 16 rows of the product, eight columns at a time, out of
// shared memory.
#include "sim/exec/wgmma.h"

#include "sim/exec/descriptor.h"
#include "sim/exec/handlers.h"
#include "sim/exec/isa/mma_tile.h"

namespace sim::SIM_ISA {
namespace {

// Eight rows of 32 bytes, K-major, to columns.
void gather_rows(const uint8_t* shared, const Descriptor& d, uint32_t mn, uint32_t* words,
                 unsigned stride) {
  for (uint32_t half = 0; half < 2; ++half) {
    uint32_t piece[32];
    for (uint32_t r = 0; r < 8; ++r) {
      memcpy(piece + 4 * r, shared + piece_of_row(d, mn + r, 16 * half), 16);
    }
    turn_piece(piece, words + half * 4 * stride, stride);
  }
}

// 16-bit elements, MN-major: 16 lines of eight columns.
void gather_lines(Element e, const uint8_t* shared, const Descriptor& d, uint32_t mn, double* out,
                  unsigned stride) {
  for (uint32_t k = 0; k < 16; ++k) {
    expand_columns(e, shared + piece_of_line(d, k, 2 * mn), out + k * stride);
  }
}

// The rows of this warp; `words` are filled unless the elements are not bits.
void read_a(const Warp& w, const WgmmaOp& op, const TensorConfig& c, uint32_t* words, double* a) {
  const uint8_t* shared = w.block->shared;
  const uint32_t row = w.index % 4 * 16;
  Descriptor d;
  read_descriptor(op.a, &d);
  if (c.transpose_a) {
    gather_lines(c.a, shared, d, row, a, kTileRows);
    return gather_lines(c.a, shared, d, row + 8, a + 8, kTileRows);
  }
  if (c.a_in_registers) {
    const uint16_t* list = w.code->list_data + op.inst->aux + c.d_registers();
    for (unsigned r = 0; r < 4; ++r) {
      turn_piece(cells<uint32_t>(w, list[r]), words + r / 2 * 4 * kTileRows + r % 2 * 8, kTileRows);
    }
  } else {
    gather_rows(shared, d, row, words, kTileRows);
    gather_rows(shared, d, row + 8, words + 8, kTileRows);
  }
  if (c.a != Element::b1) expand_a(c.a, words, c.words, a);
}

void product(Warp& w, const WgmmaOp& op) {
  const TensorConfig c = TensorConfig::unpack(op.inst->imm);
  const uint16_t* list = w.code->list_data + op.inst->aux;
  const unsigned depth = c.words * 32u / element_bits(c.a);
  const unsigned registers = c.sum == Sum::f16 ? 2 : 4;  // of eight columns
  const TensorSum mode = view(*w.worker).tensor_sum;
  alignas(64) uint32_t a_words[8 * kTileRows], b_words[8 * kTileCols];
  TensorTile t;
  read_a(w, op, c, a_words, t.a);
  if (c.negate) {
    for (unsigned k = 0; k < depth * kTileRows; ++k) t.a[k] = -t.a[k];
  }
  Descriptor d;
  read_descriptor(op.b, &d);
  for (uint32_t n = 0; n < c.n; n += 8, list += registers) {
    if (c.transpose_b) {
      gather_lines(c.b, w.block->shared, d, n, t.b, kTileCols);
    } else {
      gather_rows(w.block->shared, d, n, b_words, kTileCols);
      if (c.b != Element::b1) expand_b(c.b, b_words, c.words, t.b);
    }
    const bool fresh = c.sum == Sum::s32 || !op.accumulate;
    if (fresh)
      memset(t.sum, 0, sizeof(t.sum));
    else
      load_sums(w, list, c.sum, 2, t.sum);
    if (c.sum != Sum::s32) {
      multiply(t, depth, mode, coarse_bits(c.a));
      store_sums(w, list, c.sum, 2, t.sum);
      continue;
    }
    if (c.a == Element::b1)
      count_bits(a_words, b_words, c.words, false, t.sum);
    else
      multiply(t, depth, TensorSum::exact, 0);
    add_integers(w, op.accumulate ? list : nullptr, list, 2, c.saturate, t.sum);
  }
}

void issue(Warp& w, const Inst& i, uint32_t exec) { wgmma_issue(w, i, exec, product); }

}  // namespace

Handler resolve_wgmma(const Form& f) {
  static constexpr HandlerRow<Op> kRows[] = {{Op::wgmma, issue},
                                             {Op::wgmma_fence, wgmma_fence},
                                             {Op::wgmma_commit, wgmma_commit},
                                             {Op::wgmma_wait, wgmma_wait},
                                             {Op::touch, wgmma_touch}};
  return find_handler(f.op, kRows);
}

}  // namespace sim::SIM_ISA
