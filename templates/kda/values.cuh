// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Values of 16 tokens in the walks of KDA: rows of v, or of the gradient of o, in shared memory and
// in a lane, and what becomes of sums of them as operands of the next product.
#pragma once
#include "common/async_copy.cuh"
#include "common/operand.cuh"
#include "kda/tile.cuh"

namespace lathe {

// Rows of v, or of the gradient of o, in shared memory: kColumns values of kRows tokens. 16-bit
// ones are a tile and read by ldmatrix, float32 ones lie in rows whose pitch lets the lanes of an
// accumulator read from different banks.
template <class Element, int kRows, int kColumns>
struct KdaValueTile {
  using Tile = KdaTile<kRows, (kColumns + 63) / 64 * 64>;
  static constexpr int kBytes = Tile::kBytes;
  static __device__ __forceinline__ int offset(int row, int column) {
    return Tile::offset(row, column / 8) + column % 8 * 2;
  }
};
template <int kRows, int kColumns>
struct KdaValueTile<f32, kRows, kColumns> {
  static constexpr int kPitch = kColumns + 4;  // words
  static constexpr int kBytes = kRows * kPitch * 4;
  static __device__ __forceinline__ int offset(int row, int column) {
    return 4 * (row * kPitch + column);
  }
};

// 8 or 16 bytes to shared memory; zeros where `wanted` is false.
template <int kBytes>
__device__ __forceinline__ void copy_async_some(unsigned to, const void* from, bool wanted) {
  if constexpr (kBytes == 16) {
    copy_async(to, from, wanted);
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(wanted ? 8 : 0)
                 : "memory");
  }
}

// 8x8 elements across the warp, transposed.
__device__ __forceinline__ unsigned transpose_matrix(unsigned word) {
  unsigned turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(word));
  return turned;
}

// A finite number cut to what the element can hold: the norm of a row of zeros multiplies by 1000,
// and what that makes of a float16 must not be infinite times 0.
template <class Element>
__device__ __forceinline__ float cut_to(float value) {
  return value;
}
template <>
__device__ __forceinline__ float cut_to<f16>(float value) {
  constexpr float kMost = 65504.0f;
  const bool finite = fabsf(value) < bit_cast<float>(0x7f800000u);
  return finite ? fminf(fmaxf(value, -kMost), kMost) : value;
}

// Accumulators that become an operand, in two parts where elements have 16 bits: rounded, and what
// that left. Nearly the same keys take back what the one before wrote, so that of values of many
// tokens their roundings remain; with both parts errors are a half to a twentieth.
template <class Element, int kParts = sizeof(Element) == 2 ? 2 : 1>
struct KdaSplit {
  Fragment<Element> part[kParts];

  __device__ __forceinline__ explicit KdaSplit(const float (&x)[2][4]) {
    part[0] = fragment_of<Element>(x[0], x[1]);
    if constexpr (kParts == 2) {
      float rest[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float first, second;
        unpack_pair(part[0].word[0][i], Element{}, first, second);
        const int at = i % 2 * 2;
        rest[i / 2][at] = __fsub_rn(x[i / 2][at], first);
        rest[i / 2][at + 1] = __fsub_rn(x[i / 2][at + 1], second);
      }
      part[1] = fragment_of<Element>(rest[0], rest[1]);
    }
  }
  explicit KdaSplit() = default;
};

// sums += rows B, the smaller part first.
template <class Element, int kParts>
__device__ __forceinline__ void multiply_add_split(float (&first)[4], float (&second)[4],
                                                   const KdaSplit<Element, kParts>& rows,
                                                   const Fragment<Element>& b) {
#pragma unroll
  for (int i = kParts - 1; i >= 0; --i) {
    multiply_add_pair(first, second, rows.part[i], b);
  }
}

// Values of 16 tokens as a lane holds accumulators of them, transposed: of tile n, words 2h and
// 2h + 1 are value g + 8h of tokens 8n + 2t and the next. Elements of 16 bits stay packed: as they
// are they are an operand.
template <class Element>
struct KdaValues {
  unsigned word[4];
  __device__ __forceinline__ void pair(int n, int h, float& first, float& second) const {
    unpack_pair(word[2 * n + h], Element{}, first, second);
  }
  __device__ __forceinline__ KdaSplit<Element, 1> operand() const {
    KdaSplit<Element, 1> rows;
#pragma unroll
    for (int i = 0; i < 4; ++i) rows.part[0].word[0][i] = word[i];
    return rows;
  }
};
template <>
struct KdaValues<f32> {
  float value[2][4];
  __device__ __forceinline__ void pair(int n, int h, float& first, float& second) const {
    first = value[n][2 * h], second = value[n][2 * h + 1];
  }
  __device__ __forceinline__ KdaSplit<f32, 1> operand() const { return KdaSplit<f32, 1>(value); }
};

// sum += 0 times both halves of the word: NaN for what is not finite.
__device__ __forceinline__ void add_nothing(unsigned& sum, unsigned word, bf16) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(word), "r"(0));
}
__device__ __forceinline__ void add_nothing(unsigned& sum, unsigned word, f16) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(word), "r"(0));
}
// Returns whether the rows hold numbers alone; the first plane of a float32 shows it.
template <class Element, int kParts>
__device__ __forceinline__ bool all_finite(const KdaSplit<Element, kParts>& rows) {
  using Plane = typename Choose<sizeof(Element) == 4, bf16, Element>::Type;
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) add_nothing(sum, rows.part[0].word[0][i], Plane{});
  return __all_sync(0xffffffffu, sum == 0) != 0;
}

}  // namespace lathe
