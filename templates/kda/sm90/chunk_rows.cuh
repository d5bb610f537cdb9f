// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows of a chunk by warpgroups (sm_90a): norms, decays, and what the blocks of 16 tokens read of
// each other.
#pragma once
#include "kda/sm90/chunk_pairs.cuh"

namespace lathe {

template <class Config>
struct KdaChunkRows : KdaChunkPairsByQuotients<Config> {
  using Pairs = KdaChunkPairsByQuotients<Config>;
  using Pairs::block, Pairs::column, Pairs::g, Pairs::head, Pairs::in, Pairs::part, Pairs::row;
  using Pairs::Pairs;
  using Pairs::shared, Pairs::t, Pairs::there, Pairs::tile, Pairs::word;
  using typename Pairs::Element;
  using typename Pairs::Gate;
  using typename Pairs::Rows;
  using typename Pairs::Smem;
  static constexpr int kParts = Smem::kParts;

  // Of the rows of the lane's tokens, or 1.
  struct Norms {
    float q[2], k[2];
  };

  template <class T>
  __device__ __forceinline__ T* lane_row(const void* tensor, long long batch_stride,
                                         long long token_stride, int h) const {
    return Pairs::template row_of<T>(tensor, batch_stride, token_stride, tile.first + row(h));
  }
  __device__ __forceinline__ KdaNumbers numbers() const;
  __device__ __forceinline__ Norms make_norms() const;
  __device__ __forceinline__ Norms norms() const;
  __device__ __forceinline__ Rows rows_of(const Norms& norms, int m) const;
  __device__ __forceinline__ void load_gates(int m, float (&z)[2][4], float (&bias)[4]) const;
  __device__ __forceinline__ void decays_of(int m, const KdaNumbers& from, float (&alpha)[2][4],
                                            float (&sum)[4]) const;
  __device__ __forceinline__ bool publish(const Norms& norms) const;
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

// From the sums of squares. What is kept of them is there for all after the next barrier.
template <class Config>
__device__ __forceinline__ typename KdaChunkRows<Config>::Norms KdaChunkRows<Config>::make_norms()
    const {
  Norms norms = {{1.0f, 1.0f}, {1.0f, 1.0f}};
  if constexpr (Config::kL2Norm) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float squares[2] = {};
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const unsigned at = shared + Smem::kSquares + i * Smem::kRow + 4 * row(h);
        squares[0] += load_shared(at), squares[1] += load_shared(at + kParts * Smem::kRow);
      }
      norms.q[h] = kda_norm(squares[0]), norms.k[h] = kda_norm(squares[1]);
      const unsigned at = shared + Smem::kNorms + 4 * row(h);
      if (part == 0 && t == 0) {
        store_shared(at, norms.q[h]), store_shared(at + Smem::kRow, norms.k[h]);
      }
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
    const float q_scale = Config::kL2Norm ? in.scale * norms.q[h] : in.scale;
    rows.beta[h] = load_shared(shared + Smem::kBeta + 4 * row(h));
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      rows.q[h][c] *= q_scale;
      if constexpr (Config::kL2Norm) rows.k[h][c] *= norms.k[h];
    }
  }
  return rows;
}

// Gates as they were given.
template <class Config>
__device__ __forceinline__ void KdaChunkRows<Config>::load_gates(int m, float (&z)[2][4],
                                                                 float (&bias)[4]) const {
#pragma unroll
  for (int c = 0; c < 4; c += 2) {
    const int at = column(m, c);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float pair[2];
      if constexpr (Smem::kCopiedGate) {
        unpack_pair(load_shared_word(word(Smem::kG, h, 2 * m + c / 2)), Gate{}, pair[0], pair[1]);
      } else {
        load_pair(lane_row<Gate>(in.g, in.g_batch_stride, in.g_token_stride, h) +
                      head * in.g_head_stride + at,
                  there(h) && at < in.key_dim, pair);
      }
      z[h][c] = pair[0], z[h][c + 1] = pair[1];
    }
    float pair[2] = {};
    if constexpr (Config::kDtBias) {
      load_pair(
          static_cast<const float*>(in.dt_bias) + static_cast<long long>(head) * in.key_dim + at,
          at < in.key_dim, pair);
    }
    bias[c] = pair[0], bias[c + 1] = pair[1];
  }
}

// Decays of the lane's tokens, and the logarithm of both together.
template <class Config>
__device__ __forceinline__ void KdaChunkRows<Config>::decays_of(int m, const KdaNumbers& from,
                                                                float (&alpha)[2][4],
                                                                float (&sum)[4]) const {
  float z[2][4], bias[4];
  load_gates(m, z, bias);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    sum[c] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float log = decay_log<Config>(z[h][c], bias[c], from);
      const bool inside = there(h) && column(m, c) < in.key_dim;
      alpha[h][c] = inside ? kda_step_decay<Element>(log) : 1.0f;
      sum[c] += inside ? log : 0.0f;
    }
  }
}

// Leaves what other blocks read of the warp's tokens: rows of queries and of keys as they are seen
// from the block's start, and keys as they are from its end. Returns whether the block has a column
// for which quotients do not do.
template <class Config>
__device__ __forceinline__ bool KdaChunkRows<Config>::publish(const Norms& norms) const {
  const KdaNumbers from = numbers();
  bool low = false;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float alpha[2][4], sum[4];
    decays_of(m, from, alpha, sum);
    const float whole = kda_decay(sum_over_tokens(sum, g));
    if ((g & 1) == 0) {
      store_shared(shared + Smem::kDecay + block * Smem::kColumn + 4 * column(m, g >> 1), whole);
    }
    KdaProducts<4> products(alpha);
    products.template join<1>(g);
    products.template join<2>(g);
    products.template join<4>(g);
    products.join_eights();
    this->store_decays(m, products);
    const Rows rows = rows_of(norms, m);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float q[4], ke[4], kg[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float to = products.to[h][c] * Pairs::kScaling;
        low = low || to < Pairs::kLeast;
        q[c] = rows.q[h][c] * to, ke[c] = -rows.beta[h] * rows.k[h][c] * to;
        kg[c] = rows.k[h][c] * products.after[h][c];
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        store_shared(word(Smem::kQueryRows, h, 2 * m + n),
                     pack_pair(q[2 * n], q[2 * n + 1], Element{}));
        store_shared(word(Smem::kKeyRows, h, 2 * m + n),
                     pack_pair(ke[2 * n], ke[2 * n + 1], Element{}));
        store_shared(word(Smem::kKeyColumns, h, 2 * m + n),
                     pack_pair(kg[2 * n], kg[2 * n + 1], Element{}));
      }
    }
  }
  return __any_sync(0xffffffffu, low) != 0;
}

}  // namespace lathe
