// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file converts elements to doubles and computes the 16 x 8 product, accumulators.
#include "sim/exec/isa/mma_tile.h"

#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

SIM_INLINE float not_a_number() { return float_of(0x7FFFFFFFu); }

// The element in the low bits of a word.
template <Element E>
SIM_INLINE double value(uint32_t x) {
  if constexpr (E == Element::f16) return from_f16(x & 0xFFFFu);
  if constexpr (E == Element::bf16) return float_of(x << 16);
  if constexpr (E == Element::tf32) return float_of(x & 0xFFFFE000u);
  if constexpr (E == Element::e5m2) return from_f16((x & 0xFFu) << 8);
  if constexpr (E == Element::e4m3) {
    const float magnitude = float_of((x & 0x7Fu) << 20) * float_of(0x7B800000u);  // times 2^120
    const uint32_t bits = bits_of(magnitude) | (x & 0x80u) << 24;
    return (x & 0x7Fu) == 0x7Fu ? not_a_number() : float_of(bits);
  }
  if constexpr (E == Element::s8) return static_cast<int32_t>(x << 24) >> 24;
  if constexpr (E == Element::u8) return static_cast<int32_t>(x & 0xFFu);
  if constexpr (E == Element::s4) return static_cast<int32_t>(x << 28) >> 28;
  if constexpr (E == Element::u4) return static_cast<int32_t>(x & 0xFu);
}

template <Element E, unsigned Cols>
__attribute__((noinline)) void expand(const uint32_t* __restrict words, unsigned count,
                                      double* __restrict out) {
  constexpr unsigned bits = element_bits(E), per_word = 32 / bits;
  for (unsigned k = 0; k < count; ++k, words += Cols) {
    for (unsigned j = 0; j < per_word; ++j, out += Cols) {
      for (unsigned c = 0; c < Cols; ++c) out[c] = value<E>(words[c] >> (j * bits));
    }
  }
}

// In the order of Element; b1 and f64 are not expanded.
template <unsigned Cols>
constexpr void (*kExpand[])(const uint32_t*, unsigned, double*) = {
    expand<Element::f16, Cols>,  expand<Element::bf16, Cols>, expand<Element::tf32, Cols>,
    expand<Element::e4m3, Cols>, expand<Element::e5m2, Cols>, expand<Element::s8, Cols>,
    expand<Element::u8, Cols>,   expand<Element::s4, Cols>,   expand<Element::u4, Cols>};

template <unsigned Cols>
void expand_any(Element e, const uint32_t* words, unsigned count, double* out) {
  if (e <= Element::u4) kExpand<Cols>[static_cast<unsigned>(e)](words, count, out);
}

// As many rows at once as fit in registers. Products of these types are exact in double, so that
// it makes no difference whether the machine fuses.
#if defined(__AVX512F__)
constexpr unsigned kLanes = 8, kBlock = 8;
#elif defined(__AVX2__)
constexpr unsigned kLanes = 4, kBlock = 4;
#else
constexpr unsigned kLanes = 2, kBlock = 2;
#endif
typedef double Vec __attribute__((vector_size(kLanes * 8)));
constexpr unsigned kVecs = kTileCols / kLanes;

__attribute__((noinline)) void multiply_exact(const double* a, const double* b, unsigned depth,
                                              double* sum) {
  for (unsigned row = 0; row < kTileRows; row += kBlock) {
    Vec s[kBlock][kVecs];
#pragma GCC unroll 16
    for (unsigned r = 0; r < kBlock; ++r) {
#pragma GCC unroll 4
      for (unsigned v = 0; v < kVecs; ++v) {
        __builtin_memcpy(&s[r][v], sum + (row + r) * kTileCols + v * kLanes, sizeof(Vec));
      }
    }
    for (unsigned k = 0; k < depth; ++k) {
      Vec x[kVecs];
#pragma GCC unroll 4
      for (unsigned v = 0; v < kVecs; ++v) {
        __builtin_memcpy(&x[v], b + k * kTileCols + v * kLanes, sizeof(Vec));
      }
#pragma GCC unroll 16
      for (unsigned r = 0; r < kBlock; ++r) {
        const double y = a[k * kTileRows + row + r];
#pragma GCC unroll 4
        for (unsigned v = 0; v < kVecs; ++v) s[r][v] += x[v] * y;
      }
    }
#pragma GCC unroll 16
    for (unsigned r = 0; r < kBlock; ++r) {
#pragma GCC unroll 4
      for (unsigned v = 0; v < kVecs; ++v) {
        __builtin_memcpy(sum + (row + r) * kTileCols + v * kLanes, &s[r][v], sizeof(Vec));
      }
    }
  }
}

SIM_INLINE uint32_t half_of(double x) { return to_f16_rn(to_odd(x)); }

}  // namespace

void expand_a(Element e, const uint32_t* words, unsigned count, double* out) {
  expand_any<kTileRows>(e, words, count, out);
}
void expand_b(Element e, const uint32_t* words, unsigned count, double* out) {
  expand_any<kTileCols>(e, words, count, out);
}

void expand_columns(Element e, const uint8_t* bytes, double* out) {
  uint16_t h[8];
  memcpy(h, bytes, sizeof(h));
  if (e == Element::f16) {
    for (int c = 0; c < 8; ++c) out[c] = value<Element::f16>(h[c]);
  } else {
    for (int c = 0; c < 8; ++c) out[c] = value<Element::bf16>(h[c]);
  }
}

void multiply(TensorTile& t, unsigned k, TensorSum mode, int coarse_bits) {
  if (mode == TensorSum::sequential) return base::multiply_sequential(t.a, t.b, k, t.sum);
  if (mode == TensorSum::coarse) return base::multiply_coarse(t.a, t.b, k, coarse_bits, t.sum);
  multiply_exact(t.a, t.b, k, t.sum);
}

// Lane 4g + q holds columns 2q and 2q + 1 of row g: elements 2l and 2l + 1 in order of rows.
void load_sums(const Warp& w, const uint16_t* list, Sum kind, unsigned halves, double* sum) {
  for (unsigned h = 0; h < halves; ++h, sum += 64) {
    if (kind == Sum::f16) {
      const uint32_t* c = cells<uint32_t>(w, list[h]);
      for (int l = 0; l < 32; ++l) {
        sum[2 * l] = from_f16(c[l] & 0xFFFFu);
        sum[2 * l + 1] = from_f16(c[l] >> 16);
      }
    } else {
      const float* c0 = cells<float>(w, list[2 * h]);
      const float* c1 = cells<float>(w, list[2 * h + 1]);
      for (int l = 0; l < 32; ++l) {
        sum[2 * l] = c0[l];
        sum[2 * l + 1] = c1[l];
      }
    }
  }
}

void store_sums(Warp& w, const uint16_t* list, Sum kind, unsigned halves, const double* sum) {
  for (unsigned h = 0; h < halves; ++h, sum += 64) {
    if (kind == Sum::f16) {
      uint32_t* d = cells<uint32_t>(w, list[h]);
      for (int l = 0; l < 32; ++l) d[l] = half_of(sum[2 * l]) | half_of(sum[2 * l + 1]) << 16;
    } else {
      float* d0 = cells<float>(w, list[2 * h]);
      float* d1 = cells<float>(w, list[2 * h + 1]);
      for (int l = 0; l < 32; ++l) {
        d0[l] = canonical(static_cast<float>(sum[2 * l]));
        d1[l] = canonical(static_cast<float>(sum[2 * l + 1]));
      }
    }
  }
}

void add_integers(Warp& w, const uint16_t* from, const uint16_t* to, unsigned halves, bool saturate,
                  const double* sum) {
  for (unsigned r = 0; r < 2 * halves; ++r) {
    const double* s = sum + r / 2 * 64 + r % 2;
    int32_t* d = cells<int32_t>(w, to[r]);
    const int32_t* c = from ? cells<int32_t>(w, from[r]) : nullptr;
    for (int l = 0; l < 32; ++l) {
      int64_t v = static_cast<int32_t>(s[2 * l]) + static_cast<int64_t>(c ? c[l] : 0);
      if (saturate) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
      d[l] = static_cast<int32_t>(static_cast<uint32_t>(v));
    }
  }
}

void count_bits(const uint32_t* a, const uint32_t* b, unsigned words, bool exclusive_or,
                double* sum) {
  for (unsigned r = 0; r < kTileRows; ++r) {
    for (unsigned c = 0; c < kTileCols; ++c) {
      int n = 0;
      for (unsigned k = 0; k < words; ++k) {
        const uint32_t x = a[k * kTileRows + r], y = b[k * kTileCols + c];
        n += __builtin_popcount(exclusive_or ? x ^ y : x & y);
      }
      sum[r * kTileCols + c] = n;
    }
  }
}

}  // namespace sim::SIM_ISA
