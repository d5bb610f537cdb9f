// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Decays of a block of 16 tokens multiplied together, level by level, and the sums of products of
// keys and queries that take their factors from them (kda/block.cuh).
#pragma once
#include "common/math.cuh"
#include "common/operand.cuh"

namespace lathe {

// x *= factor where `first`, else y *= factor. Two predicated instructions; selects would be four.
__device__ __forceinline__ void multiply_either(float& x, float& y, float factor, unsigned first) {
  asm("{\n\t.reg .pred first;\n\tsetp.ne.u32 first, %3, 0;\n\t@first mul.rn.f32 %0, %0, %2;\n\t"
      "@!first mul.rn.f32 %1, %1, %2;\n\t}"
      : "+f"(x), "+f"(y)
      : "f"(factor), "r"(first));
}

// x *= factor where `wanted`.
__device__ __forceinline__ void multiply_where(float& x, float factor, bool wanted) {
  asm("{\n\t.reg .pred wanted;\n\tsetp.ne.u32 wanted, %2, 0;\n\t@wanted mul.rn.f32 %0, %0, %1;\n\t}"
      : "+f"(x)
      : "f"(factor), "r"(static_cast<unsigned>(wanted)));
}

// Products of alpha within groups of a lane's tokens, token g and g + 8 of a block by kColumns
// columns: of 1 token first, of 16 in the end. `to` runs from the start of the group up to the
// token and with it, `after` from behind it to the end; both together are the group's.
template <int kColumns>
struct KdaProducts {
  float to[2][kColumns], after[2][kColumns];

  __device__ __forceinline__ explicit KdaProducts(const float (&alpha)[2][kColumns]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < kColumns; ++e) to[h][e] = alpha[h][e], after[h][e] = 1.0f;
    }
  }
  // Pairs of groups of `half` tokens become groups of twice as many; it is 1, 2 or 4.
  __device__ __forceinline__ void join(int half, int token) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < kColumns; ++e) {
        const float all = __fmul_rn(to[h][e], after[h][e]);
        const float other = __shfl_xor_sync(0xffffffffu, all, 4 * half);
        multiply_either(to[h][e], after[h][e], other, token & half);
      }
    }
  }
  template <int kHalf>
  __device__ __forceinline__ void join(int token) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < kColumns; ++e) {
        const float all = kHalf == 1 ? to[h][e] : __fmul_rn(to[h][e], after[h][e]);
        const float other = __shfl_xor_sync(0xffffffffu, all, 4 * kHalf);
        multiply_either(to[h][e], after[h][e], other, token & kHalf);
      }
    }
  }
  __device__ __forceinline__ void join_eights() {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      const float lower = __fmul_rn(to[0][e], after[0][e]);
      const float upper = __fmul_rn(to[1][e], after[1][e]);
      to[1][e] = __fmul_rn(to[1][e], lower);
      after[0][e] = __fmul_rn(after[0][e], upper);
    }
  }
};

// Accumulators of products with the factor of their pair, by level: words 0 and 1 are P of row g,
// words 2 and 3 R, columns 2t and 2t + 1; rows and columns of the block's half h, or at level 8
// rows of the upper half and columns of the lower.
struct KdaLevelScores {
  float eight[4] = {}, four[2][4] = {}, two[2][4] = {}, one[2][4] = {};

  // P and R of row g of half h and column 2t + i of half c, on or below the diagonal.
  __device__ __forceinline__ float queries(int h, int c, int i, int row, int column) const {
    return c < h ? eight[i] : below(h, i, row, column);
  }
  __device__ __forceinline__ float keys(int h, int c, int i, int row, int column) const {
    return c < h ? eight[2 + i] : below(h, 2 + i, row, column);
  }
  // Column c < row g of the same half: the level at which they part.
  __device__ __forceinline__ float below(int h, int word, int row, int column) const {
    const int parting = row ^ column;
    return parting >= 4 ? four[h][word] : parting >= 2 ? two[h][word] : one[h][word];
  }
};

// kWide is true if decays of 16 tokens and their reciprocals fit the type.
template <class Element>
struct ElementRange {
  static constexpr bool kWide = true;
};
template <>
struct ElementRange<f16> {
  static constexpr bool kWide = false;
};

// Products alpha_0 ... alpha_i of a block, of tokens g and g + 8 and four columns, and of all 16;
// those up to a token are `scaling` times as large.
struct KdaPrefixes {
  float to[2][4], all[4];

  __device__ __forceinline__ KdaPrefixes(const float (&alpha)[2][4], int token, float scaling) {
    const unsigned whole = 0xffffffffu;
    const int last = 28 + static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      to[0][e] = token == 0 ? __fmul_rn(alpha[0][e], scaling) : alpha[0][e];
      to[1][e] = alpha[1][e];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int from = 1; from < 8; from *= 2) {
          const float other = __shfl_up_sync(whole, to[h][e], 4 * from);
          multiply_where(to[h][e], other, token >= from);
        }
      }
      to[1][e] = __fmul_rn(to[1][e], __shfl_sync(whole, to[0][e], last));
      all[e] = __shfl_sync(whole, to[1][e], last);
    }
  }
};

// Accumulators of products of rows and columns as they are: P and R of all rows and the columns of
// the lower half, and those of the upper half, words 0 and 1 P of row g + 8, words 2 and 3 R.
struct KdaQuotientScores {
  float lower_queries[4] = {}, lower_keys[4] = {}, upper[4] = {};

  template <class Element>
  __device__ __forceinline__ void add(const Fragment<Element>& q, const Fragment<Element>& k,
                                      const Fragment<Element>& columns) {
    Fragment<Element> both;  // rows g + 8 of q and of k
#pragma unroll
    for (int n = 0; n < Operand<Element>::kPlanes; ++n) {
      both.word[n][0] = q.word[n][1], both.word[n][1] = k.word[n][1];
      both.word[n][2] = q.word[n][3], both.word[n][3] = k.word[n][3];
    }
    multiply_add_words<0, 2>(lower_queries, q, columns);
    multiply_add_words<0, 2>(lower_keys, k, columns);
    multiply_add_words<1, 3>(upper, both, columns);
  }
  __device__ __forceinline__ float queries(int h, int c, int i, int, int) const {
    return c == 0 ? lower_queries[2 * h + i] : upper[i];
  }
  __device__ __forceinline__ float keys(int h, int c, int i, int, int) const {
    return c == 0 ? lower_keys[2 * h + i] : upper[2 + i];
  }
};

// Rows q and k of one product, four columns of each, and the k alone as its columns: words 1 and 3.
template <class Element>
__device__ __forceinline__ Fragment<Element> rows_of(const float (&q)[4], const float (&k)[4]) {
  Fragment<Element> rows;
  put_pair(rows, 0, q[0], q[1]), put_pair(rows, 1, k[0], k[1]);
  put_pair(rows, 2, q[2], q[3]), put_pair(rows, 3, k[2], k[3]);
  return rows;
}

template <class Element>
__device__ __forceinline__ void add_level(float (&sum)[2][4], const float (&q)[2][4],
                                          const float (&k)[2][4], const KdaProducts<4>& products,
                                          bool upper) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float x[4], y[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float factor = upper ? products.to[h][e] : products.after[h][e];
      x[e] = __fmul_rn(q[h][e], factor), y[e] = __fmul_rn(k[h][e], factor);
    }
    const Fragment<Element> rows = rows_of<Element>(x, y);
    multiply_add_words<1, 3>(sum[h], rows, rows);
  }
}
template <class Element>
__device__ __forceinline__ void add_level_eight(float (&sum)[4], const float (&q)[2][4],
                                                const float (&k)[2][4],
                                                const KdaProducts<4>& products) {
  float x[4], y[4], columns[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    x[e] = __fmul_rn(q[1][e], products.to[1][e]), y[e] = __fmul_rn(k[1][e], products.to[1][e]);
    columns[e] = __fmul_rn(k[0][e], products.after[0][e]);
  }
  Fragment<Element> lower;
  put_pair(lower, 0, columns[0], columns[1]), put_pair(lower, 1, columns[2], columns[3]);
  multiply_add_words<0, 1>(sum, rows_of<Element>(x, y), lower);
}

// The sum of four columns over the 8 rows of a warp: lanes 8 c to 8 c + 7 get column c's of their
// place in the quad.
__device__ __forceinline__ float sum_over_rows(const float (&x)[4], int row) {
  const bool high = (row & 4) != 0, odd = (row & 2) != 0;
  float a = high ? x[2] : x[0], b = high ? x[3] : x[1];
  a += __shfl_xor_sync(0xffffffffu, high ? x[0] : x[2], 16);
  b += __shfl_xor_sync(0xffffffffu, high ? x[1] : x[3], 16);
  float sum = odd ? b : a;
  sum += __shfl_xor_sync(0xffffffffu, odd ? a : b, 8);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 4);
}

__device__ __forceinline__ float sum_over_quad(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

}  // namespace lathe
