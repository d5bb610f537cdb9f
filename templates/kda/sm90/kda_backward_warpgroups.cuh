// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward_warpgroups: kda_backward.cuh's results, by warpgroups (sm_90a). A thread block has a
// chunk of a head, and all columns of K and V of it at once: a row's norm waits for no other pass.
#pragma once
#include "kda/sm90/chunk_rows.cuh"

namespace lathe {

template <class Config>
struct KdaBackwardWarpgroups : KdaChunkRows<Config> {
  using Chunk = KdaChunkRows<Config>;
  using Chunk::block, Chunk::column, Chunk::decays_of, Chunk::load_gates, Chunk::make_norms,
      Chunk::norms, Chunk::numbers, Chunk::publish, Chunk::rows_of, Chunk::g, Chunk::head,
      Chunk::in, Chunk::lane, Chunk::p;
  using Chunk::Chunk;
  using Chunk::part, Chunk::place, Chunk::row, Chunk::shared, Chunk::t, Chunk::there;
  using Chunk::thread, Chunk::tile, Chunk::warp, Chunk::word;
  using typename Chunk::Beta;
  using typename Chunk::Element;
  using typename Chunk::Gate;
  using typename Chunk::Norms;
  using typename Chunk::Rows;
  using typename Chunk::Smem;
  using typename Chunk::Sums;
  static constexpr int kParts = Smem::kParts, kEach = Chunk::kEach;

  __device__ __forceinline__ void sum_states() const;
  __device__ __forceinline__ void add_own(int m, bool parts, Sums& sums, float (&dg)[2][4]) const;
  __device__ __forceinline__ void finish_pairs(bool parts, Sums& sums) const;
  __device__ __forceinline__ void add_later(int m, float (&dg)[2][4]) const;
  __device__ __forceinline__ void finish_gates(Sums& sums) const;
  __device__ __forceinline__ void finish_rows(const Norms& norms, Sums& sums) const;
  __device__ __forceinline__ void finish_beta() const;
  __device__ __forceinline__ void finish_parameters() const;
  __device__ __forceinline__ void run(int ahead);
};

// The dot products of h with dh, from the warps' parts.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::sum_states() const {
  if (thread >= Config::kWidth) return;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < Smem::kWarps; ++i) {
    sum += load_shared(shared + Smem::kStateParts + i * Smem::kColumn + this->state_part(thread));
  }
  store_shared(shared + Smem::kStateDots + 4 * thread, sum);
}

// x of a token and of those behind it in its block.
__device__ __forceinline__ void add_behind_in_block(float (&x)[2][4], int g) {
  const int first = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int from = 1; from < 8; from *= 2) {
        const float other = __shfl_down_sync(0xffffffffu, x[h][c], 4 * from);
        x[h][c] += g + from < 8 ? other : 0.0f;
      }
    }
    x[0][c] += __shfl_sync(0xffffffffu, x[1][c], first);
  }
}

// The pairs of the warp's own block.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::add_own(int m, bool parts,
                                                                       Sums& sums,
                                                                       float (&dg)[2][4]) const {
  if (!parts) {
    this->add_quotients(m, rows_of(norms(), m), sums, dg);
    return;
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float alpha[2][4], sum[4];
    decays_of(m, numbers(), alpha, sum);
    const float of_column[2] = {alpha[0][c], alpha[1][c]};
    this->add_by_distance(m, c, rows_of(norms(), m), of_column, sums, dg);
  }
}

// dq without its scale, dk, and of the gates' gradients what their own block adds: to `sums`.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::finish_pairs(bool parts,
                                                                            Sums& sums) const {
  float beta_dots[2] = {}, query_dots[2] = {}, key_dots[2] = {};
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float dg[2][4];
    this->finish_chains(m, sums, dg);
    add_own(m, parts, sums, dg);
    add_behind_in_block(dg, g);
    const Rows rows = rows_of(norms(), m);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float diagonal = load_shared(shared + Smem::kDiagonal + 4 * row(h));
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = place(m, h, c);
        const float q = rows.q[h][c], k = rows.k[h][c], r = sums.rows[at];
        const float dq = __fmaf_rn(diagonal, k, sums.queries[at]);
        const float dk = __fmaf_rn(-rows.beta[h], r, __fmaf_rn(diagonal, q, sums.columns[at]));
        beta_dots[h] = __fmaf_rn(k, r, beta_dots[h]);
        query_dots[h] = __fmaf_rn(q, dq, query_dots[h]);
        key_dots[h] = __fmaf_rn(k, dk, key_dots[h]);
        sums.queries[at] = dq, sums.columns[at] = dk, sums.rows[at] = dg[h][c];
        if (h == 0 && g == 0) {
          store_shared(shared + Smem::kTotals + block * Smem::kColumn + 4 * column(m, c), dg[0][c]);
        }
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const unsigned at = shared + part * Smem::kRow + 4 * row(h);
    const float beta_dot = sum_over_quad(beta_dots[h]);
    if (t == 0) store_shared(at + Smem::kBetaDots, beta_dot);
    if constexpr (Config::kL2Norm) {
      const float query_dot = sum_over_quad(query_dots[h]);
      const float key_dot = sum_over_quad(key_dots[h]);
      if (t == 0) {
        store_shared(at + Smem::kNormDots, query_dot);
        store_shared(at + Smem::kNormDots + kParts * Smem::kRow, key_dot);
      }
    }
  }
}

// Adds what later blocks and the state behind the chunk add to the gates of the block. Each lane
// makes the sum of one column for all that have its place in the quad.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::add_later(int m,
                                                                         float (&dg)[2][4]) const {
  const unsigned at = shared + 4 * column(m, g & 3);
  float sum = load_shared(at + Smem::kStateDots);
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    sum = __fmaf_rn(sum, load_shared(at + Smem::kDecay + b * Smem::kColumn),
                    load_shared(at + Smem::kBehind + b * Smem::kColumn));
  }
#pragma unroll
  for (int b = 3; b > 0; --b) {
    const float total = load_shared(at + Smem::kTotals + b * Smem::kColumn);
    sum += b > block ? total : 0.0f;
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float later = __shfl_sync(0xffffffffu, sum, 4 * c + t);
    dg[0][c] += later, dg[1][c] += later;
  }
}

// dg as the gate was given, and what the warp adds to dA_log and ddt_bias.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::finish_gates(Sums& sums) const {
  const KdaNumbers from = numbers();
  float rate_sum = 0.0f;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float dg[2][4], z[2][4] = {}, bias[4] = {}, bias_sums[4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) dg[i / 4][i % 4] = sums.rows[place(m, i / 4, i % 4)];
    add_later(m, dg);
    if constexpr (Config::kGate != kKdaGateGiven) load_gates(m, z, bias);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const bool inside = there(h) && column(m, c) < in.key_dim;
        dg[h][c] = gate_gradient<Config>(dg[h][c], z[h][c], bias[c], from, inside, rate_sum);
        if (inside) bias_sums[c] += dg[h][c];
      }
      if (p.dg == nullptr) continue;
      store_row(this->template lane_row<Gate>(p.dg, p.dg_batch_stride, p.dg_token_stride, h) +
                    head * p.dg_head_stride,
                dg[h], 32 * part + 16 * m, in.key_dim, there(h));
    }
    if constexpr (Config::kAlog || Config::kDtBias) {
      const float whole = sum_over_tokens(bias_sums, g);
      if ((g & 1) == 0) {
        store_shared(shared + Smem::kBiasSums + block * Smem::kColumn + 4 * column(m, g >> 1),
                     whole);
      }
    }
  }
  if constexpr (Config::kAlog || Config::kDtBias) {
#pragma unroll
    for (int other = 1; other < 32; other *= 2) {
      rate_sum += __shfl_xor_sync(0xffffffffu, rate_sum, other);
    }
    if (lane == 0) store_shared(shared + Smem::kRateSums + 4 * warp, rate_sum);
  }
}

// dq and dk of what was given: through the norm, whose gradient is r (d - n (d . n)).
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::finish_rows(const Norms& norms,
                                                                           Sums& sums) const {
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    void* const to = which == 0 ? p.dq : p.dk;
    if (to == nullptr) continue;
    const float(&from)[kEach] = which == 0 ? sums.queries : sums.columns;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Element* at =
          which == 0
              ? this->template lane_row<Element>(to, p.dq_batch_stride, p.dq_token_stride, h) +
                    head * p.dq_head_stride
              : this->template lane_row<Element>(to, p.dk_batch_stride, p.dk_token_stride, h) +
                    head * p.dk_head_stride;
      const float norm = which == 0 ? norms.q[h] : norms.k[h];
      float dot = 0.0f;
      if constexpr (Config::kL2Norm) {
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          dot += load_shared(shared + Smem::kNormDots + (which * kParts + i) * Smem::kRow +
                             4 * row(h));
        }
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        float d[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          d[c] = from[place(m, h, c)];
          if (which == 0) d[c] *= in.scale;
          if constexpr (Config::kL2Norm) {
            float x[2];
            unpack_pair(load_shared_word(word(which == 0 ? Smem::kQ : Smem::kK, h, 2 * m + c / 2)),
                        Element{}, x[0], x[1]);
            d[c] = norm * (d[c] - x[c % 2] * norm * dot);
          }
        }
        store_row(at, d, 32 * part + 16 * m, in.key_dim, there(h));
      }
    }
  }
}

template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::finish_beta() const {
  const int token = tile.first + thread;
  if (p.dbeta == nullptr || thread >= kKdaChunk || token >= tile.count) return;
  Beta* to =
      this->template row_of<Beta>(p.dbeta, p.dbeta_batch_stride, p.dbeta_token_stride, token) +
      head * p.dbeta_head_stride;
  float d = load_shared(shared + Smem::kValueDots + 4 * thread);
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    d -= load_shared(shared + Smem::kBetaDots + i * Smem::kRow + 4 * thread);
  }
  if constexpr (Config::kSigmoid) {
    const float beta = load_shared(shared + Smem::kBeta + 4 * thread);
    d *= beta * (1.0f - beta * rcp(in.beta_factor));
  }
  store_element(to, from_float<Beta>(d));
}

// What the chunk adds to dA_log and ddt_bias.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::finish_parameters() const {
  const long long at = static_cast<long long>(tile.slot) * in.value_heads + head;
  if (thread < in.key_dim && p.bias_sums != nullptr) {
    float sum = 0.0f;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      sum += load_shared(shared + Smem::kBiasSums + b * Smem::kColumn + 4 * thread);
    }
    store_element(static_cast<float*>(p.bias_sums) + at * in.key_dim + thread, sum);
  }
  if (thread == Config::kThreads - 1 && p.rate_sums != nullptr) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Smem::kWarps; ++i) {
      sum += load_shared(shared + Smem::kRateSums + 4 * i);
    }
    store_element(static_cast<float*>(p.rate_sums) + at, sum);
  }
}

template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::run(int ahead) {
  if (thread == 0) {
#pragma unroll
    for (int i = Chunk::kOfOutputs; i <= Chunk::kOfKeys; ++i) {
      mbarrier_init(this->landed(static_cast<typename Chunk::Landing>(i)), 1);
    }
    fence_mbarrier_init();
    this->copy();
  }
  __syncthreads();  // the barriers are there for all
  if (warp == Smem::kWarps - 1) this->prefetch_next(ahead);
  Sums sums;
  {
    float scores[Chunk::kScoreColumns / 2] = {};
    typename Chunk::Values of_values;
    this->load_values(of_values);
    this->start_products(sums.queries, sums.rows, sums.columns, scores);
    this->multiply_states();
    this->finish_values(of_values);
    mbarrier_wait(this->landed(Chunk::kOfKeys), 0);
    if constexpr (Config::kL2Norm) this->add_squares();
    wgmma_wait<0>();
    wgmma_fence_operands(sums.queries);
    wgmma_fence_operands(sums.rows);
    wgmma_fence_operands(sums.columns);
    wgmma_fence_operands(scores);
    this->store_scores(scores);
  }
  __syncthreads();  // scores, beta and the sums over V and of norms are there
  this->find_thread();
  const bool parts = publish(make_norms());
  sum_states();
  __syncthreads();  // what the blocks give each other is there
  this->find_thread();
  this->store_behind(sums);
  this->chain_rows(sums);
  this->chain_columns(sums);
  finish_pairs(parts, sums);
  __syncthreads();  // what spans blocks and the rows' sums are there
  this->find_thread();
  finish_gates(sums);
  finish_rows(norms(), sums);
  finish_beta();
  if constexpr (Config::kAlog || Config::kDtBias) {
    __syncthreads();  // every block's sums are there
    finish_parameters();
  }
}

template <class Config>
__device__ void kda_backward_warpgroups(const KdaBackwardWarpgroupsParams& params) {
  extern __shared__ __align__(1024) float4 shared[];
  KdaBackwardWarpgroups<Config> work(params, shared_address(shared));
  clear_rest<Config>(params.backward, work.tile, work.head);
  if (work.tile.first < work.tile.count) work.run(params.ahead);
}

}  // namespace lathe
