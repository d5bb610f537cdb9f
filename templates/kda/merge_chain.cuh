// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The chain of kda_merge: a thread block takes 16 rows of states through the maps of segments one
// after another. With M and E, or D, of kda_summary, x' = M x + E of a state, and back x' = M^T x +
// D of its gradient.
//
// All of them lie transposed, a row of K numbers for each column of V or of M: S_p^T = S^T M_p^T +
// E_p^T. A thread block takes kRows rows through the whole chain, a warp 16 columns of them; rows
// do not meet, so a chain is serial over its links and parallel over everything else. Nobody but
// one warp reads its columns of M, so they go to registers, the next link's while this one's are
// multiplied: M does not wait for the state. The state of all warps is in shared memory, in the
// order in which products read it. Products are those of two TF32 parts of each operand, which have
// 22 bits, and sums are float32: after 32 links a bfloat16 chain is wrong by 7.6e-3 and TF32 by
// 1e-3, float32 by 1.2e-7. The tensor core cuts its sums, so 16 numbers of the summed index are
// gathered from nothing and added by the ordinary unit. (Ootomo and Yokota, Recovering single
// precision accuracy from Tensor Cores, 2022. kda/chain.cuh multiplies float32 as it is, a number
// after another: chains over ranks give the bits of their parts one after another.)
#pragma once
#include "kda/scan.cuh"

namespace lathe {

// A number of float32 cut to TF32, and rounded. The first part of a sum of two is cut, for rounding
// could make it infinite; the second one is rounded, for cuts of one sign would add up from link to
// link.
__device__ __forceinline__ float cut_to_tf32(float x) {
  return bit_cast<float>(bit_cast<unsigned>(x) & 0xffffe000u);
}
__device__ __forceinline__ float round_to_tf32(float x) {
  return bit_cast<float>((bit_cast<unsigned>(x) + 0x1000u) & 0xffffe000u);
}

// The state before and behind a link, as first operands: of each 16 columns two fragments, each in
// two parts.
template <class Config>
struct KdaMergeSmem {
  static constexpr int kRows = 16;
  static constexpr int kSteps = Config::kWidth / 16;  // of the index that is summed over
  static constexpr int kPart = 32 * 16, kOperand = 4 * kPart;
  static constexpr int kState = kSteps * kOperand;
  static constexpr int kBytes = 2 * kState;
  static_assert(Config::kThreads == 2 * Config::kWidth, "a warp for 16 columns");
};

// What a lane 4 g + t has of the state: rows g and g + 8, columns 4 t to 4 t + 3 of its warp's 16.
struct KdaMergeNumbers {
  float x[2][4];
};

// kReverse: a gradient, back through the chain.
template <class Config, bool kReverse>
struct KdaMergeChain {
  using Smem = KdaMergeSmem<Config>;
  static constexpr int kRows = Smem::kRows, kSteps = Smem::kSteps;
  // Steps whose part of M is in registers: as many as there are registers for.
  static constexpr int kAhead = kSteps > 12 ? 2 : kSteps > 8 ? 4 : kSteps;
  // Two columns of a step, four numbers of the summed index: second operands in their order.
  using Maps = float[kAhead][8];

  const unsigned states;  // shared memory
  const int warp, g, t;
  int key_dim = 0;  // K
  int rows = 0;     // of the block's that exist
  int links = 0;
  const float* transitions = nullptr;  // row 0 of M^T of the first link
  long long transition_stride = 0;     // from a link to the next
  const float* begin = nullptr;        // the block's rows of what goes in
  float* ends = nullptr;               // of the first link's E or D, which x behind it replaces
  long long end_stride = 0;

  __device__ __forceinline__ explicit KdaMergeChain(unsigned shared)
      : states(shared),
        warp(static_cast<int>(threadIdx.x / 32)),
        g(static_cast<int>(threadIdx.x % 32 / 4)),
        t(static_cast<int>(threadIdx.x % 4)) {}
  __device__ __forceinline__ int column() const { return 16 * warp + 4 * t; }
  // Numbers from a row to the next one.
  __device__ __forceinline__ int pitch() const { return Config::kWhole ? Config::kWidth : key_dim; }
  __device__ __forceinline__ bool there(int h) const {
    return (Config::kWhole || column() < key_dim) && g + 8 * h < rows;
  }
  __device__ __forceinline__ void fetch(const float* map, int step, float (&to)[8]) const;
  __device__ __forceinline__ KdaMergeNumbers load(const float* from) const;
  __device__ __forceinline__ void store(float* to, const KdaMergeNumbers& numbers) const;
  __device__ __forceinline__ void keep(int turn, const KdaMergeNumbers& numbers) const;
  __device__ __forceinline__ KdaMergeNumbers multiply(int link, Maps& maps) const;
  __device__ __forceinline__ void run() const;
};

// The lane's part of a step of M; numbers past K are zeros. Of a step's 16 numbers a lane has four
// neighbours, and of the warp's 16 columns two: the state is dealt likewise, and the order of a sum
// is free.
template <class Config, bool kReverse>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse>::fetch(const float* map, int step,
                                                                       float (&to)[8]) const {
  const int inner = 16 * step + 4 * t, first = 16 * warp + 2 * g;
  const bool inside = Config::kWhole || (inner < key_dim && first < key_dim);
  const float* const of_lane =
      kReverse ? map + first * pitch() + 4 * t : map + 4 * t * pitch() + first;
  if constexpr (kReverse) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      Words<16> raw = {};
      if (inside) load_global(of_lane + (n * pitch() + 16 * step), raw);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[4 * n + i] = bit_cast<float>(raw.word[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Words<8> raw = {};
      if (inside) load_global(of_lane + (16 * step + i) * pitch(), raw);
#pragma unroll
      for (int n = 0; n < 2; ++n) to[4 * n + i] = bit_cast<float>(raw.word[n]);
    }
  }
}

// The lane's numbers of the block's rows; 0 where there are none. By plain loads: the chain writes
// where it has read.
template <class Config, bool kReverse>
__device__ __forceinline__ KdaMergeNumbers
KdaMergeChain<Config, kReverse>::load(const float* from) const {
  KdaMergeNumbers numbers;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float4 four = {};
    if (there(h)) {
      four = *reinterpret_cast<const float4*>(from + (g + 8 * h) * pitch() + column());
    }
    numbers.x[h][0] = four.x, numbers.x[h][1] = four.y;
    numbers.x[h][2] = four.z, numbers.x[h][3] = four.w;
  }
  return numbers;
}

template <class Config, bool kReverse>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse>::store(
    float* to, const KdaMergeNumbers& numbers) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (!there(h)) continue;
    Words<16> four;
#pragma unroll
    for (int i = 0; i < 4; ++i) four.word[i] = bit_cast<unsigned>(numbers.x[h][i]);
    store_global(to + (g + 8 * h) * pitch() + column(), four);
  }
}

// Into the state behind link `turn` - 1, as the operand that the lane itself would read. Its first
// part is rounded where that leaves it finite, so that what products leave out, those of two second
// parts, has either sign.
template <class Config, bool kReverse>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse>::keep(
    int turn, const KdaMergeNumbers& numbers) const {
  const unsigned at = states + turn % 2 * Smem::kState + warp * Smem::kOperand + 16 * (4 * g + t);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned first[4], second[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = numbers.x[i % 2][2 * half + i / 2];
      const bool stays = fabsf(x) < bit_cast<float>(0x7f7ff000u);  // finite; no NaN does
      const float part = stays ? round_to_tf32(x) : cut_to_tf32(x);
      first[i] = bit_cast<unsigned>(part);
      second[i] = bit_cast<unsigned>(round_to_tf32(__fsub_rn(x, part)));
    }
    store_shared(at + 2 * half * Smem::kPart, first);
    store_shared(at + (2 * half + 1) * Smem::kPart, second);
  }
}

// Returns S^T M^T of a link, or dS^T M; `maps` goes on to the steps that come kAhead later.
template <class Config, bool kReverse>
__device__ __forceinline__ KdaMergeNumbers
KdaMergeChain<Config, kReverse>::multiply(int link, Maps& maps) const {
  const float* const map = transitions + link * transition_stride;
  // The last link is read again: for nothing, but nobody asks.
  const float* const next = link + 1 < links ? map + transition_stride : map;
  unsigned from = states + link % 2 * Smem::kState + 16 * (4 * g + t);
  float even[4] = {}, odd[4] = {};  // columns
#pragma unroll 1
  for (int group = 0; group < kSteps; group += kAhead) {
    const bool last = group + kAhead == kSteps;
    const float* const ahead = last ? next : map;
    const int ahead_step = last ? 0 : group + kAhead;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      float left[4] = {}, right[4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float first[4], second[4], m[2][2], rest[2][2];
        load_shared(from + 2 * half * Smem::kPart, first);
        load_shared(from + (2 * half + 1) * Smem::kPart, second);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float x = maps[i][j / 2 * 4 + 2 * half + j % 2];
          m[j / 2][j % 2] = cut_to_tf32(x);
          rest[j / 2][j % 2] = round_to_tf32(__fsub_rn(x, m[j / 2][j % 2]));
        }
        multiply_add_tf32(left, second, m[0][0], m[0][1]);
        multiply_add_tf32(right, second, m[1][0], m[1][1]);
        multiply_add_tf32(left, first, rest[0][0], rest[0][1]);
        multiply_add_tf32(right, first, rest[1][0], rest[1][1]);
        multiply_add_tf32(left, first, m[0][0], m[0][1]);
        multiply_add_tf32(right, first, m[1][0], m[1][1]);
      }
      from += Smem::kOperand;
      fetch(ahead, ahead_step + i, maps[i]);
      add_product(even, left);
      add_product(odd, right);
    }
  }
  KdaMergeNumbers sum;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum.x[i / 2][i % 2 * 2] = even[i], sum.x[i / 2][i % 2 * 2 + 1] = odd[i];
  }
  return sum;
}

template <class Config, bool kReverse>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse>::run() const {
  Maps maps;
#pragma unroll
  for (int step = 0; step < kAhead; ++step) fetch(transitions, step, maps[step]);
  KdaMergeNumbers x = load(begin);
#pragma unroll 1
  for (int link = 0; link < links; ++link) {
    keep(link, x);
    float* const to = ends + link * end_stride;
    const KdaMergeNumbers end = load(to);
    // Every warp's part of the state is there, and all have left the one before the last.
    __syncthreads();
    x = multiply(link, maps);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x.x[i / 4][i % 4] = __fadd_rn(x.x[i / 4][i % 4], end.x[i / 4][i % 4]);
    }
    store(to, x);
  }
}

}  // namespace lathe
