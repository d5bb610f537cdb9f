// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Operands of the products. One of 16-bit elements is a fragment of mma.sync. A float32 one is
// three bfloat16 planes, x = x0 + x1 + x2: 8 bits of the significand each and the exponents of
// float32, so that nothing is lost, and tiles, swizzle and loads are those of 16-bit elements. Of a
// product the terms x0 y0, x0 y1, x1 y0, x0 y2, x1 y1 and x2 y0 are kept; the others are below
// 2^-22 of it together, and of either sign. (Markidis et al., NVIDIA Tensor Core Programmability,
// Performance & Precision, 2018, with three planes for two.)
#pragma once
#include "attention/tile.cuh"

namespace lathe {

template <class Element>
struct Operand {
  static constexpr int kPlanes = 1;
};
template <>
struct Operand<f32> {
  static constexpr int kPlanes = 3;
};

// Planes lie one after another.
template <class Element, int kRows, int kWidth>
__host__ __device__ constexpr int tile_bytes() {
  return Operand<Element>::kPlanes * Tile<kRows, kWidth>::kBytes;
}

template <class Element>
struct Fragment {
  unsigned word[Operand<Element>::kPlanes][4];
};

template <class Element, int kRows, int kWidth>
__device__ __forceinline__ void load_fragment(Fragment<Element>& to,
                                              const TileReader<kRows, kWidth>& reader,
                                              int row_block, int column_block) {
#pragma unroll
  for (int plane = 0; plane < Operand<Element>::kPlanes; ++plane) {
    load_matrix(to.word[plane],
                reader.at(row_block, column_block) + plane * Tile<kRows, kWidth>::kBytes);
  }
}
template <class Element, int kRows, int kWidth>
__device__ __forceinline__ void load_fragment_transposed(Fragment<Element>& to,
                                                         const TileReader<kRows, kWidth>& reader,
                                                         int row_block, int column_block) {
#pragma unroll
  for (int plane = 0; plane < Operand<Element>::kPlanes; ++plane) {
    load_matrix_transposed(
        to.word[plane], reader.at(row_block, column_block) + plane * Tile<kRows, kWidth>::kBytes);
  }
}

// first += A B of the columns 0-7 of B, second += A B of 8-15.
template <class Element>
__device__ __forceinline__ void multiply_add_pair(float (&first)[4], float (&second)[4],
                                                  const Fragment<Element>& a,
                                                  const Fragment<Element>& b) {
  multiply_add(first, a.word[0], b.word[0][0], b.word[0][1], Element{});
  multiply_add(second, a.word[0], b.word[0][2], b.word[0][3], Element{});
}

// What a product of float32 operands is made of: planes of A and B, smallest terms first.
constexpr int kTermA[] = {0, 2, 1, 0, 1, 0}, kTermB[] = {2, 0, 1, 1, 0, 0};

// The tensor core cuts its sums where float32 rounds them: a product is gathered from nothing and
// added by the ordinary unit, so that cuts do not add up along a row. (Ootomo and Yokota,
// Recovering single precision accuracy from Tensor Cores, 2022.)
__device__ __forceinline__ void add_product(float (&sum)[4], const float (&product)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = __fadd_rn(sum[i], product[i]);
}
template <>
__device__ __forceinline__ void multiply_add_pair<f32>(float (&first)[4], float (&second)[4],
                                                       const Fragment<f32>& a,
                                                       const Fragment<f32>& b) {
  float left[4] = {}, right[4] = {};
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    const unsigned(&x)[4] = a.word[kTermA[i]];
    const unsigned(&y)[4] = b.word[kTermB[i]];
    multiply_add(left, x, y[0], y[1], bf16{});
    multiply_add(right, x, y[2], y[3], bf16{});
  }
  add_product(first, left);
  add_product(second, right);
}

// Neighbours -> a word of each plane. The first is cut, for rounding could make it infinite; the
// second is rounded, so that what a product leaves out has either sign.
__device__ __forceinline__ unsigned first_plane(float first, float second) {
  return __byte_perm(bit_cast<unsigned>(first), bit_cast<unsigned>(second), 0x7632);
}
__device__ __forceinline__ float after_first_plane(float value) {
  return __fsub_rn(value, bit_cast<float>(bit_cast<unsigned>(value) & 0xffff0000u));
}
__device__ __forceinline__ void split_rest(float first, float second, unsigned (&plane)[3]) {
  plane[1] = pack_pair(first, second, bf16{});
  float first_part, second_part;
  unpack_pair(plane[1], bf16{}, first_part, second_part);
  plane[2] = pack_pair(__fsub_rn(first, first_part), __fsub_rn(second, second_part), bf16{});
}
__device__ __forceinline__ void split_pair(float first, float second, unsigned (&plane)[3]) {
  plane[0] = first_plane(first, second);
  split_rest(after_first_plane(first), after_first_plane(second), plane);
}
// The same of any values: infinities and NaN are in the first plane alone. (A product of infinity
// is then infinity or, where a plane of the other factor is 0, NaN; it is never finite.)
__device__ __forceinline__ void split_any_pair(float first, float second, unsigned (&plane)[3]) {
  const auto clean = [](float value) {
    return value != value ? bit_cast<float>(0x7fffffffu) : value;
  };
  const auto rest = [](float value) {
    return fabsf(value) < bit_cast<float>(0x7f800000u) ? after_first_plane(value) : 0.0f;
  };
  plane[0] = first_plane(clean(first), clean(second));
  split_rest(rest(first), rest(second), plane);
}

// Accumulators of 16 rows and kTiles * 8 columns that become operand A of the next product, as they
// lie: two neighbouring tiles are a fragment. Rounded at once to a 16-bit element, but float32 ones
// stay whole until they are used, which takes fewer registers than their planes.
template <class Element, int kTiles>
struct Accumulated {
  unsigned word[kTiles / 2][4];

  // Columns 2t, 2t + 1 of tile n; `half` 1: of row g + 8.
  __device__ __forceinline__ void put(int n, int half, float first, float second) {
    word[n / 2][n % 2 * 2 + half] = pack_pair(first, second, Element{});
  }
  __device__ __forceinline__ Fragment<Element> operand(int j) const {
    return {{{word[j][0], word[j][1], word[j][2], word[j][3]}}};
  }
};
template <int kTiles>
struct Accumulated<f32, kTiles> {
  float value[kTiles][2][2];

  __device__ __forceinline__ void put(int n, int half, float first, float second) {
    value[n][half][0] = first, value[n][half][1] = second;
  }
  __device__ __forceinline__ Fragment<f32> operand(int j) const {
    Fragment<f32> result;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned plane[3];
      const float(&pair)[2] = value[2 * j + i / 2][i % 2];
      split_pair(pair[0], pair[1], plane);
      result.word[0][i] = plane[0], result.word[1][i] = plane[1], result.word[2][i] = plane[2];
    }
    return result;
  }
};

// sum += the rows of A, in two halves, gathered and rounded as a column of ones of B would be.
__device__ __forceinline__ void add_row_sums(float (&sum)[2], const Fragment<f32>& a) {
  constexpr unsigned kOnes = 0x3f803f80u;
  float product[4] = {};
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    if (kTermB[i] == 0) multiply_add(product, a.word[kTermA[i]], kOnes, kOnes, bf16{});
  }
  sum[0] = __fadd_rn(sum[0], product[0]), sum[1] = __fadd_rn(sum[1], product[2]);
}

}  // namespace lathe
