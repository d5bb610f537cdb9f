// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The chain of kda_merge: a thread block takes some rows of states through the maps of segments one
// after another. With M and E, or D, of kda_summary, x' = M x + E of a state, and back x' = M^T x +
// D of its gradient.
//
// All of them lie transposed, a row of K numbers for each column of V or of M: S_p^T = S^T M_p^T +
// E_p^T. A thread block takes kRows rows through the whole chain, a warp 16 columns of them; rows
// do not meet, so a chain is serial over its links and parallel over everything else. Nobody but
// one warp reads its columns of M, so they go to registers, the next link's while this one's are
// multiplied: M does not wait for the state. The state of all warps is in shared memory, in the
// order in which products read it. Each block reads all of M, and the chain is as fast as memory
// gives it: 64 rows take more of a link's time than 16, and a quarter of what all blocks read.
//
// With one part, where Hopper's walks made M and E, M is its diagonal, in float32, and the rest, in
// bfloat16. The diagonal has what decays leave of a state; the rest is sums of beta k k^T, whose
// factors are bfloat16 already, as the rows are that the walks multiply. It multiplies the state in
// bfloat16, as rows of a walk do, so a link adds what one more block of tokens would to the error
// of a walk: 7e-4 of a state after eight links. sm90/cluster_chain.cuh does the same. Sums go on in
// the tensor core from what the diagonal and E give, as the state of a walk does.
//
// With two parts, for those of the portable walks, products are those of two TF32 parts of each
// operand, which have 22 bits, and sums are float32: after 32 links of weak decay all of M in
// bfloat16 would be wrong by 7.6e-3 and in TF32 by 1e-3, float32 is by 1.2e-7. The tensor core cuts
// its sums, so 16 numbers of the summed index are gathered from nothing and added by the ordinary
// unit. (Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores, 2022.
// kda/chain.cuh multiplies float32 as it is, a number after another: chains over ranks give the
// bits of their parts one after another.)
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

// The state before and behind a link, as first operands: of each 16 rows and 16 columns a fragment
// of bfloat16, or two of 8 columns in two parts.
template <class Config>
struct KdaMergeSmem {
  static constexpr int kParts = Config::kParts, kRows = Config::kRows;  // kRows: at most
  static constexpr int kSteps = Config::kWidth / 16;  // of the index that is summed over
  static constexpr int kPart = 32 * 16, kOperand = kParts == 1 ? kPart : 4 * kPart;
  static constexpr int kTile = kSteps * kOperand;  // of 16 rows
  static constexpr int kBytes = 2 * kRows / 16 * kTile;
  static_assert(Config::kThreads == 2 * Config::kWidth, "a warp for 16 columns");
  static_assert(kParts == 1 || kRows == 16, "there are registers for 16 rows in two parts");
};

// A lane 4 g + t has these numbers of 16 rows, as the sums of products: rows g and g + 8, columns
// 4 t to 4 t + 3 of its warp's 16. Column 4 t + e of row g + 8 h is sum[e % 2][2 h + e / 2].
struct KdaMergeNumbers {
  float sum[2][4];
};

// kReverse: a gradient, back through the chain. kTiles: of 16 rows, of a block.
template <class Config, bool kReverse, int kTiles>
struct KdaMergeChain {
  using Smem = KdaMergeSmem<Config>;
  static constexpr int kRows = 16 * kTiles, kSteps = Smem::kSteps;
  static constexpr bool kRounded = Smem::kParts == 1;
  // Steps whose part of M is in registers: as many as there are registers for.
  static constexpr bool kTight = kSteps > 8 || (kSteps == 8 && kRounded && !Config::kWhole);
  static constexpr int kAhead = kSteps > 12 ? 2 : kTight ? 4 : kSteps;
  // Two columns of a step, four numbers of the summed index: second operands in their order.
  using Maps = float[kAhead][8];
  using Numbers = KdaMergeNumbers[kTiles];

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
  __device__ __forceinline__ bool there(int row) const {
    return (Config::kWhole || column() < key_dim) && row < rows;
  }
  __device__ __forceinline__ unsigned operand(int link, int step) const {
    return states + link % 2 * (kTiles * Smem::kTile) + step * Smem::kOperand + 16 * (4 * g + t);
  }
  __device__ __forceinline__ void fetch(const float* map, int step, float (&to)[8]) const;
  __device__ __forceinline__ float diagonal_of(const float* map) const;
  __device__ __forceinline__ void load(const float* from, Numbers& numbers) const;
  __device__ __forceinline__ void store(float* to, const Numbers& numbers) const;
  __device__ __forceinline__ void keep_rounded(int link, const Numbers& x) const;
  __device__ __forceinline__ void keep_exactly(int link, const KdaMergeNumbers& x) const;
  __device__ __forceinline__ void scale(float diagonal, const Numbers& end, Numbers& x) const;
  __device__ __forceinline__ void multiply_rounded(unsigned from, bool own, const float (&map)[8],
                                                   Numbers& sum) const;
  __device__ __forceinline__ void multiply_exactly(unsigned from, const float (&map)[8],
                                                   KdaMergeNumbers& sum) const;
  __device__ __forceinline__ void multiply(int link, Maps& maps, Numbers& sum) const;
  __device__ __forceinline__ void run() const;
};

// The lane's part of a step of M; numbers past K are zeros. Of a step's 16 numbers a lane has four
// neighbours, and of the warp's 16 columns two: the state is dealt likewise, and the order of a sum
// is free.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::fetch(
    const float* map, int step, float (&to)[8]) const {
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

// The diagonal's numbers of the warp's columns, of one a lane, twice.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ float KdaMergeChain<Config, kReverse, kTiles>::diagonal_of(
    const float* map) const {
  const int at = 16 * warp + static_cast<int>(threadIdx.x % 16);
  Words<4> raw = {};
  if (Config::kWhole || at < key_dim) load_global(map + at * (pitch() + 1), raw);
  return bit_cast<float>(raw.word[0]);
}

// The lane's numbers of the block's rows; 0 where there are none. By plain loads: the chain writes
// where it has read.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::load(
    const float* from, Numbers& numbers) const {
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    const int row = 8 * i + g;
    float4 four = {};
    if (there(row)) four = *reinterpret_cast<const float4*>(from + row * pitch() + column());
    float(&sum)[2][4] = numbers[i / 2].sum;
    const int at = i % 2 * 2;
    sum[0][at] = four.x, sum[1][at] = four.y, sum[0][at + 1] = four.z, sum[1][at + 1] = four.w;
  }
}

template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::store(
    float* to, const Numbers& numbers) const {
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    const int row = 8 * i + g;
    if (!there(row)) continue;
    Words<16> four;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      four.word[e] = bit_cast<unsigned>(numbers[i / 2].sum[e % 2][i % 2 * 2 + e / 2]);
    }
    store_global(to + row * pitch() + column(), four);
  }
}

// Into the state before a link, as the operand that the lane itself would read.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::keep_rounded(
    int link, const Numbers& x) const {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    unsigned word[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = j % 2 * 2 + j / 2;
      word[j] = pack_pair(x[i].sum[0][at], x[i].sum[1][at], bf16{});
    }
    store_shared(operand(link, warp) + i * Smem::kTile, word);
  }
}

// The same in two parts. The first one is rounded where that leaves it finite, so that what
// products leave out, those of two second parts, has either sign.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::keep_exactly(
    int link, const KdaMergeNumbers& x) const {
  const unsigned at = operand(link, warp);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned first[4], second[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float value = x.sum[i / 2][i % 2 * 2 + half];
      const bool stays = fabsf(value) < bit_cast<float>(0x7f7ff000u);  // finite; no NaN does
      const float part = stays ? round_to_tf32(value) : cut_to_tf32(value);
      first[i] = bit_cast<unsigned>(part);
      second[i] = bit_cast<unsigned>(round_to_tf32(__fsub_rn(value, part)));
    }
    store_shared(at + 2 * half * Smem::kPart, first);
    store_shared(at + (2 * half + 1) * Smem::kPart, second);
  }
}

// x times the diagonal, and E.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::scale(float diagonal,
                                                                               const Numbers& end,
                                                                               Numbers& x) const {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float factor = __shfl_sync(0xffffffffu, diagonal, 4 * t + e);
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      float& value = x[i / 2].sum[e % 2][i % 2 * 2 + e / 2];
      value = __fmaf_rn(value, factor, end[i / 2].sum[e % 2][i % 2 * 2 + e / 2]);
    }
  }
}

// Adds a step's products to the sums. `own`: the step of the warp's own columns, whose diagonal is
// left out. Lanes with t = g / 2 have two numbers of it.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::multiply_rounded(
    unsigned from, bool own, const float (&map)[8], Numbers& sum) const {
  const bool even = own && g == 2 * t, odd = own && g == 2 * t + 1;
  unsigned word[4];
  word[0] = pack_pair(even ? 0.0f : map[0], map[1], bf16{});
  word[1] = pack_pair(odd ? 0.0f : map[2], map[3], bf16{});
  word[2] = pack_pair(map[4], even ? 0.0f : map[5], bf16{});
  word[3] = pack_pair(map[6], odd ? 0.0f : map[7], bf16{});
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    unsigned rows_of_state[4];
    load_shared(from + i * Smem::kTile, rows_of_state);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      multiply_add(sum[i].sum[n], rows_of_state, word[2 * n], word[2 * n + 1], bf16{});
    }
  }
}

// The same in two parts.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::multiply_exactly(
    unsigned from, const float (&map)[8], KdaMergeNumbers& sum) const {
  float left[4] = {}, right[4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float first[4], second[4], m[2][2], rest[2][2];
    load_shared(from + 2 * half * Smem::kPart, first);
    load_shared(from + (2 * half + 1) * Smem::kPart, second);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float x = map[j / 2 * 4 + 2 * half + j % 2];
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
  add_product(sum.sum[0], left);
  add_product(sum.sum[1], right);
}

// Adds S^T M^T of a link, or dS^T M; `maps` goes on to the steps that come kAhead later.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::multiply(
    int link, Maps& maps, Numbers& sum) const {
  const float* const map = transitions + link * transition_stride;
  // The last link is read again: for nothing, but nobody asks.
  const float* const next = link + 1 < links ? map + transition_stride : map;
#pragma unroll 1
  for (int group = 0; group < kSteps; group += kAhead) {
    const bool last = group + kAhead == kSteps;
    const float* const ahead = last ? next : map;
    const int ahead_step = last ? 0 : group + kAhead;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const unsigned from = operand(link, group + i);
      if constexpr (kRounded) {
        multiply_rounded(from, group + i == warp, maps[i], sum);
      } else {
        multiply_exactly(from, maps[i], sum[0]);
      }
      fetch(ahead, ahead_step + i, maps[i]);
    }
  }
}

template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void KdaMergeChain<Config, kReverse, kTiles>::run() const {
  Maps maps;
#pragma unroll
  for (int step = 0; step < kAhead; ++step) fetch(transitions, step, maps[step]);
  Numbers x, end;
  float diagonal = 0.0f;
  load(begin, x);
  if constexpr (kRounded) load(ends, end), diagonal = diagonal_of(transitions);
#pragma unroll 1
  for (int link = 0; link < links; ++link) {
    float* const to = ends + link * end_stride;
    if constexpr (kRounded) {
      keep_rounded(link, x);
      scale(diagonal, end, x);
      if (link + 1 < links) {
        load(to + end_stride, end);
        diagonal = diagonal_of(transitions + (link + 1) * transition_stride);
      }
    } else {
      keep_exactly(link, x[0]);
      load(to, end);
    }
    // Every warp's part of the state is there, and all have left the one before the last.
    __syncthreads();
    if constexpr (kRounded) {
      multiply(link, maps, x);
    } else {
      x[0] = {};
      multiply(link, maps, x);
      add_product(x[0].sum[0], end[0].sum[0]);
      add_product(x[0].sum[1], end[0].sum[1]);
    }
    store(to, x);
  }
}

}  // namespace lathe
