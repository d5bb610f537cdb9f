// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows of a chunk by warpgroups (sm_90a): norms, decays, and what the blocks of 16 tokens read of
// each other.
#pragma once
#include "kda/sm90/chunk_pairs.cuh"

namespace lathe {

// A lane has four neighbouring tokens of the warp's block in turn where it multiplies decays along
// them, four columns of each: tokens 4 (lane / 8) and on, columns 4 (lane % 8) and on of the part.
template <class Config>
struct KdaChunkRows : KdaChunkPairsByQuotients<Config> {
  using Pairs = KdaChunkPairsByQuotients<Config>;
  using Pairs::block, Pairs::column, Pairs::g, Pairs::head, Pairs::in, Pairs::lane, Pairs::part;
  using Pairs::Pairs;
  using Pairs::row, Pairs::shared, Pairs::t, Pairs::there, Pairs::tile, Pairs::word;
  using typename Pairs::Element;
  using typename Pairs::Gate;
  using typename Pairs::Rows;
  using typename Pairs::Smem;
  static constexpr int kParts = Smem::kParts;

  // Of the rows of the lane's tokens, or 1.
  struct Norms {
    float q[2], k[2];
  };
  struct NormsInTurn {
    float q[4], k[4];
  };

  template <class T>
  __device__ __forceinline__ T* lane_row(const void* tensor, long long batch_stride,
                                         long long token_stride, int h) const {
    return Pairs::template row_of<T>(tensor, batch_stride, token_stride, tile.first + row(h));
  }
  __device__ __forceinline__ int row_in_turn() const { return 16 * block + (lane >> 3) * 4; }
  __device__ __forceinline__ int column_in_turn() const { return 32 * part + (lane & 7) * 4; }
  // The lane's four columns of its token i, in a tile of q, k or g.
  __device__ __forceinline__ unsigned words_in_turn(int tile_at, int i) const {
    const int chunk = part % 2 * 4 + (lane >> 1 & 3);
    return shared + tile_at + part / 2 * Smem::kRows + swizzled(row_in_turn() + i, chunk) +
           (lane & 1) * 8;
  }
  __device__ __forceinline__ bool inside_in_turn(int i) const {
    return tile.first + row_in_turn() + i < tile.count && column_in_turn() < in.key_dim;
  }
  __device__ __forceinline__ KdaNumbers numbers() const;
  __device__ __forceinline__ NormsInTurn make_norms() const;
  __device__ __forceinline__ Norms norms() const;
  __device__ __forceinline__ Rows rows_of(const Norms& norms, int m) const;
  __device__ __forceinline__ void load_gates(float (&z)[4][4], float (&bias)[4]) const;
  __device__ __forceinline__ void decays_in_turn(const KdaNumbers& from, float (&alpha)[4][4],
                                                 float (&sum)[4]) const;
  __device__ __forceinline__ void products_from_start(float (&x)[4][4]) const;
  __device__ __forceinline__ void products_to_end(float (&x)[4][4]) const;
  __device__ __forceinline__ void decays_of(int m, float (&alpha)[2][4]) const;
  __device__ __forceinline__ bool publish() const;
};

template <class Config>
__device__ __forceinline__ KdaNumbers KdaChunkRows<Config>::numbers() const {
  KdaNumbers numbers = {in.scale, in.lower_bound, in.beta_factor, 1.0f, nullptr, in.key_dim};
  if constexpr (Config::kAlog) {
    numbers.set_rate(load_element(static_cast<const float*>(in.A_log) + head));
  }
  if constexpr (Config::kDtBias) {
    numbers.dt_bias =
        static_cast<const float*>(in.dt_bias) + static_cast<long long>(head) * in.key_dim;
  }
  return numbers;
}

// The sum of four columns over the tokens of the block: a lane gets column lane / 8 of its four.
__device__ __forceinline__ float sum_in_turn(const float (&x)[4], int lane) {
  const bool high = (lane & 16) != 0, odd = (lane & 8) != 0;
  float first = high ? x[2] : x[0], second = high ? x[3] : x[1];
  first += __shfl_xor_sync(0xffffffffu, high ? x[0] : x[2], 16);
  second += __shfl_xor_sync(0xffffffffu, high ? x[1] : x[3], 16);
  return (odd ? second : first) + __shfl_xor_sync(0xffffffffu, odd ? first : second, 8);
}

// From the sums of squares. What is kept of them is there for all after the next barrier.
template <class Config>
__device__ __forceinline__ typename KdaChunkRows<Config>::NormsInTurn
KdaChunkRows<Config>::make_norms() const {
  NormsInTurn norms;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    float(&to)[4] = which == 0 ? norms.q : norms.k;
    float squares[4] = {};
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      float of_part[4];
      load_shared(shared + Smem::kSquares + (which * kParts + i) * Smem::kRow + 4 * row_in_turn(),
                  of_part);
#pragma unroll
      for (int j = 0; j < 4; ++j) squares[j] += of_part[j];
    }
    unsigned words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j] = kda_norm(squares[j]), words[j] = bit_cast<unsigned>(to[j]);
    if (part == 0 && (lane & 7) == 0) {
      store_shared(shared + Smem::kNorms + which * Smem::kRow + 4 * row_in_turn(), words);
    }
  }
  return norms;
}
template <class Config>
__device__ __forceinline__ typename KdaChunkRows<Config>::Norms KdaChunkRows<Config>::norms()
    const {
  Norms norms = {{1.0f, 1.0f}, {1.0f, 1.0f}};
  if constexpr (Config::kL2Norm) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const unsigned at = shared + Smem::kNorms + 4 * row(h);
      norms.q[h] = load_shared(at), norms.k[h] = load_shared(at + Smem::kRow);
    }
  }
  return norms;
}

template <class Config>
__device__ __forceinline__ typename KdaChunkRows<Config>::Rows KdaChunkRows<Config>::rows_of(
    const Norms& norms, int m) const {
  Rows rows;
  this->load_rounded(Smem::kQ, m, rows.q);
  this->load_rounded(Smem::kK, m, rows.k);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rows.beta[h] = load_shared(shared + Smem::kBeta + 4 * row(h));
    if constexpr (Config::kL2Norm) {
#pragma unroll
      for (int c = 0; c < 4; ++c) rows.q[h][c] *= norms.q[h], rows.k[h][c] *= norms.k[h];
    }
  }
  return rows;
}

// Gates as they were given, of a lane that has tokens in turn.
template <class Config>
__device__ __forceinline__ void KdaChunkRows<Config>::load_gates(float (&z)[4][4],
                                                                 float (&bias)[4]) const {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    Words<4 * sizeof(Gate)> raw = {};
    if constexpr (Smem::kCopiedGate) {
      load_shared(words_in_turn(Smem::kG, i), raw);
    } else if (inside_in_turn(i)) {
      load_global(Pairs::template row_of<Gate>(in.g, in.g_batch_stride, in.g_token_stride,
                                               tile.first + row_in_turn() + i) +
                      head * in.g_head_stride + column_in_turn(),
                  raw);
    }
    unpack<Gate>(raw, z[i]);
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) bias[e] = 0.0f;
  if constexpr (Config::kDtBias) {
    Words<16> raw = {};
    if (column_in_turn() < in.key_dim) {
      load_global(static_cast<const float*>(in.dt_bias) +
                      static_cast<long long>(head) * in.key_dim + column_in_turn(),
                  raw);
    }
    unpack<float>(raw, bias);
  }
}

// Decays of the lane's tokens in turn, and the logarithm of all of them together. A token that is
// not there was loaded as 0, which is no decay as it is.
template <class Config>
__device__ __forceinline__ void KdaChunkRows<Config>::decays_in_turn(const KdaNumbers& from,
                                                                     float (&alpha)[4][4],
                                                                     float (&sum)[4]) const {
  constexpr bool kAsGiven = Config::kGate == kKdaGateGiven && !Config::kDtBias;
  float bias[4];
  load_gates(alpha, bias);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    sum[e] = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float log = alpha[i][e];
      if constexpr (!kAsGiven) {
        log = inside_in_turn(i) ? decay_log<Config>(log, bias[e], from) : 0.0f;
      }
      sum[e] += log;
      alpha[i][e] = kda_step_decay<Element>(log);
    }
  }
}

// Decays become their products from the block's start on, 2^57 times as large.
template <class Config>
__device__ __forceinline__ void KdaChunkRows<Config>::products_from_start(float (&x)[4][4]) const {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
#pragma unroll
    for (int i = 1; i < 4; ++i) x[i][e] = __fmul_rn(x[i][e], x[i - 1][e]);
    float before = Pairs::kScaling;
    const float beside = __shfl_xor_sync(0xffffffffu, x[3][e], 8);
    multiply_where(before, beside, (lane & 8) != 0);
    const float eight = __shfl_xor_sync(0xffffffffu, __fmul_rn(x[3][e], beside), 16);
    multiply_where(before, eight, (lane & 16) != 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i][e] = __fmul_rn(x[i][e], before);
  }
}
// Decays become the products of those behind them in the block, 2^57 times smaller.
template <class Config>
__device__ __forceinline__ void KdaChunkRows<Config>::products_to_end(float (&x)[4][4]) const {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    float own = 1.0f;
#pragma unroll
    for (int i = 3; i >= 0; --i) {
      const float alpha = x[i][e];
      x[i][e] = own;
      own = __fmul_rn(own, alpha);
    }
    float behind = Pairs::kUnscaling;
    const float beside = __shfl_xor_sync(0xffffffffu, own, 8);
    multiply_where(behind, beside, (lane & 8) == 0);
    const float eight = __shfl_xor_sync(0xffffffffu, __fmul_rn(own, beside), 16);
    multiply_where(behind, eight, (lane & 16) == 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i][e] = __fmul_rn(x[i][e], behind);
  }
}

// Decays as accumulators lie, for the pairs of a block that is cut.
template <class Config>
__device__ __forceinline__ void KdaChunkRows<Config>::decays_of(int m, float (&alpha)[2][4]) const {
  const KdaNumbers from = numbers();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      const int at = column(m, c);
      const bool inside = there(h) && at < in.key_dim;
      float pair[2], bias[2] = {};
      if constexpr (Smem::kCopiedGate) {
        unpack_pair(load_shared_word(word(Smem::kG, h, 2 * m + c / 2)), Gate{}, pair[0], pair[1]);
      } else {
        load_pair(lane_row<Gate>(in.g, in.g_batch_stride, in.g_token_stride, h) +
                      head * in.g_head_stride + at,
                  inside, pair);
      }
      if constexpr (Config::kDtBias) load_pair(from.dt_bias + at, at < in.key_dim, bias);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float log = decay_log<Config>(pair[i], bias[i], from);
        alpha[h][c + i] = inside ? kda_step_decay<Element>(log) : 1.0f;
      }
    }
  }
}

// Leaves what the blocks read of the warp's tokens: rows of queries and of keys as they are seen
// from the block's start, and keys as they are seen from there or, if the block is cut, from its
// end; e; and the decay of the whole block. Returns whether it is cut.
template <class Config>
__device__ __forceinline__ bool KdaChunkRows<Config>::publish() const {
  NormsInTurn norms;
  if constexpr (Config::kL2Norm) norms = make_norms();
  const KdaNumbers from = numbers();
  float to[4][4], sum[4];
  decays_in_turn(from, to, sum);
  store_shared(shared + Smem::kDecay + block * Smem::kColumn + 4 * (column_in_turn() + (lane >> 3)),
               kda_decay(sum_in_turn(sum, lane)));
  products_from_start(to);
  bool low = false;
#pragma unroll
  for (int e = 0; e < 4; ++e) low = low || to[3][e] < Pairs::kLeast;
  const bool cut = __any_sync(0xffffffffu, low) != 0;
  if (lane == 0) store_shared(this->cut_at(block), cut ? 1u : 0u);
  float of_columns[4][4];
  if (cut) {
    decays_in_turn(from, of_columns, sum);
    products_to_end(of_columns);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) of_columns[i][e] = rcp_normal(to[i][e]);
    }
  }
  float beta[4];
  load_shared(shared + Smem::kBeta + 4 * row_in_turn(), beta);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    store_shared(this->kept_in_turn(i), pack<float, 16>(to[i]));
    Words<8> raw_q, raw_k;
    load_shared(words_in_turn(Smem::kQ, i), raw_q);
    load_shared(words_in_turn(Smem::kK, i), raw_k);
    float q[4], k[4], ke[4];
    unpack<Element>(raw_q, q), unpack<Element>(raw_k, k);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if constexpr (Config::kL2Norm) q[e] *= norms.q[i], k[e] *= norms.k[i];
      q[e] *= to[i][e], ke[e] = -beta[i] * k[e] * to[i][e], k[e] *= of_columns[i][e];
    }
    store_shared(words_in_turn(Smem::kQueryRows, i), pack<Element, 8>(q));
    store_shared(words_in_turn(Smem::kKeyRows, i), pack<Element, 8>(ke));
    store_shared(words_in_turn(Smem::kKeyColumns, i), pack<Element, 8>(k));
  }
  return cut;
}

}  // namespace lathe
