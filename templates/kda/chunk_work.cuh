// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A chunk's work in the backward of KDA up to the pairs of its tokens: rows and states come in, are
// multiplied over V, and what the blocks of the chunk give each other is laid out.
#pragma once
#include "kda/chunk.cuh"

namespace lathe {

// Accumulators over the lanes that hold a column's tokens, of a lane's four columns: lanes 4 g + t
// with g of 2 c and 2 c + 1 get that of column c. Each exchange halves what is left to add.
__device__ __forceinline__ float sum_over_tokens(const float (&x)[4], int g) {
  const bool high = (g & 4) != 0, odd = (g & 2) != 0;
  float first = high ? x[2] : x[0], second = high ? x[3] : x[1];
  first += __shfl_xor_sync(0xffffffffu, high ? x[0] : x[2], 16);
  second += __shfl_xor_sync(0xffffffffu, high ? x[1] : x[3], 16);
  const float sum = (odd ? second : first) + __shfl_xor_sync(0xffffffffu, odd ? first : second, 8);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 4);
}

template <class Config>
struct KdaChunkWork {
  using Element = typename Config::Element;
  using Smem = KdaBackwardSmem<Config>;
  using Operands = Fragment<Element>;
  static constexpr int kParts = Smem::kParts, kValues = Smem::kValues, kColumns = Smem::kColumns;
  static_assert(Config::kThreads == 256 || Config::kThreads == 512, "two or four parts of columns");

  // Accumulators of 16 tokens by 16 columns.
  struct Accumulators {
    float x[2][4] = {};
    __device__ __forceinline__ float& at(int h, int c) { return x[c / 2][2 * h + c % 2]; }
  };
  // Scores of the warp's block of rows with every second or every block of columns.
  struct Scores {
    float x[8 / kParts][2][4] = {};
  };

  const KdaBackwardParams& p;
  const KdaInputs& in;
  const KdaChunkTile tile;
  const unsigned shared;
  const int head;  // of q and k
  int thread, lane, warp, g, t, block, part;

  __device__ __forceinline__ KdaChunkWork(const KdaBackwardParams& params, unsigned memory)
      : p(params),
        in(params.in),
        tile(kda_chunk_tile<Config>(params.in, static_cast<int>(blockIdx.x / params.in.heads))),
        shared(memory),
        head(static_cast<int>(blockIdx.x % params.in.heads)) {
    find_thread();
  }
  // Reads anew which thread this is. Addresses that a phase of the work needs are then made in it;
  // all of them made at the start would take more registers than there are.
  __device__ __forceinline__ void find_thread() {
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    // The value is that of lane 0, so that the compiler knows it for one number.
    warp = __shfl_sync(0xffffffffu, thread >> 5, 0);
    lane = thread & 31, g = lane >> 2, t = lane & 3, block = warp & 3, part = warp >> 2;
  }

  __device__ __forceinline__ int row(int h) const { return 16 * block + g + 8 * h; }
  __device__ __forceinline__ int token(int h) const { return tile.first + row(h); }
  __device__ __forceinline__ bool there(int h) const { return token(h) < tile.count; }
  // Column c of 4 that the lane holds, in a pass and in all.
  __device__ __forceinline__ int lane_column(int c) const {
    return 16 * part + (c >> 1) * 8 + 2 * t + (c & 1);
  }
  __device__ __forceinline__ int column(int pass, int c) const {
    return kColumns * pass + lane_column(c);
  }
  // The row that a thread has of values, and which of its chunks of 8 columns in turn: a quarter of
  // a warp has two rows of a panel, whatever the number of threads.
  __device__ __forceinline__ int value_row() const {
    return kParts == 2 ? thread >> 2 : (thread >> 4) * 2 + (thread >> 2 & 1);
  }
  __device__ __forceinline__ int value_chunk(int turn) const {
    return 4 * (kParts == 2 ? turn : thread >> 3 & 1) + (thread & 3);
  }
  // A thread adds up this part of h .* dh: one row of 16, two neighbouring columns.
  __device__ __forceinline__ int state_row() const { return thread >> 4 & 15; }
  __device__ __forceinline__ int state_word() const { return (thread >> 8) * 16 + (thread & 15); }
  template <class T>
  __device__ __forceinline__ T* row_of(const void* tensor, long long batch_stride,
                                       long long token_stride, int token) const {
    T* const base = const_cast<T*>(static_cast<const T*>(tensor));
    if constexpr (Config::kPacked) return base + (tile.start + token) * token_stride;
    return base + tile.row * batch_stride + token * token_stride;
  }
  __device__ __forceinline__ const Element* query_row(int token) const {
    return row_of<Element>(in.q, in.q_batch_stride, in.q_token_stride, token) +
           head * in.q_head_stride;
  }
  __device__ __forceinline__ const Element* key_row(int token) const {
    return row_of<Element>(in.k, in.k_batch_stride, in.k_token_stride, token) +
           head * in.k_head_stride;
  }

  // LaneRows has the lane's part of q, with its norm and the scale, and of k, with its norm, in one
  // pass.
  struct LaneRows {
    float q[2][4], k[2][4], beta[2];
  };

  __device__ __forceinline__ void prepare_rows(int value_head, bool norms) const;
  __device__ __forceinline__ void copy_tiles(int value_head, int pass, int value) const;
  __device__ __forceinline__ void add_scores(Scores& scores) const;
  __device__ __forceinline__ void store_scores(const Scores& scores) const;
  __device__ __forceinline__ void finish_values(int value_head, int value, float& dot) const;
  __device__ __forceinline__ void add_states(Accumulators& queries, Accumulators& values,
                                             Accumulators& keys, float (&dots)[2]) const;
  __device__ __forceinline__ void store_state_dots(const float (&dots)[2]) const;
  __device__ __forceinline__ void load_rows(int value_head, int pass, LaneRows& lane_rows,
                                            float (&alpha)[2][4]) const;
  // Reads beta, at the start of each phase for the same reason as find_thread.
  __device__ __forceinline__ void find_beta(LaneRows& lane_rows) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) lane_rows.beta[h] = load_shared(shared + Smem::kBeta + 4 * row(h));
  }
  __device__ __forceinline__ void publish(const LaneRows& lane_rows,
                                          const KdaProducts<4>& products) const;
  __device__ __forceinline__ unsigned alpha_address(int i) const {
    return shared + Smem::kAlpha + 4 * (i * Config::kThreads + thread);
  }
};

// beta of the chunk's tokens, and once the norms of its queries and keys, by four lanes a row.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::prepare_rows(int value_head,
                                                                   bool norms) const {
  const int at = thread >> 2, token = tile.first + at;
  const bool inside = at < kKdaChunk && token < tile.count, first = at < kKdaChunk && t == 0;
  if (first) {
    float beta = 0.0f;
    if (inside) {
      beta = to_float(load_element(row_of<typename Config::BetaElement>(
                                       in.beta, in.beta_batch_stride, in.beta_token_stride, token) +
                                   value_head * in.beta_head_stride));
      beta = step_size<Config>(beta, in.beta_factor);
    }
    store_shared(shared + Smem::kBeta + 4 * at, beta);
  }
  if (!norms) return;
  float squares[2] = {};
  if constexpr (Config::kL2Norm) {
    for (int slice = 0; slice < in.key_dim; slice += 32) {
      const int c = slice + 8 * t;
      EightColumns<Element, Config::kVectorBytes> each[2];
      each[0].load(query_row(token), c, in.key_dim, inside);
      each[1].load(key_row(token), c, in.key_dim, inside);
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
    if (first) store_shared(shared + Smem::kNorms + 256 * x + 4 * at, norm);
  }
}

// Columns of V from `value` on: do, y and vn of the chunk, h and dh for the pass's columns of K.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::copy_tiles(int value_head, int pass,
                                                                 int value) const {
  const long long stride = static_cast<long long>(in.value_heads) * in.value_dim;
  const long long token = static_cast<long long>(tile.row) * in.tokens + tile.start + tile.first;
  const long long saved =
      token * stride + static_cast<long long>(value_head) * in.value_dim + value;
  const long long state = (static_cast<long long>(tile.slot) * in.value_heads + value_head) *
                              in.key_dim * in.value_dim +
                          static_cast<long long>(value) * in.key_dim + kColumns * pass;
  const Element* d_o = row_of<Element>(p.d_o, p.do_batch_stride, p.do_token_stride, tile.first) +
                       value_head * p.do_head_stride + value;
  const int tokens = tile.count - tile.first;
  const int values = in.value_dim - value, keys = in.key_dim - kColumns * pass;
  copy_tile<Config, 64, kValues>(shared + Smem::kDo, d_o, p.do_token_stride, tokens, values,
                                 thread);
  copy_tile<Config, 64, kValues>(shared + Smem::kY,
                                 static_cast<const Element*>(p.value_grads) + saved, stride, tokens,
                                 values, thread);
  copy_tile<Config, 64, kValues>(shared + Smem::kVn,
                                 static_cast<const Element*>(p.saved_values) + saved, stride,
                                 tokens, values, thread);
  copy_tile<Config, kValues, kColumns>(shared + Smem::kH,
                                       static_cast<const Element*>(p.saved_states) + state,
                                       in.key_dim, values, keys, thread);
  copy_tile<Config, kValues, kColumns>(shared + Smem::kDh,
                                       static_cast<const Element*>(p.state_grads) + state,
                                       in.key_dim, values, keys, thread);
  copy_async_commit();
}

// Adds the scores of the warp's block of rows with the blocks of columns up to it: do vn^T by the
// warps of even parts, y vn^T by those of odd ones; four parts share the columns.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::add_scores(Scores& scores) const {
  using Panels = KdaPanels<64>;
  const unsigned rows =
      shared + (part % 2 == 0 ? Smem::kDo : Smem::kY) +
      Panels::offset(16 * block + row_of_rows_first(lane), chunk_of_rows_first(lane));
  const unsigned columns =
      shared + Smem::kVn + Panels::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
#pragma unroll
  for (int j = 0; j < kValues / 16; ++j) {
    Operands a;
    load_planes<Element, Smem::kValuePlane>(a, Panels::at(rows, 2 * j));
#pragma unroll
    for (int i = 0; i < 8 / kParts; ++i) {
      const int c = kParts / 2 * i + part / 2;
      if (c > block) continue;
      Operands b;
      load_planes<Element, Smem::kValuePlane>(b, Panels::at(columns + c * 16 * 64, 2 * j));
      multiply_add_pair(scores.x[i][0], scores.x[i][1], a, b);
    }
  }
}
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::store_scores(const Scores& scores) const {
  const unsigned to = shared + (part % 2 == 0 ? Smem::kOutScores : Smem::kValueScores);
#pragma unroll
  for (int i = 0; i < 8 / kParts; ++i) {
    const int c = kParts / 2 * i + part / 2;
    if (c > block) continue;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int lane_row = g + 8 * h, column = 8 * n + 2 * t;
        const float first = scores.x[i][n][2 * h], second = scores.x[i][n][2 * h + 1];
        if (part % 2 == 0 && c == block && lane_row / 2 == column / 2) {
          store_shared(shared + Smem::kDiagonal + 4 * (16 * block + lane_row),
                       lane_row == column ? first : second);
        }
        store_planes<Element, Smem::kScorePlane>(
            to + lower_square(block, c) + KdaSquare::offset(lane_row, n) + 4 * t, first, second);
      }
    }
  }
}

// dv = beta y, and y . v, of the columns of V, a row by the same lanes whatever the columns.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::finish_values(int value_head, int value,
                                                                    float& dot) const {
  constexpr int kLanes = Config::kThreads / 64;
  const int at = value_row(), token = tile.first + at;
  const bool inside = token < tile.count;
  const Element* v = row_of<Element>(in.v, in.v_batch_stride, in.v_token_stride, token) +
                     value_head * in.v_head_stride;
  Element* dv = row_of<Element>(p.dv, p.dv_batch_stride, p.dv_token_stride, token) +
                value_head * p.dv_head_stride;
  const float beta = load_shared(shared + Smem::kBeta + 4 * at);
  static_assert(kValues / 8 % kLanes == 0, "a lane has whole chunks");
#pragma unroll
  for (int turn = 0; turn < kValues / 8 / kLanes; ++turn) {
    const int chunk = value_chunk(turn);
    const int from = value + 8 * chunk;
    EightColumns<Element, Config::kVectorBytes> values;
    values.load(v, from, in.value_dim, inside);
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = 0.0f;
#pragma unroll
    for (int plane = Smem::kPlanes - 1; plane >= 0; --plane) {
      using Plane = typename Choose<Smem::kPlanes == 3, bf16, Element>::Type;
      float word[4];
      load_shared(shared + Smem::kY + plane * Smem::kValuePlane + KdaPanels<64>::offset(at, chunk),
                  word);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float pair[2];
        unpack_pair(bit_cast<unsigned>(word[i]), Plane{}, pair[0], pair[1]);
        y[2 * i] += pair[0], y[2 * i + 1] += pair[1];
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) dot = __fmaf_rn(y[i], values.at(i), dot);
    if (p.dv == nullptr) continue;
    constexpr int kEach = 8 / static_cast<int>(sizeof(Element));
#pragma unroll
    for (int i = 0; i < 8; i += kEach) {
      float d[kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e) d[e] = y[i + e] * beta;
      if (inside && from + i < in.value_dim) store_global(dv + from + i, pack<Element, 8>(d));
    }
  }
}

// queries += do h^T, values += y h^T, keys += vn dh^T over columns of V, and the products of h and
// dh, of two columns of K and every 16th of V a thread.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::add_states(Accumulators& queries,
                                                                 Accumulators& values,
                                                                 Accumulators& keys,
                                                                 float (&dots)[2]) const {
  using Panels = KdaPanels<64>;
  using States = KdaPanels<kValues>;
  const unsigned rows =
      shared + Panels::offset(16 * block + row_of_rows_first(lane), chunk_of_rows_first(lane));
  const unsigned columns = States::at(
      shared + Smem::kH + States::offset(row_of_rows_first(lane), chunk_of_rows_first(lane)),
      2 * part);
#pragma unroll
  for (int j = 0; j < kValues / 16; ++j) {
    const unsigned from = Panels::at(rows, 2 * j);
    Operands a, b;
    load_planes_transposed<Element, Smem::kStatePlane>(b, columns + j * 16 * 64);
    load_planes<Element, Smem::kValuePlane>(a, from + Smem::kDo);
    multiply_add_pair(queries.x[0], queries.x[1], a, b);
    load_planes<Element, Smem::kValuePlane>(a, from + Smem::kY);
    multiply_add_pair(values.x[0], values.x[1], a, b);
    load_planes_transposed<Element, Smem::kStatePlane>(
        b, columns + j * 16 * 64 + (Smem::kDh - Smem::kH));
    load_planes<Element, Smem::kValuePlane>(a, from + Smem::kVn);
    multiply_add_pair(keys.x[0], keys.x[1], a, b);
  }
  const int word = state_word();
#pragma unroll
  for (int i = 0; i < kValues / 16; ++i) {
    const int lane_row = state_row() + 16 * i;
    const unsigned at = shared + Smem::kH + States::offset(lane_row, word / 4) + word % 4 * 4;
    float h[2], dh[2];
    load_pair_of_planes<Element, Smem::kStatePlane>(at, h);
    load_pair_of_planes<Element, Smem::kStatePlane>(at + (Smem::kDh - Smem::kH), dh);
    dots[0] = __fmaf_rn(h[0], dh[0], dots[0]);
    dots[1] = __fmaf_rn(h[1], dh[1], dots[1]);
  }
}
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::store_state_dots(
    const float (&dots)[2]) const {
  store_shared(shared + Smem::kStateDots + state_row() * Smem::kRow + 8 * state_word(), dots[0],
               dots[1]);
}

template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::load_rows(int value_head, int pass,
                                                                LaneRows& lane_rows,
                                                                float (&alpha)[2][4]) const {
  KdaNumbers numbers = {in.scale, in.lower_bound, in.beta_factor, 1.0f, nullptr};
  if constexpr (Config::kAlog) {
    numbers.set_rate(load_element(static_cast<const float*>(in.A_log) + value_head));
  }
  find_beta(lane_rows);
  float logarithm[4] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Element *q = query_row(token(h)), *k = key_row(token(h));
    const auto* gate =
        row_of<typename Config::GateElement>(in.g, in.g_batch_stride, in.g_token_stride, token(h)) +
        value_head * in.g_head_stride;
    float q_scale = in.scale, k_norm = 1.0f;
    if constexpr (Config::kL2Norm) {
      q_scale *= load_shared(shared + Smem::kNorms + 4 * row(h));
      k_norm = load_shared(shared + Smem::kNorms + 256 + 4 * row(h));
    }
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      const int at = column(pass, c);
      const bool inside = there(h) && at < in.key_dim;
      float raw_q[2], raw_k[2], z[2], bias[2] = {};
      load_pair(q + at, inside, raw_q);
      load_pair(k + at, inside, raw_k);
      load_pair(gate + at, inside, z);
      if constexpr (Config::kDtBias) {
        load_pair(static_cast<const float*>(in.dt_bias) +
                      static_cast<long long>(value_head) * in.key_dim + at,
                  at < in.key_dim, bias);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        lane_rows.q[h][c + i] = raw_q[i] * q_scale;
        lane_rows.k[h][c + i] = Config::kL2Norm ? raw_k[i] * k_norm : raw_k[i];
        const float log = decay_log<Config>(z[i], bias[i], numbers);
        alpha[h][c + i] = inside ? kda_decay(log) : 1.0f;
        logarithm[c + i] += inside ? log : 0.0f;
      }
    }
  }
  const float decay = kda_decay(sum_over_tokens(logarithm, g));
  if ((g & 1) == 0) {
    store_shared(shared + Smem::kDecay + Smem::kRow * block + 4 * lane_column(g >> 1), decay);
  }
}

// Keys as columns of later blocks' pairs, queries and keys as rows of earlier blocks'.
template <class Config>
__device__ __forceinline__ void KdaChunkWork<Config>::publish(
    const LaneRows& lane_rows, const KdaProducts<4>& products) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const unsigned to = shared + KdaPanels<64>::offset(row(h), 2 * part + n) + 4 * t;
      float kg[2], qg[2], ke[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int c = 2 * n + i;
        kg[i] = lane_rows.k[h][c] * products.after[h][c];
        qg[i] = lane_rows.q[h][c] * products.to[h][c];
        ke[i] = -lane_rows.beta[h] * lane_rows.k[h][c] * products.to[h][c];
      }
      store_planes<Element, Smem::kKeyPlane>(to + Smem::kKg, kg[0], kg[1]);
      store_planes<Element, Smem::kKeyPlane>(to + Smem::kQg, qg[0], qg[1]);
      store_planes<Element, Smem::kKeyPlane>(to + Smem::kKe, ke[0], ke[1]);
    }
  }
}

}  // namespace lathe
