// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Operands of the products. One of 16-bit elements is a fragment of mma.sync. A float32 one is
// three bfloat16 planes, x = x0 + x1 + x2: 8 bits of the significand each and the exponents of
// float32, so that nothing is lost, and tiles, swizzle and loads are those of 16-bit elements. Of a
// product the terms x0 y0, x0 y1, x1 y0, x0 y2, x1 y1 and x2 y0 are kept; the others are below
// 2^-22 of it together, and of either sign. (Markidis et al., NVIDIA Tensor Core Programmability,
// Performance & Precision, 2018, with three planes for two.)
#pragma once
#include "common/mma.cuh"

namespace lathe {

template <class Element>
struct Operand {
  static constexpr int kPlanes = 1;
};
template <>
struct Operand<f32> {
  static constexpr int kPlanes = 3;
};

template <class Element>
struct Fragment {
  unsigned word[Operand<Element>::kPlanes][4];
};

// first += A B of the columns 0-7 of B, second += A B of 8-15.
template <class Element>
__device__ __forceinline__ void multiply_add_pair(float (&first)[4], float (&second)[4],
                                                  const Fragment<Element>& a,
                                                  const Fragment<Element>& b) {
  multiply_add(first, a.word[0], b.word[0][0], b.word[0][1], Element{});
  multiply_add(second, a.word[0], b.word[0][2], b.word[0][3], Element{});
}

// A product of float32 operands is made of these planes of A and B, the smallest terms first.
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

// sum += A B of eight columns of B, words kFirst and kSecond of a fragment of it.
template <int kFirst, int kSecond, class Element>
__device__ __forceinline__ void multiply_add_words(float (&sum)[4], const Fragment<Element>& a,
                                                   const Fragment<Element>& b) {
  if constexpr (Operand<Element>::kPlanes == 1) {
    multiply_add(sum, a.word[0], b.word[0][kFirst], b.word[0][kSecond], Element{});
  } else {
    float product[4] = {};
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      const unsigned(&y)[4] = b.word[kTermB[i]];
      multiply_add(product, a.word[kTermA[i]], y[kFirst], y[kSecond], bf16{});
    }
    add_product(sum, product);
  }
}
// The columns 0-7 of B alone, or with kSecond 8-15.
template <bool kSecond, class Element>
__device__ __forceinline__ void multiply_add_half(float (&sum)[4], const Fragment<Element>& a,
                                                  const Fragment<Element>& b) {
  constexpr int kFrom = kSecond ? 2 : 0;
  multiply_add_words<kFrom, kFrom + 1>(sum, a, b);
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

// Neighbours -> a word of each plane, however many an element has.
template <class Element>
__device__ __forceinline__ void pack_planes(float first, float second, unsigned (&plane)[1]) {
  plane[0] = pack_pair(first, second, Element{});
}
template <class Element>
__device__ __forceinline__ void pack_planes(float first, float second, unsigned (&plane)[3]) {
  split_pair(first, second, plane);
}

// Accumulators of 16 rows and 16 columns as operand A of a product, or four words of neighbours
// that were made otherwise.
template <class Element>
__device__ __forceinline__ void put_pair(Fragment<Element>& to, int word, float first,
                                         float second) {
  constexpr int kPlanes = Operand<Element>::kPlanes;
  unsigned plane[kPlanes];
  pack_planes<Element>(first, second, plane);
#pragma unroll
  for (int i = 0; i < kPlanes; ++i) to.word[i][word] = plane[i];
}
template <class Element>
__device__ __forceinline__ Fragment<Element> fragment_of(const float (&left)[4],
                                                         const float (&right)[4]) {
  Fragment<Element> to;
  put_pair(to, 0, left[0], left[1]), put_pair(to, 1, left[2], left[3]);
  put_pair(to, 2, right[0], right[1]), put_pair(to, 3, right[2], right[3]);
  return to;
}

// Takes an address in the first plane; the planes lie kBytes apart.
template <class Element, int kBytes>
__device__ __forceinline__ void load_planes(Fragment<Element>& to, unsigned address) {
#pragma unroll
  for (int i = 0; i < Operand<Element>::kPlanes; ++i) {
    load_matrix(to.word[i], address + i * kBytes);
  }
}
template <class Element, int kBytes>
__device__ __forceinline__ void load_planes_transposed(Fragment<Element>& to, unsigned address) {
#pragma unroll
  for (int i = 0; i < Operand<Element>::kPlanes; ++i) {
    load_matrix_transposed(to.word[i], address + i * kBytes);
  }
}

}  // namespace lathe
