// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A chunk's work in the backward of KDA up to the pairs of its tokens: rows and states come in, are
// multiplied over V, and what the blocks of the chunk give each other is laid out.
#pragma once
#include "kda/chunk.cuh"

namespace lathe {

template <class Config>
struct KdaChunkWork {
  using Element = typename Config::Element;
  using Smem = KdaBackwardSmem<Config>;
  using Tile = typename Smem::Tile;
  static_assert(Config::kThreads == 256, "a warp for each block and half of the columns");

  // Accumulators of 16 tokens by 32 columns.
  struct Sums {
    float x[4][4] = {};
    __device__ __forceinline__ float& at(int h, int c) { return x[c / 2][2 * h + c % 2]; }
  };

  const KdaBackwardParams& p;
  const KdaInputs& in;
  const KdaChunkPlace place;
  const unsigned shared;
  const int head;  // of q and k
  const int lane, warp, g, t, block, half;

  __device__ __forceinline__ KdaChunkWork(const KdaBackwardParams& params, unsigned memory)
      : p(params),
        in(params.in),
        place(kda_chunk_place<Config>(params.in, static_cast<int>(blockIdx.x / params.in.heads))),
        shared(memory),
        head(static_cast<int>(blockIdx.x % params.in.heads)),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)),
        g(lane / 4),
        t(lane % 4),
        block(warp % 4),
        half(warp / 4) {}

  __device__ __forceinline__ int token(int h) const { return place.first + 16 * block + g + 8 * h; }
  __device__ __forceinline__ bool there(int h) const { return token(h) < place.count; }
  // Column c of 8 that the lane holds, in a pass.
  __device__ __forceinline__ int column(int pass, int c) const {
    return kKdaColumns * pass + 32 * half + c / 2 * 8 + 2 * t + c % 2;
  }
  template <class T>
  __device__ __forceinline__ T* row_of(const void* tensor, long long batch_stride,
                                       long long token_stride, long long own) const {
    return const_cast<T*>(static_cast<const T*>(tensor)) + place.row * batch_stride +
           (place.start + own) * token_stride;
  }

  // What the lane holds of q and k in one pass, as it was given, and the norms of its rows.
  struct Own {
    unsigned q[2][4], k[2][4];
    float q_norm[2], k_norm[2];

    static __device__ __forceinline__ float pick(unsigned pair, int i) {
      float x[2];
      unpack_pair(pair, Element{}, x[0], x[1]);
      return x[i];
    }
    __device__ __forceinline__ float query(int h, int c) const {
      const float x = pick(q[h][c / 2], c % 2);
      return Config::kL2Norm ? x * q_norm[h] : x;
    }
    __device__ __forceinline__ float key(int h, int c) const {
      const float x = pick(k[h][c / 2], c % 2);
      return Config::kL2Norm ? x * k_norm[h] : x;
    }
  };

  __device__ __forceinline__ void prepare_rows(int value_head, bool norms) const;
  __device__ __forceinline__ void copy_tiles(int value_head, int pass, int value) const;
  __device__ __forceinline__ void add_scores(float (&scores)[4][2][4]) const;
  __device__ __forceinline__ void store_scores(const float (&scores)[4][2][4]) const;
  __device__ __forceinline__ void finish_values(int value_head, int value, float& dot) const;
  __device__ __forceinline__ void add_states(Sums& queries, Sums& values, Sums& keys,
                                             float (&dots)[2]) const;
  __device__ __forceinline__ void load_own(int value_head, int pass, Own& own,
                                           float (&alpha)[2][8]) const;
  __device__ __forceinline__ void publish(const Own& own, const KdaProducts<8>& products) const;
};

// beta of the chunk's tokens, and once the norms of its queries and keys, by four lanes a row.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::prepare_rows(int value_head,
                                                                   bool norms) const {
  const int row = static_cast<int>(threadIdx.x) / 4, own = place.first + row;
  const bool inside = own < place.count;
  if (t == 0) {
    float beta = 0.0f;
    if (inside) {
      beta = to_float(load_element(row_of<typename Config::BetaElement>(
                                       in.beta, in.beta_batch_stride, in.beta_token_stride, own) +
                                   value_head * in.beta_head_stride));
      beta = step_size<Config>(beta, in.beta_factor);
    }
    store_shared(shared + Smem::kBeta + 4 * row, beta);
  }
  if (!norms) return;
  float squares[2] = {};
  if constexpr (Config::kL2Norm) {
    const Element* q =
        row_of<Element>(in.q, in.q_batch_stride, in.q_token_stride, own) + head * in.q_head_stride;
    const Element* k =
        row_of<Element>(in.k, in.k_batch_stride, in.k_token_stride, own) + head * in.k_head_stride;
    for (int c = 8 * t; c < in.key_dim; c += 32) {
      EightColumns<Element, Config::kVectorBytes> each[2];
      each[0].load(q, c, in.key_dim, inside);
      each[1].load(k, c, in.key_dim, inside);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int x = 0; x < 2; ++x)
          squares[x] = __fmaf_rn(each[x].at(i), each[x].at(i), squares[x]);
      }
    }
  }
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const float norm = Config::kL2Norm ? kda_norm(sum_over_quad(squares[x])) : 1.0f;
    if (t == 0) store_shared(shared + Smem::kNorms + 256 * x + 4 * row, norm);
  }
}

// 64 columns of V from `value` on: do, y and vn of the chunk, h and dh for the pass's columns of K.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::copy_tiles(int value_head, int pass,
                                                                 int value) const {
  constexpr int kEach = Config::kVectorBytes / static_cast<int>(sizeof(Element));
  constexpr int kPieces = 64 / kEach;
  const long long stride = static_cast<long long>(in.value_heads) * in.value_dim;
  const long long saved = (place.row * in.tokens + place.start + place.first) * stride +
                          static_cast<long long>(value_head) * in.value_dim;
  const long long state = (static_cast<long long>(place.slot) * in.value_heads + value_head) *
                          in.key_dim * in.value_dim;
  const Element* rows[3] = {
      row_of<Element>(p.d_o, p.do_batch_stride, p.do_token_stride, place.first) +
          value_head * p.do_head_stride,
      static_cast<const Element*>(p.value_grads) + saved,
      static_cast<const Element*>(p.saved_values) + saved};
  const Element* states[2] = {static_cast<const Element*>(p.saved_states) + state,
                              static_cast<const Element*>(p.state_grads) + state};
  for (int i = static_cast<int>(threadIdx.x); i < 64 * kPieces; i += Config::kThreads) {
    const int row = i / kPieces, from = i % kPieces * kEach;
    const int to = Tile::offset(row, from / 8) + from % 8 * static_cast<int>(sizeof(Element));
    const bool inside = place.first + row < place.count && value + from < in.value_dim;
#pragma unroll
    for (int x = 0; x < 3; ++x) {
      const long long at = x == 0 ? row * p.do_token_stride : row * stride;
      copy_async_some<Config::kVectorBytes>(shared + x * Tile::kBytes + to,
                                            rows[x] + (inside ? at + value + from : 0), inside);
    }
    const int key = kKdaColumns * pass + from;
    const bool state_inside = value + row < in.value_dim && key < in.key_dim;
    const long long at = static_cast<long long>(value + row) * in.key_dim + key;
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      copy_async_some<Config::kVectorBytes>(shared + Smem::kH + x * Tile::kBytes + to,
                                            states[x] + (state_inside ? at : 0), state_inside);
    }
  }
  copy_async_commit();
}

// Of the warp's block of rows with every block of columns up to it: do vn^T by the warps of one
// half, y vn^T by those of the other.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::add_scores(float (&scores)[4][2][4]) const {
  const unsigned rows =
      shared + half * Tile::kBytes +
      Tile::offset(16 * block + row_of_rows_first(lane), chunk_of_rows_first(lane));
  const unsigned columns =
      shared + Smem::kVn + Tile::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    unsigned a[4];
    load_matrix(a, Tile::at(rows, 2 * j));
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (c > block) continue;
      unsigned b[4];
      load_matrix(b, Tile::at(columns + c * 16 * 128, 2 * j));
      multiply_add(scores[c][0], a, b[0], b[1], Element{});
      multiply_add(scores[c][1], a, b[2], b[3], Element{});
    }
  }
}
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::store_scores(
    const float (&scores)[4][2][4]) const {
  const unsigned to = shared + (half == 0 ? Smem::kOutScores : Smem::kValueScores);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (c > block) continue;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = g + 8 * h, column = 8 * n + 2 * t;
        const float first = scores[c][n][2 * h], second = scores[c][n][2 * h + 1];
        if (half == 0 && c == block && row / 2 == column / 2) {
          store_shared(shared + Smem::kDiagonal + 4 * (16 * block + row),
                       row == column ? first : second);
        }
        store_shared(to + lower_square(block, c) + KdaSquare::offset(row, n) + 4 * t,
                     pack_pair(first, second, Element{}));
      }
    }
  }
}

// dv = beta y, and y . v, of 64 columns of V by four lanes a row.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::finish_values(int value_head, int value,
                                                                    float& dot) const {
  const int row = static_cast<int>(threadIdx.x) / 4, own = place.first + row;
  const bool inside = own < place.count;
  const Element* v = row_of<Element>(in.v, in.v_batch_stride, in.v_token_stride, own) +
                     value_head * in.v_head_stride;
  Element* dv = row_of<Element>(p.dv, p.dv_batch_stride, p.dv_token_stride, own) +
                value_head * p.dv_head_stride;
  const float beta = load_shared(shared + Smem::kBeta + 4 * row);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const int chunk = 4 * part + t, from = value + 8 * chunk;
    EightColumns<Element, Config::kVectorBytes> values;
    values.load(v, from, in.value_dim, inside);
    float y[4];
    load_shared(shared + Smem::kY + Tile::offset(row, chunk), y);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float pair[2];
      unpack_pair(bit_cast<unsigned>(y[i]), Element{}, pair[0], pair[1]);
      dot = __fmaf_rn(pair[0], values.at(2 * i), dot);
      dot = __fmaf_rn(pair[1], values.at(2 * i + 1), dot);
      y[i] = bit_cast<float>(pack_pair(pair[0] * beta, pair[1] * beta, Element{}));
    }
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      if (inside && from + 2 * i < in.value_dim) {
        store_global(dv + from + 2 * i,
                     Words<8>{{bit_cast<unsigned>(y[i]), bit_cast<unsigned>(y[i + 1])}});
      }
    }
  }
}

// queries += do h^T, values += y h^T, keys += vn dh^T over 64 columns of V, and the products of h
// and dh, of two columns of K and eight of V a thread.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::add_states(Sums& queries, Sums& values,
                                                                 Sums& keys,
                                                                 float (&dots)[2]) const {
  const unsigned rows =
      shared + Tile::offset(16 * block + row_of_rows_first(lane), chunk_of_rows_first(lane));
  const unsigned columns =
      shared + Smem::kH + Tile::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    unsigned d_o[4], y[4], vn[4];
    load_matrix(d_o, Tile::at(rows + Smem::kDo, 2 * j));
    load_matrix(y, Tile::at(rows + Smem::kY, 2 * j));
    load_matrix(vn, Tile::at(rows + Smem::kVn, 2 * j));
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
      unsigned h[4], dh[4];
      const unsigned from = Tile::at(columns + j * 16 * 128, 4 * half + n);
      load_matrix_transposed(h, from);
      load_matrix_transposed(dh, from + Tile::kBytes);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        multiply_add(queries.x[n + i], d_o, h[2 * i], h[2 * i + 1], Element{});
        multiply_add(values.x[n + i], y, h[2 * i], h[2 * i + 1], Element{});
        multiply_add(keys.x[n + i], vn, dh[2 * i], dh[2 * i + 1], Element{});
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned at = shared + Smem::kH + Tile::offset(8 * warp + i, lane / 4) + lane % 4 * 4;
    float h[2], dh[2];
    unpack_pair(bit_cast<unsigned>(load_shared(at)), Element{}, h[0], h[1]);
    unpack_pair(bit_cast<unsigned>(load_shared(at + Tile::kBytes)), Element{}, dh[0], dh[1]);
    dots[0] = __fmaf_rn(h[0], dh[0], dots[0]);
    dots[1] = __fmaf_rn(h[1], dh[1], dots[1]);
  }
}

template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::load_own(int value_head, int pass, Own& own,
                                                               float (&alpha)[2][8]) const {
  KdaNumbers numbers = {in.scale, in.lower_bound, in.beta_factor, 1.0f, nullptr};
  if constexpr (Config::kAlog) {
    numbers.gate_factor = kda_rate(load_element(static_cast<const float*>(in.A_log) + value_head));
  }
  float logarithm[8] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = 16 * block + g + 8 * h;
    const Element* q = row_of<Element>(in.q, in.q_batch_stride, in.q_token_stride, token(h)) +
                       head * in.q_head_stride;
    const Element* k = row_of<Element>(in.k, in.k_batch_stride, in.k_token_stride, token(h)) +
                       head * in.k_head_stride;
    const auto* gate =
        row_of<typename Config::GateElement>(in.g, in.g_batch_stride, in.g_token_stride, token(h)) +
        value_head * in.g_head_stride;
    own.q_norm[h] = load_shared(shared + Smem::kNorms + 4 * row);
    own.k_norm[h] = load_shared(shared + Smem::kNorms + 256 + 4 * row);
#pragma unroll
    for (int c = 0; c < 8; c += 2) {
      const int at = column(pass, c);
      const bool inside = there(h) && at < in.key_dim;
      float z[2], bias[2] = {};
      own.q[h][c / 2] = load_word(q + at, inside);
      own.k[h][c / 2] = load_word(k + at, inside);
      load_pair(gate + at, inside, z);
      if constexpr (Config::kDtBias) {
        load_pair(static_cast<const float*>(in.dt_bias) +
                      static_cast<long long>(value_head) * in.key_dim + at,
                  at < in.key_dim, bias);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float log = decay_log<Config>(z[i], bias[i], numbers);
        alpha[h][c + i] = inside ? kda_decay(log) : 1.0f;
        logarithm[c + i] += inside ? log : 0.0f;
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) {
#pragma unroll
    for (int other = 4; other < 32; other *= 2) {
      logarithm[c] += __shfl_xor_sync(0xffffffffu, logarithm[c], other);
    }
    if (g == 0) {
      store_shared(shared + Smem::kDecay + 256 * block + 4 * (column(pass, c) % kKdaColumns),
                   kda_decay(logarithm[c]));
    }
  }
}

// Keys as columns of later blocks' pairs, queries and keys as rows of earlier blocks'.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::publish(
    const Own& own, const KdaProducts<8>& products) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = 16 * block + g + 8 * h;
    const float beta = load_shared(shared + Smem::kBeta + 4 * row);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const unsigned to = shared + Tile::offset(row, 4 * half + n) + 4 * t;
      float kg[2], qg[2], ke[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int c = 2 * n + i;
        kg[i] = own.key(h, c) * products.after[h][c];
        qg[i] = in.scale * own.query(h, c) * products.to[h][c];
        ke[i] = -beta * own.key(h, c) * products.to[h][c];
      }
      store_shared(to + Smem::kKg, pack_pair(kg[0], kg[1], Element{}));
      store_shared(to + Smem::kQg, pack_pair(qg[0], qg[1], Element{}));
      store_shared(to + Smem::kKe, pack_pair(ke[0], ke[1], Element{}));
    }
  }
}

}  // namespace lathe
