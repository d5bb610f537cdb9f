// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward: the gradients of a chunk of 64 tokens, from the rows vn and y and the states h and
// dh that kda_backward_scan left. With a_ij = alpha_{j+1} ... alpha_i, a_i from the chunk's start
// and b_j to its end,
//
//   dq_i = scale (a_i .* h do_i + sum_{j<=i} (do_i . vn_j) a_ij .* k_j)
//   r_i  =        a_i .* h y_i  + sum_{j<i}  (y_i . vn_j)  a_ij .* k_j       row_i = -beta_i r_i
//   col_j = b_j .* dh vn_j + sum_{i>=j} scale (do_i . vn_j) a_ij .* q_i
//                          - sum_{i>j} beta_i (y_i . vn_j) a_ij .* k_i
//   dk = row + col    dv_i = beta_i y_i    dbeta_i = y_i . v_i - k_i . r_i
//   dg_t = sum_{s>=t} (q_s .* dq_s + k_s .* (row_s - col_s)) + sum_v (state .* dh behind the chunk)
//
// No inverse appears, and no exponent is positive: pairs of different blocks of 16 are chained from
// block to block as states are, those of one block go by levels as in kda/block.cuh. A pair enters
// its row and its column with the same rounded number, so that the sums behind dg, differences of
// nearly equal terms, lose nothing but the rounding of the factors.
//
// A thread block owns a chunk of one query head and goes through the value heads that read it; 64
// columns of K at a time.
#pragma once
#include "kda/chunk_pairs.cuh"

namespace lathe {

template <class Config>
struct KdaBackward : KdaChunkPairs<Config> {
  using Work = KdaChunkPairs<Config>;
  using typename Work::Element;
  using typename Work::Own;
  using typename Work::Smem;
  using typename Work::Sums;
  using Work::block, Work::column, Work::g, Work::half, Work::head, Work::in, Work::lane, Work::p;
  using Work::place, Work::shared, Work::t, Work::there, Work::token, Work::warp;
  using Work::Work;
  static constexpr int kPasses = Smem::kPasses;

  template <class T>
  __device__ __forceinline__ T* row_of(const void* tensor, long long batch_stride,
                                       long long token_stride, long long own) const {
    return Work::template row_of<T>(tensor, batch_stride, token_stride, own);
  }

  // Products of the lane's two rows over its columns: k . r, q . dq and k . dk.
  struct RowDots {
    float beta[2] = {}, query[2] = {}, key[2] = {};
  };

  __device__ __forceinline__ unsigned stash(int pass, int which, int i) const {
    const bool in_tiles = pass >= Smem::kKept;
    return shared + (in_tiles ? 0 : Smem::kStash + pass * Smem::kKeptBytes) +
           (16 * which + i) * 1024 + 4 * static_cast<int>(threadIdx.x);
  }
  __device__ __forceinline__ const Element* input_row(int which, int h) const {
    return which == 0 ? row_of<Element>(in.q, in.q_batch_stride, in.q_token_stride, token(h)) +
                            head * in.q_head_stride
                      : row_of<Element>(in.k, in.k_batch_stride, in.k_token_stride, token(h)) +
                            head * in.k_head_stride;
  }
  __device__ __forceinline__ Element* output_row(int which, int h) const {
    return which == 0 ? row_of<Element>(p.dq, p.dq_batch_stride, p.dq_token_stride, token(h)) +
                            head * p.dq_head_stride
                      : row_of<Element>(p.dk, p.dk_batch_stride, p.dk_token_stride, token(h)) +
                            head * p.dk_head_stride;
  }

  __device__ __forceinline__ void finish_gate(int value_head, int pass, const float (&suffix)[2][8],
                                              float& rate_sum) const;
  __device__ __forceinline__ void keep(int pass, bool more, int which,
                                       const float (&d)[2][8]) const;
  __device__ __forceinline__ void run_pass(int value_head, int pass, bool more, RowDots& dots,
                                           float& rate_sum) const;
  __device__ __forceinline__ void finish_head(int value_head, const RowDots& dots,
                                              float rate_sum) const;
  __device__ __forceinline__ void finish(int which) const;
  __device__ __forceinline__ void run() const;
};

// dg as the gate was given, from the sums behind each token in its block.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::finish_gate(int value_head, int pass,
                                                                 const float (&suffix)[2][8],
                                                                 float& rate_sum) const {
  using Gate = typename Config::GateElement;
  float rate = 1.0f;
  if constexpr (Config::kAlog) {
    rate = kda_rate(load_element(static_cast<const float*>(in.A_log) + value_head));
  }
  float behind[8], sums[8] = {};
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    const unsigned at = shared + 4 * (column(pass, c) % kKdaColumns);
    float decay = 1.0f, dots = 0.0f;
    behind[c] = 0.0f;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      decay *= load_shared(at + Smem::kDecay + 256 * r);
      behind[c] += load_shared(at + Smem::kKeyDots + 256 * r);
      if (r > block) behind[c] += load_shared(at + Smem::kTotals + 256 * r);
    }
#pragma unroll
    for (int w = 0; w < 8; ++w) dots += load_shared(at + Smem::kStateDots + 256 * w);
    behind[c] = __fmaf_rn(decay, dots, behind[c]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float dg[8];
    const Gate* raw = row_of<Gate>(in.g, in.g_batch_stride, in.g_token_stride, token(h)) +
                      value_head * in.g_head_stride;
#pragma unroll
    for (int c = 0; c < 8; ++c) dg[c] = suffix[h][c] + behind[c];
    if constexpr (Config::kGate != 0) {
#pragma unroll
      for (int c = 0; c < 8; c += 2) {
        const int at = column(pass, c);
        const bool inside = there(h) && at < in.key_dim;
        float z[2], bias[2] = {};
        load_pair(raw + at, inside, z);
        if constexpr (Config::kDtBias) {
          load_pair(static_cast<const float*>(in.dt_bias) +
                        static_cast<long long>(value_head) * in.key_dim + at,
                    at < in.key_dim, bias);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& d = dg[c + i];
          const float sum = z[i] + bias[i];
          if constexpr (Config::kGate == 1) {
            const KdaNumbers numbers = {in.scale, in.lower_bound, in.beta_factor, rate, nullptr};
            if (inside)
              rate_sum = __fmaf_rn(d, decay_log<Config>(z[i], bias[i], numbers), rate_sum);
            d *= -rate * sigmoid(sum);
          } else {
            const float s = sigmoid(rate * sum);
            d *= in.lower_bound * s * (1.0f - s) * rate;
            if (inside) rate_sum = __fmaf_rn(d, sum, rate_sum);
          }
          if (inside) sums[c + i] += d;
        }
      }
    }
    store_row(row_of<Gate>(p.dg, p.dg_batch_stride, p.dg_token_stride, token(h)) +
                  value_head * p.dg_head_stride,
              dg, kKdaColumns * pass + 32 * half, in.key_dim, there(h));
  }
  if constexpr (Config::kDtBias) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
#pragma unroll
      for (int other = 4; other < 32; other *= 2) {
        sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], other);
      }
      if (g == 0) {
        store_shared(shared + Smem::kBiasSums + 256 * block + 4 * (column(pass, c) % kKdaColumns),
                     sums[c]);
      }
    }
    __syncthreads();  // every block's sums are there
    const int own = static_cast<int>(threadIdx.x), key = kKdaColumns * pass + own;
    if (own < kKdaColumns && key < in.key_dim) {
      float sum = 0.0f;
#pragma unroll
      for (int r = 0; r < 4; ++r) sum += load_shared(shared + Smem::kBiasSums + 256 * r + 4 * own);
      store_element(
          static_cast<float*>(p.bias_sums) +
              (static_cast<long long>(place.slot) * in.value_heads + value_head) * in.key_dim + key,
          sum);
    }
  }
}

// What a value head adds to dq or dk: stored, or kept for what is still to come.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::keep(int pass, bool more, int which,
                                                          const float (&d)[2][8]) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if constexpr (Smem::kKeep) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const unsigned to = stash(pass, which, 8 * h + c);
        store_shared(to, more ? load_shared(to) + d[h][c] : d[h][c]);
      }
    } else {
      store_row(output_row(which, h), d[h], kKdaColumns * pass + 32 * half, in.key_dim, there(h));
    }
  }
}

// 64 columns of K. `more`: another head of the group was here before.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::run_pass(int value_head, int pass, bool more,
                                                              RowDots& row_dots,
                                                              float& rate_sum) const {
  Sums queries, rows, columns;
  float dots[2] = {};
  {
    float scores[4][2][4] = {}, value_dot = 0.0f;
#pragma unroll 1
    for (int value = 0; value < in.value_dim; value += 64) {
      __syncthreads();  // all have left what the tiles replace
      this->copy_tiles(value_head, pass, value);
      copy_async_wait<0>();
      __syncthreads();  // the tiles are there for all
      if (pass == 0) {
        this->add_scores(scores);
        this->finish_values(value_head, value, value_dot);
      }
      this->add_states(queries, rows, columns, dots);
    }
    if (pass == 0) {
      this->store_scores(scores);
      value_dot = sum_over_quad(value_dot);
      if (t == 0) store_shared(shared + Smem::kValueDots + threadIdx.x, value_dot);
    }
  }
  store_shared(shared + Smem::kStateDots + 256 * warp + 8 * lane, dots[0], dots[1]);
  Own own;
  float alpha[2][8];
  this->load_own(value_head, pass, own, alpha);
  __syncthreads();  // all have left the tiles; scores, decays and dots are there
  KdaProducts<8> whole(alpha);
  whole.template join<1>(g);
  whole.template join<2>(g);
  whole.template join<4>(g);
  whole.join_eights();
  this->publish(own, whole);
  __syncthreads();  // what the blocks give each other is there

  float key_dots[8] = {};
#pragma unroll
  for (int c = 0; c < 8; ++c) {  // of k with what the state behind the chunk gives it
    float later = 1.0f;
    for (int r = block + 1; r < 4; ++r) {
      later *= load_shared(shared + Smem::kDecay + 256 * r + 4 * (column(pass, c) % kKdaColumns));
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      key_dots[c] =
          __fmaf_rn(own.key(h, c) * whole.after[h][c] * later, columns.at(h, c), key_dots[c]);
    }
#pragma unroll
    for (int other = 4; other < 32; other *= 2) {
      key_dots[c] += __shfl_xor_sync(0xffffffffu, key_dots[c], other);
    }
    if (g == 0) {
      store_shared(shared + Smem::kKeyDots + 256 * block + 4 * (column(pass, c) % kKdaColumns),
                   key_dots[c]);
    }
  }
  this->chain_rows(queries, Smem::kOutScores);
  this->chain_rows(rows, Smem::kValueScores);
  this->chain_columns(columns);
  float beta[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = 16 * block + g + 8 * h;
    beta[h] = load_shared(shared + Smem::kBeta + 4 * row);
    const float diagonal = load_shared(shared + Smem::kDiagonal + 4 * row);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      queries.at(h, c) = __fmaf_rn(queries.at(h, c), whole.to[h][c], diagonal * own.key(h, c));
      rows.at(h, c) *= whole.to[h][c];
      columns.at(h, c) =
          __fmaf_rn(columns.at(h, c), whole.after[h][c], in.scale * diagonal * own.query(h, c));
    }
  }
  KdaProducts<8> products(alpha);
  this->template add_level<1>(own, products, beta, queries, rows, columns);
  products.template join<1>(g);
  this->template add_level<2>(own, products, beta, queries, rows, columns);
  products.template join<2>(g);
  this->template add_level<4>(own, products, beta, queries, rows, columns);
  products.template join<4>(g);
  this->template add_level<8>(own, products, beta, queries, rows, columns);

  float suffix[2][8], dq[2][8], dk[2][8];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const float q = own.query(h, c), k = own.key(h, c);
      const float row = -beta[h] * rows.at(h, c), column_sum = columns.at(h, c);
      dq[h][c] = in.scale * queries.at(h, c);
      dk[h][c] = row + column_sum;
      suffix[h][c] = q * dq[h][c] + k * (row - column_sum);
      row_dots.beta[h] = __fmaf_rn(k, rows.at(h, c), row_dots.beta[h]);
      if constexpr (Config::kL2Norm) {
        row_dots.query[h] = __fmaf_rn(q, dq[h][c], row_dots.query[h]);
        row_dots.key[h] = __fmaf_rn(k, dk[h][c], row_dots.key[h]);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int apart = 1; apart < 8; apart *= 2) {
        const float other = __shfl_down_sync(0xffffffffu, suffix[h][c], 4 * apart);
        if (g + apart < 8) suffix[h][c] += other;
      }
    }
    suffix[0][c] += __shfl_sync(0xffffffffu, suffix[1][c], t);
    if (g == 0) {
      store_shared(shared + Smem::kTotals + 256 * block + 4 * (column(pass, c) % kKdaColumns),
                   suffix[0][c]);
    }
  }
  __syncthreads();  // the blocks' sums are there, and all have left the tiles
  keep(pass, more, 0, dq);
  keep(pass, more, 1, dk);
  finish_gate(value_head, pass, suffix, rate_sum);
}

template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::finish_head(int value_head,
                                                                 const RowDots& dots,
                                                                 float rate_sum) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = sum_over_quad(dots.beta[h]);
    if (t == 0) {
      store_shared(shared + Smem::kRowSums + 768 * half + 4 * (16 * block + g + 8 * h), sum);
    }
  }
  if constexpr (Config::kAlog) {
#pragma unroll
    for (int other = 1; other < 32; other *= 2) {
      rate_sum += __shfl_xor_sync(0xffffffffu, rate_sum, other);
    }
    if (lane == 0) store_shared(shared + Smem::kRateSums + 4 * warp, rate_sum);
  }
  __syncthreads();  // both halves' sums are there
  const int row = static_cast<int>(threadIdx.x), own = place.first + row;
  if (row < kKdaChunk && own < place.count) {
    using Beta = typename Config::BetaElement;
    float d = load_shared(shared + Smem::kValueDots + 4 * row) -
              (load_shared(shared + Smem::kRowSums + 4 * row) +
               load_shared(shared + Smem::kRowSums + 768 + 4 * row));
    if constexpr (Config::kSigmoid) {
      const float beta = load_shared(shared + Smem::kBeta + 4 * row);
      d *= beta * (1.0f - beta / in.beta_factor);
    }
    store_element(row_of<Beta>(p.dbeta, p.dbeta_batch_stride, p.dbeta_token_stride, own) +
                      value_head * p.dbeta_head_stride,
                  from_float<Beta>(d));
  }
  if constexpr (Config::kAlog) {
    if (threadIdx.x == 0) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < 8; ++w) sum += load_shared(shared + Smem::kRateSums + 4 * w);
      store_element(static_cast<float*>(p.rate_sums) +
                        static_cast<long long>(place.slot) * in.value_heads + value_head,
                    sum);
    }
  }
  __syncthreads();  // all have left beta and the sums
}

// dq or dk of what was given: through the norm, whose gradient is r (d - n (d . n)).
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::finish(int which) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = 16 * block + g + 8 * h;
    const float norm = load_shared(shared + Smem::kNorms + 256 * which + 4 * row);
    const unsigned sums = shared + Smem::kRowSums + 256 * (1 + which) + 4 * row;
    const float whole = Config::kL2Norm ? load_shared(sums) + load_shared(sums + 768) : 0.0f;
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      float d[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) d[c] = load_shared(stash(pass, which, 8 * h + c));
      if constexpr (Config::kL2Norm) {
#pragma unroll
        for (int c = 0; c < 8; c += 2) {
          float own[2];
          const int at = column(pass, c);
          load_pair(input_row(which, h) + at, there(h) && at < in.key_dim, own);
#pragma unroll
          for (int i = 0; i < 2; ++i) d[c + i] = norm * (d[c + i] - own[i] * norm * whole);
        }
      }
      store_row(output_row(which, h), d, kKdaColumns * pass + 32 * half, in.key_dim, there(h));
    }
  }
}

template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::run() const {
  const int group = Config::kGrouped ? in.value_heads / in.heads : 1;
  RowDots dots;
#pragma unroll 1
  for (int member = 0; member < group; ++member) {
    const int value_head = head * group + member;
    this->prepare_rows(value_head, member == 0);
    float rate_sum = 0.0f;
    dots.beta[0] = dots.beta[1] = 0.0f;
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      run_pass(value_head, pass, member > 0, dots, rate_sum);
    }
    finish_head(value_head, dots, rate_sum);
  }
  if constexpr (Config::kL2Norm) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const unsigned to = shared + Smem::kRowSums + 768 * half + 4 * (16 * block + g + 8 * h);
      const float query = sum_over_quad(dots.query[h]), key = sum_over_quad(dots.key[h]);
      if (t == 0) store_shared(to + 256, query), store_shared(to + 512, key);
    }
    __syncthreads();  // both halves' sums are there
  }
  if constexpr (Smem::kKeep) finish(0), finish(1);
}

template <class Config>
__device__ void kda_backward(const KdaBackwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const KdaBackward<Config> work(p, shared_address(shared));
  if (work.place.first >= work.place.count) {  // an idle slot adds nothing
    const int own = static_cast<int>(threadIdx.x), group = p.in.value_heads / p.in.heads;
    const long long from =
        static_cast<long long>(work.place.slot) * p.in.value_heads + work.head * group;
    if constexpr (Config::kAlog) {
      if (own < group) store_element(static_cast<float*>(p.rate_sums) + from + own, 0.0f);
    }
    if constexpr (Config::kDtBias) {
      for (int i = own; i < group * p.in.key_dim; i += Config::kThreads) {
        store_element(static_cast<float*>(p.bias_sums) + from * p.in.key_dim + i, 0.0f);
      }
    }
    return;
  }
  work.run();
}

}  // namespace lathe
