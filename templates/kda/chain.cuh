// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A chain of maps of KDA's state that a thread block takes eight rows through: with M and E, or D,
// of kda_summary, x' = M x + E of a state, and back x' = M^T x + D of its gradient.
//
// All of them lie transposed, a row of K numbers for each column of V or of M: S_p^T = S^T M_p^T +
// E_p^T. A thread block takes kRows rows through the whole chain, a thread one column of them; rows
// do not meet, so a chain is serial over its links and parallel over everything else. M comes
// through shared memory in slices of kInner of the summed index, rows of M^T forward and columns of
// it backward, kStages of them in a ring that does not stop at a link's end: M does not wait for
// the state. Eight rows, because then a number of M serves eight products for one load of it and
// two of the state that all lanes share, while the rows of four heads of 128 still make 64 blocks:
// chains are for few heads. Products and sums are float32: after 32 links a bfloat16 chain is
// wrong by 7.6e-3 and TF32 by 1e-3, float32 by 1.2e-7.
#pragma once
#include "kda/scan.cuh"

namespace lathe {

// [slices of M][the state before and behind a link]
template <class Config>
struct KdaChainSmem {
  static constexpr int kRows = 8, kStages = 3;
  // A power of two, a slice at most 16 KiB.
  static constexpr int kInner = Config::kWidth <= 64 ? 64 : Config::kWidth <= 128 ? 32 : 16;
  static constexpr int kSlice = 4 * kInner * Config::kWidth;
  static constexpr int kState = 4 * kRows * Config::kWidth;
  static constexpr int kBytes = kStages * kSlice + 2 * kState;
  static_assert(Config::kThreads == Config::kWidth, "a thread for each column");
};

// The links of a chain are so far apart, and x goes into the places of their ends or to one place.
struct KdaEvenLinks {
  static constexpr bool kListed = false;
};

// kReverse: a gradient, back through the chain. Listed links say themselves where M and E of a link
// lie, and where x goes behind it:
//   long long transition(int link) const, end(int link) const;  offsets, in numbers
//   void store(const KdaChain&, int link, const float (&x)[kRows]) const;  link -1: x as it begins
template <class Config, bool kReverse, class Links = KdaEvenLinks>
struct KdaChain {
  using Smem = KdaChainSmem<Config>;
  static constexpr int kRows = Smem::kRows, kInner = Smem::kInner;

  const unsigned slices, states;  // shared memory
  const int column;               // the thread's own, of every row
  int key_dim = 0;                // K
  int rows = 0;                   // of the block's that exist
  int links = 0;
  const float* transitions = nullptr;  // row 0 of M^T of the first link
  long long transition_stride = 0;     // from a link to the next
  // Row r, column c of what goes in is begin[r * row_stride + c * column_stride], where the
  // transition of a map goes in by columns if it goes back.
  const float* begin = nullptr;
  long long row_stride = 0, column_stride = 1;
  float* ends = nullptr;  // the block's rows of the first link's E or D; null: of a transition
  long long end_stride = 0;
  // x goes here behind the last link, in the same order as `begin`; null: behind each link into the
  // place of its end.
  float* to = nullptr;
  Links listed = {};

  __device__ __forceinline__ explicit KdaChain(unsigned shared)
      : slices(shared),
        states(shared + Smem::kStages * Smem::kSlice),
        column(static_cast<int>(threadIdx.x)) {}
  __device__ __forceinline__ int inner_slices() const { return ceil_div(key_dim, kInner); }
  __device__ __forceinline__ long long transition_at(int link) const {
    if constexpr (Links::kListed) return listed.transition(link);
    return link * transition_stride;
  }
  __device__ __forceinline__ long long end_at(int link) const {
    if constexpr (Links::kListed) return listed.end(link);
    return link * end_stride;
  }
  // Row `row` of a slice of columns: 16-byte pieces of neighbouring rows fall into different banks.
  static __device__ __forceinline__ int piece(int row, int at) {
    return row * (kInner / 4) + (at ^ (kInner < 32 ? row / 2 % 4 : row % 8));
  }
  __device__ __forceinline__ void fetch(int slice) const;
  __device__ __forceinline__ void load(const float* from, long long row_step, long long column_step,
                                       float (&x)[kRows]) const;
  __device__ __forceinline__ void store(float* where, long long row_step, long long column_step,
                                        const float (&x)[kRows]) const;
  __device__ __forceinline__ void keep(int turn, const float (&x)[kRows]) const;
  __device__ __forceinline__ void multiply(int slice, int turn, float (&sum)[kRows]) const;
  __device__ __forceinline__ void run() const;
};

// Slice `slice` of all links' is on its way; numbers past K are zeros.
template <class Config, bool kReverse, class Links>
__device__ __forceinline__ void KdaChain<Config, kReverse, Links>::fetch(int slice) const {
  if (slice < links * inner_slices()) {
    const float* from = transitions + transition_at(slice / inner_slices());
    const int first = slice % inner_slices() * kInner;
    const unsigned slot = slices + slice % Smem::kStages * Smem::kSlice;
    constexpr int kPieces = (kReverse ? kInner : Config::kWidth) / 4;  // of a row of the slice
#pragma unroll 4
    for (int i = column; i < Smem::kSlice / 16; i += Config::kThreads) {
      const int at = i / kPieces, four = i % kPieces;
      const int from_row = kReverse ? at : first + at;
      const int from_column = 4 * four + (kReverse ? first : 0);
      const bool inside = from_row < key_dim && from_column < key_dim;
      copy_async(slot + 16 * (kReverse ? piece(at, four) : i),
                 inside ? from + from_row * key_dim + from_column : from, inside);
    }
  }
  copy_async_commit();
}

// The thread's column of the block's rows; 0 where there is none.
template <class Config, bool kReverse, class Links>
__device__ __forceinline__ void KdaChain<Config, kReverse, Links>::load(const float* from,
                                                                        long long row_step,
                                                                        long long column_step,
                                                                        float (&x)[kRows]) const {
  // Plain loads: the chain writes where it has read.
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    x[r] = column < key_dim && r < rows ? from[r * row_step + column * column_step] : 0.0f;
  }
}

template <class Config, bool kReverse, class Links>
__device__ __forceinline__ void KdaChain<Config, kReverse, Links>::store(
    float* where, long long row_step, long long column_step, const float (&x)[kRows]) const {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (column < key_dim && r < rows) {
      store_element(where + r * row_step + column * column_step, x[r]);
    }
  }
}

// Into the state behind link `turn` - 1: four rows of a column side by side.
template <class Config, bool kReverse, class Links>
__device__ __forceinline__ void KdaChain<Config, kReverse, Links>::keep(
    int turn, const float (&x)[kRows]) const {
#pragma unroll
  for (int r = 0; r < kRows; r += 4) {
    const unsigned four[4] = {bit_cast<unsigned>(x[r]), bit_cast<unsigned>(x[r + 1]),
                              bit_cast<unsigned>(x[r + 2]), bit_cast<unsigned>(x[r + 3])};
    store_shared(states + turn % 2 * Smem::kState + 16 * (r / 4 * Config::kWidth + column), four);
  }
}

// sum += the slice's part of S^T M^T, or of dS^T M.
template <class Config, bool kReverse, class Links>
__device__ __forceinline__ void KdaChain<Config, kReverse, Links>::multiply(
    int slice, int turn, float (&sum)[kRows]) const {
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

template <class Config, bool kReverse, class Links>
__device__ __forceinline__ void KdaChain<Config, kReverse, Links>::run() const {
  static_assert(Smem::kStages == 3, "two slices are under way while one is worked on");
  fetch(0), fetch(1);
  float x[kRows];
  load(begin, row_stride, column_stride, x);
  if constexpr (Links::kListed) listed.store(*this, -1, x);
  keep(0, x);
  int slice = 0;
#pragma unroll 1
  for (int link = 0; link < links; ++link) {
    float end[kRows] = {};
    if (ends != nullptr) load(ends + end_at(link), key_dim, 1, end);
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = 0.0f;
#pragma unroll 1
    for (int part = 0; part < inner_slices(); ++part, ++slice) {
      copy_async_wait<1>();
      // Every thread's pieces of the slice and, with the first one, columns of the state are there;
      // all have left the slice before, which the fetch overwrites.
      __syncthreads();
      fetch(slice + 2);
      multiply(slice, link, x);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = __fadd_rn(x[r], end[r]);
    if constexpr (Links::kListed) {
      listed.store(*this, link, x);
    } else if (to == nullptr) {
      store(ends + end_at(link), key_dim, 1, x);
    }
    keep(link + 1, x);
  }
  if (to != nullptr) store(to, row_stride, column_stride, x);
  copy_async_wait<0>();
}

}  // namespace lathe
