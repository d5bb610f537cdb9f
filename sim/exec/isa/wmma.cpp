// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles wmma: loads and stores of fragments, and their products in tiles of 16 x 8.
// sim/ptx/wmma.h has the layout of fragments.
#include "sim/ptx/wmma.h"

#include "sim/exec/isa/access.h"
#include "sim/exec/isa/mma_tile.h"
#include "sim/exec/isa/real.h"

namespace sim::base {
namespace {

// Returns where lane `lane` of register `reg` begins, counted in elements of the fragment.
unsigned first_element(const WmmaMatrix& x, unsigned reg, unsigned lane) {
  return (reg % x.distinct() * 32 + lane) * x.per_register();
}

// Elements of a fragment in registers, by row and column.
class Fragment {
 public:
  Fragment(const Warp& w, const uint16_t* list, const WmmaMatrix& matrix)
      : w_(w), list_(list), matrix_(matrix) {}

  uint64_t at(unsigned row, unsigned col) const {
    const unsigned e = matrix_.index(row, col), per = matrix_.per_register();
    const unsigned lane = e / per % 32, reg = e / per / 32;
    if (matrix_.bits == 64) return cells<uint64_t>(w_, list_[reg])[lane];
    return cells<uint32_t>(w_, list_[reg])[lane] >> e % per * matrix_.bits & mask();
  }
  void set(unsigned row, unsigned col, uint64_t value) {
    const unsigned e = matrix_.index(row, col), per = matrix_.per_register();
    const unsigned lane = e / per % 32, reg = e / per / 32;
    if (matrix_.bits == 64) {
      cells<uint64_t>(w_, list_[reg])[lane] = value;
      return;
    }
    const unsigned shift = e % per * matrix_.bits;
    uint32_t& cell = cells<uint32_t>(w_, list_[reg])[lane];
    cell = (cell & ~(mask() << shift)) | static_cast<uint32_t>(value) << shift;
  }

 private:
  uint32_t mask() const { return matrix_.bits == 32 ? ~0u : (1u << matrix_.bits) - 1; }

  const Warp& w_;
  const uint16_t* list_;
  WmmaMatrix matrix_;
};

// Moves one piece of every lane between memory and `cells`, where lanes are `pitch` bytes apart.
bool move_pieces(Access& a, Warp& w, const Inst& i, uint8_t* cells, unsigned pitch,
                 unsigned bytes) {
  const Form& f = form_of(w, i);
  const bool load = f.op == Op::wmma_load;
  if (!prepare_addresses(a, w, i, ~0u, bytes, f.space(), load ? Use::load : Use::store)) {
    return false;
  }
  for (unsigned l = 0; l < 32; ++l, cells += pitch) {
    if (load)
      memcpy(cells, a.pointer[l], bytes);
    else
      memcpy(a.pointer[l], cells, bytes);
  }
  return true;
}

// Each line of the matrix in memory must begin at a multiple of the fragment's bytes in one lane,
// or of 16.
bool lines_aligned(Warp& w, const Inst& i, const WmmaMatrix& x, uint64_t base, uint64_t line_bits,
                   Space space) {
  const unsigned fragment = x.registers * x.register_bits() / 8;
  const unsigned align = fragment < 16 ? fragment : 16;
  if (!view(*w.worker).check_memory || (base % align == 0 && line_bits % (8 * align) == 0)) {
    return true;
  }
  const uint64_t bad = base % align ? base : base + line_bits / 8;
  report(w, i, Fault::misaligned, 0, bad, align, space, form_of(w, i).op == Op::wmma_store);
  return false;
}

void move(Warp& w, const Inst& i, uint32_t exec) {
  if (!whole_warp(w, i, exec)) return;
  WmmaConfig config;
  wmma_config(form_of(w, i), &config);
  const WmmaMatrix x = config.moved();
  const uint16_t* list = w.code->list_data + i.aux;
  const uint64_t stride = cells<uint32_t>(w, list[x.registers])[0];
  const uint64_t base = (i.b ? cells<uint64_t>(w, i.a)[0] : cells<uint32_t>(w, i.a)[0]) +
                        static_cast<uint64_t>(i.imm);
  if (!lines_aligned(w, i, x, base, stride * x.bits, form_of(w, i).space())) return;
  // A whole register lies together in memory, unless an accumulator by columns has two elements.
  const bool together = x.per_register() == 1 || x.by_columns == config.columns;
  const unsigned pieces = together ? 1 : x.per_register();
  const unsigned bytes = (together ? x.register_bits() : x.bits) / 8, pitch = x.register_bits() / 8;
  for (unsigned reg = 0; reg < x.distinct(); ++reg) {
    for (unsigned piece = 0; piece < pieces; ++piece) {
      Access a;
      for (unsigned l = 0; l < 32; ++l) {
        const unsigned e = first_element(x, reg, l) + piece;
        const unsigned row = x.by_columns ? e % x.rows : e / x.cols;
        const unsigned col = x.by_columns ? e / x.rows : e % x.cols;
        const uint64_t at = config.columns ? col * stride + row : row * stride + col;
        a.address[l] = base + at * x.bits / 8;
      }
      uint8_t* to = w.regs + list[reg] * static_cast<size_t>(kSlotBytes) + piece * bytes;
      if (!move_pieces(a, w, i, to, pitch, bytes)) return;
    }
  }
  if (form_of(w, i).op != Op::wmma_load) return;
  for (unsigned reg = x.distinct(); reg < x.registers; ++reg) {
    memcpy(cells<uint32_t>(w, list[reg]), cells<uint32_t>(w, list[reg % x.distinct()]), kSlotBytes);
  }
}

struct Operands {
  WmmaConfig config;
  Fragment d, a, b, c;
};

Operands operands(const Warp& w, const Inst& i) {
  WmmaConfig config;
  wmma_config(form_of(w, i), &config);
  const WmmaMatrix a = config.matrix_a(), b = config.matrix_b();
  const WmmaMatrix c = config.accumulator(config.c), d = config.accumulator(config.d);
  const uint16_t* list = w.code->list_data + i.aux;
  const uint16_t* after_d = list + d.registers;
  const uint16_t* after_a = after_d + a.registers;
  return {config, Fragment(w, list, d), Fragment(w, after_d, a), Fragment(w, after_a, b),
          Fragment(w, after_a + b.registers, c)};
}

double number(Sum kind, uint64_t bits) {
  if (kind == Sum::f16) return from_f16(static_cast<uint32_t>(bits));
  if (kind == Sum::s32) return static_cast<int32_t>(bits);
  return float_of(static_cast<uint32_t>(bits));
}

uint64_t rounded(Sum kind, double x) {
  if (kind == Sum::f16) return to_f16_rn(to_odd(x));
  return bits_of(canonical(static_cast<float>(x)));
}

// The sum of integer products is exact in double; it wraps or saturates as it is added.
uint32_t integer_sum(double products, uint64_t old, bool saturate) {
  int64_t v = static_cast<int64_t>(products) + static_cast<int32_t>(old);
  if (saturate) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
  return static_cast<uint32_t>(v);
}

// Packs the elements of one row of A, or of one column of B, into words[word][place].
template <class At>
void pack_line(const WmmaConfig& c, At at, uint32_t* words, unsigned place, unsigned places) {
  const unsigned bits = element_bits(c.a), per = 32 / bits;
  for (unsigned k = 0; k < c.k; ++k) {
    uint32_t& word = words[k / per * places + place];
    word |= static_cast<uint32_t>(at(k)) << k % per * bits;
  }
}

// Results wait until all is read: D may have registers of the others.
using Result = uint64_t[32 * 16];

void multiply_tile(const Warp& w, const Operands& o, unsigned row, unsigned col, Result& out) {
  const WmmaConfig& c = o.config;
  const unsigned rows = c.m < kTileRows ? c.m : kTileRows;
  const unsigned words = c.k * element_bits(c.a) / 32;
  alignas(64) uint32_t a[8 * kTileRows] = {}, b[8 * kTileCols] = {};
  for (unsigned r = 0; r < rows; ++r) {
    const auto at = [&](unsigned k) { return o.a.at(row + r, k); };
    pack_line(c, at, a, r, kTileRows);
  }
  for (unsigned n = 0; n < kTileCols; ++n) {
    const auto at = [&](unsigned k) { return o.b.at(k, col + n); };
    pack_line(c, at, b, n, kTileCols);
  }
  TensorTile t;
  const bool integer = c.d == Sum::s32;
  for (unsigned e = 0; e < kTileRows * kTileCols; ++e) {
    const unsigned r = e / kTileCols, n = e % kTileCols;
    t.sum[e] = integer || r >= rows ? 0 : number(c.c, o.c.at(row + r, col + n));
  }
  if (c.a == Element::b1) {
    count_bits(a, b, words, c.exclusive_or, t.sum);
  } else {
    expand_a(c.a, a, words, t.a);
    expand_b(c.a, b, words, t.b);
    const TensorSum mode = integer ? TensorSum::exact : view(*w.worker).tensor_sum;
    multiply(t, c.k, mode, coarse_bits(c.a));
  }
  for (unsigned e = 0; e < rows * kTileCols; ++e) {
    const unsigned r = row + e / kTileCols, n = col + e % kTileCols;
    out[r * c.n + n] =
        integer ? integer_sum(t.sum[e], o.c.at(r, n), c.saturate) : rounded(c.d, t.sum[e]);
  }
}

// f64: fused steps in order of k, as the instruction is defined.
void multiply_f64(const Operands& o, Result& out) {
  const WmmaConfig& c = o.config;
  for (unsigned row = 0; row < c.m; ++row) {
    for (unsigned col = 0; col < c.n; ++col) {
      double s = double_of(o.c.at(row, col));
      for (unsigned k = 0; k < c.k; ++k) {
        s = __builtin_fma(double_of(o.a.at(row, k)), double_of(o.b.at(k, col)), s);
      }
      out[row * c.n + col] = bits_of(canonical(s));
    }
  }
}

void product(Warp& w, const Inst& i, uint32_t exec) {
  if (!whole_warp(w, i, exec)) return;
  Operands o = operands(w, i);
  const WmmaConfig& c = o.config;
  Result out;
  if (c.a == Element::f64) {
    multiply_f64(o, out);
  } else {
    for (unsigned row = 0; row < c.m; row += kTileRows) {
      for (unsigned col = 0; col < c.n; col += kTileCols) multiply_tile(w, o, row, col, out);
    }
  }
  for (unsigned e = 0; e < unsigned{c.m} * c.n; ++e) o.d.set(e / c.n, e % c.n, out[e]);
  w.worker->tally.tensor_ops += 2ull * c.m * c.n * c.k;
}

}  // namespace

Handler resolve_wmma(const Form& f) {
  if (f.op == Op::wmma_load || f.op == Op::wmma_store) return move;
  return f.op == Op::wmma_mma ? product : nullptr;
}

}  // namespace sim::base
