// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_merge: the chain over the segments of a sequence, in place. With E, M and D of kda_summary,
//
//   S_p = M_p S_{p-1} + E_p,  p from 1 on       dS_p = M_p^T dS_{p+1} + D_p,  p down to 1
//
// S_p is the state behind segment p (S_0 = E_0), dS_p the gradient before it (the last one's is D).
// The last segment's S is nobody's start and the first one's dS nobody's end: they are left out,
// and so are segments without tokens.
//
// All of them lie transposed, a row of K numbers for each column of V or of M: S_p^T = S^T M_p^T +
// E_p^T. A thread block takes kRows rows through the whole chain, a thread one column of them; rows
// do not meet, so the chain is serial over segments and parallel over everything else. M comes
// through shared memory in slices of kInner of the summed index, rows of M^T forward and columns of
// it backward, kStages of them in a ring that does not stop at a segment's end: M does not wait for
// the state. Eight rows, because then a number of M serves eight products for one load of it and
// two of the state that all lanes share, while the rows of four heads of 128 still make 64 blocks:
// segments are for few heads. Products and sums are float32: after 32 links a bfloat16 chain is
// wrong by 7.6e-3 and TF32 by 1e-3, float32 by 1.2e-7.
#pragma once
#include "kda/scan.cuh"

namespace lathe {

// [slices of M][the state before and behind a link]
template <class Config>
struct KdaMergeSmem {
  static constexpr int kRows = 8, kStages = 3;
  // A power of two, a slice at most 16 KiB.
  static constexpr int kInner = Config::kWidth <= 64 ? 64 : Config::kWidth <= 128 ? 32 : 16;
  static constexpr int kSlice = 4 * kInner * Config::kWidth;
  static constexpr int kState = 4 * kRows * Config::kWidth;
  static constexpr int kBytes = kStages * kSlice + 2 * kState;
  static_assert(Config::kThreads == Config::kWidth, "a thread for each column");
};

// kReverse: dS.
template <class Config, bool kReverse>
struct KdaChain {
  using Smem = KdaMergeSmem<Config>;
  static constexpr int kRows = Smem::kRows, kInner = Smem::kInner;

  const KdaMergeParams& p;
  const unsigned slices, states;  // shared memory
  const int column;               // of S^T: the thread's own
  int row, used;                  // the block's first row of S^T; segments that have tokens
  const float* transitions;       // row 0 of M^T of segment 0, its sequence, its head
  float* ends;                    // the block's rows of segment 0
  long long transition_stride, end_stride;  // from a segment to the next

  __device__ __forceinline__ KdaChain(const KdaMergeParams& params, unsigned block,
                                      unsigned shared);
  __device__ __forceinline__ int links() const { return maximum(used - 2, 0); }
  __device__ __forceinline__ int segment(int link) const {
    return kReverse ? used - 2 - link : 1 + link;
  }
  __device__ __forceinline__ int inner_slices() const { return ceil_div(p.key_dim, kInner); }
  // Row `row` of a slice of columns: 16-byte pieces of neighbouring rows fall into different banks.
  static __device__ __forceinline__ int piece(int row, int at) {
    return row * (kInner / 4) + (at ^ (kInner < 32 ? row / 2 % 4 : row % 8));
  }
  __device__ __forceinline__ void fetch(int slice) const;
  __device__ __forceinline__ void load_ends(int segment, float (&x)[kRows]) const;
  __device__ __forceinline__ void keep(int turn, const float (&x)[kRows]) const;
  __device__ __forceinline__ void multiply(int slice, int turn, float (&sum)[kRows]) const;
  __device__ __forceinline__ void run() const;
};

template <class Config, bool kReverse>
__device__ __forceinline__ KdaChain<Config, kReverse>::KdaChain(const KdaMergeParams& params,
                                                                unsigned block, unsigned shared)
    : p(params),
      slices(shared),
      states(shared + Smem::kStages * Smem::kSlice),
      column(static_cast<int>(threadIdx.x)) {
  const unsigned tiles = ceil_div(p.value_dim, kRows), other = block / tiles;
  row = static_cast<int>(block % tiles) * kRows;
  const int head = static_cast<int>(other % p.value_heads);
  const int sequence = static_cast<int>(other / p.value_heads);
  int count = p.tokens;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::Offset;
    const int start = offset_at<Offset>(p.cu_seqlens, sequence, p.tokens);
    count = maximum(offset_at<Offset>(p.cu_seqlens, sequence + 1, p.tokens) - start, 0);
  }
  used = count == 0 ? 0 : ceil_div(count, kda_segment_length(count, p.segments));
  const long long run =
      static_cast<long long>(sequence) * p.segments * p.value_heads + head;  // of segment 0
  const long long both = static_cast<long long>(p.value_dim + p.key_dim) * p.key_dim;
  const long long values = static_cast<long long>(p.value_dim) * p.key_dim;
  float* summaries = static_cast<float*>(p.summaries) + run * both;
  transitions = summaries + values, transition_stride = p.value_heads * both;
  ends = kReverse ? static_cast<float*>(p.grad_ends) + run * values : summaries;
  ends += static_cast<long long>(row) * p.key_dim;
  end_stride = p.value_heads * (kReverse ? values : both);
}

// Slice `slice` of all links' is on its way; numbers past K are zeros.
template <class Config, bool kReverse>
__device__ __forceinline__ void KdaChain<Config, kReverse>::fetch(int slice) const {
  if (slice < links() * inner_slices()) {
    const float* from = transitions + segment(slice / inner_slices()) * transition_stride;
    const int first = slice % inner_slices() * kInner;
    const unsigned to = slices + slice % Smem::kStages * Smem::kSlice;
    constexpr int kPieces = (kReverse ? kInner : Config::kWidth) / 4;  // of a row of the slice
#pragma unroll 4
    for (int i = column; i < Smem::kSlice / 16; i += Config::kThreads) {
      const int at = i / kPieces, four = i % kPieces;
      const int from_row = kReverse ? at : first + at;
      const int from_column = 4 * four + (kReverse ? first : 0);
      const bool inside = from_row < p.key_dim && from_column < p.key_dim;
      copy_async(to + 16 * (kReverse ? piece(at, four) : i),
                 inside ? from + from_row * p.key_dim + from_column : from, inside);
    }
  }
  copy_async_commit();
}

// The thread's column of the block's rows; 0 where there is none.
template <class Config, bool kReverse>
__device__ __forceinline__ void KdaChain<Config, kReverse>::load_ends(int segment,
                                                                      float (&x)[kRows]) const {
  // Plain loads: the chain writes where it has read.
  const float* from = ends + segment * end_stride + column;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    x[r] = column < p.key_dim && row + r < p.value_dim ? from[r * p.key_dim] : 0.0f;
  }
}

// Into the state behind link `turn` - 1: four rows of a column side by side.
template <class Config, bool kReverse>
__device__ __forceinline__ void KdaChain<Config, kReverse>::keep(int turn,
                                                                 const float (&x)[kRows]) const {
#pragma unroll
  for (int r = 0; r < kRows; r += 4) {
    const unsigned four[4] = {bit_cast<unsigned>(x[r]), bit_cast<unsigned>(x[r + 1]),
                              bit_cast<unsigned>(x[r + 2]), bit_cast<unsigned>(x[r + 3])};
    store_shared(states + turn % 2 * Smem::kState + 16 * (r / 4 * Config::kWidth + column), four);
  }
}

// sum += the slice's part of S^T M^T, or of dS^T M.
template <class Config, bool kReverse>
__device__ __forceinline__ void KdaChain<Config, kReverse>::multiply(int slice, int turn,
                                                                     float (&sum)[kRows]) const {
  const unsigned from = slices + slice % Smem::kStages * Smem::kSlice;
  const unsigned state = states + turn % 2 * Smem::kState + 16 * (slice % inner_slices() * kInner);
#pragma unroll 4
  for (int i = 0; i < kInner; i += 4) {
    float m[4];
    if constexpr (kReverse) {
      load_shared(from + 16 * piece(column, i / 4), m);
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        m[e] = load_shared(from + 4 * ((i + e) * Config::kWidth + column));
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int r = 0; r < kRows; r += 4) {
        float s[4];
        load_shared(state + 16 * (r / 4 * Config::kWidth + i + e), s);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[r + j] = __fmaf_rn(s[j], m[e], sum[r + j]);
      }
    }
  }
}

template <class Config, bool kReverse>
__device__ __forceinline__ void KdaChain<Config, kReverse>::run() const {
  static_assert(Smem::kStages == 3, "two slices are under way while one is worked on");
  if (links() == 0) return;
  fetch(0), fetch(1);
  float x[kRows];
  load_ends(kReverse ? used - 1 : 0, x);
  keep(0, x);
  int slice = 0;
#pragma unroll 1
  for (int link = 0; link < links(); ++link) {
    float own[kRows], sum[kRows] = {};
    load_ends(segment(link), own);
#pragma unroll 1
    for (int part = 0; part < inner_slices(); ++part, ++slice) {
      copy_async_wait<1>();
      // Every thread's pieces of the slice and, with the first one, columns of the state are there;
      // all have left the slice before, which the fetch overwrites.
      __syncthreads();
      fetch(slice + 2);
      multiply(slice, link, sum);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sum[r] = __fadd_rn(sum[r], own[r]);
      if (column < p.key_dim && row + r < p.value_dim) {
        store_element(ends + segment(link) * end_stride + r * p.key_dim + column, sum[r]);
      }
    }
    keep(link + 1, sum);
  }
  copy_async_wait<0>();
}

template <class Config>
__device__ void kda_merge(const KdaMergeParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const unsigned forward_blocks =
      Config::kStates
          ? p.sequences * p.value_heads * ceil_div(p.value_dim, KdaMergeSmem<Config>::kRows)
          : 0;
  if constexpr (Config::kStates) {
    if (blockIdx.x < forward_blocks) {
      KdaChain<Config, false>(p, blockIdx.x, shared_address(shared)).run();
      return;
    }
  }
  if constexpr (Config::kGrads) {
    KdaChain<Config, true>(p, blockIdx.x - forward_blocks, shared_address(shared)).run();
  }
}

}  // namespace lathe
