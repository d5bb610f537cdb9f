// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward_warpgroups: kda_backward.cuh's results, by warpgroups (sm_90a). A thread block has a
// chunk of a head, and all columns of K and V of it at once: a row's norm waits for no other pass.
// It may go through a run of chunks, whose states follow from the first one's.
#pragma once
#include "kda/sm90/chunk_run.cuh"

namespace lathe {

template <class Config>
struct KdaBackwardWarpgroups : KdaChunkRun<Config> {
  using Chunk = KdaChunkRun<Config>;
  using Chunk::block, Chunk::g, Chunk::head, Chunk::in, Chunk::lane, Chunk::norms, Chunk::numbers;
  using Chunk::Chunk;
  using Chunk::p, Chunk::part, Chunk::place, Chunk::publish, Chunk::row, Chunk::rows_of;
  using Chunk::shared, Chunk::t, Chunk::there, Chunk::thread, Chunk::tile, Chunk::warp, Chunk::word;
  using typename Chunk::Beta;
  using typename Chunk::Element;
  using typename Chunk::Gate;
  using typename Chunk::Norms;
  using typename Chunk::Rows;
  using typename Chunk::Smem;
  using typename Chunk::Sums;
  static constexpr int kParts = Smem::kParts, kEach = Chunk::kEach;
  // Whether nobody reads rows of q, k and g any more once the pairs are done.
  static constexpr bool kKeysAreFree = !Config::kL2Norm && Config::kGate == kKdaGateGiven;

  // Whether the thread is the one that asks for tiles: of a warp that has no sums of its own to
  // make.
  __device__ __forceinline__ bool copies() const { return thread == Config::kThreads - 64; }
  // A lane that has tokens in turn adds `own` to the gradients of their gates, and tokens behind
  // those add `behind` in the block.
  struct Gates {
    float own[4][4], behind[4];
  };

  __device__ __forceinline__ void sum_states() const;
  __device__ __forceinline__ void finish_pairs(bool cut, int m, Sums& sums,
                                               float (&dg)[2][4]) const;
  __device__ __forceinline__ void finish_pairs(bool cut, Sums& sums) const;
  __device__ __forceinline__ void sum_gates(Gates& gates) const;
  __device__ __forceinline__ void add_later(Gates& gates) const;
  __device__ __forceinline__ void finish_gates(Gates& gates) const;
  __device__ __forceinline__ void finish_rows(const Norms& norms, Sums& sums) const;
  __device__ __forceinline__ void finish_beta() const;
  __device__ __forceinline__ void finish_parameters() const;
  __device__ __forceinline__ void work(bool more, int ahead);
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

// 16 columns of dq, of dk but for the diagonal, and of the gates' gradients what the pairs add.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::finish_pairs(
    bool cut, int m, Sums& sums, float (&dg)[2][4]) const {
  float to[2][4], of_columns[2][4];
  this->load_kept(m, to);
  if (cut) {
    float alpha[2][4];
    this->decays_of(m, alpha);
    KdaProducts<4> products(alpha);
    products.template join<1>(g);
    products.template join<2>(g);
    products.template join<4>(g);
    products.join_eights();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      of_columns[i / 4][i % 4] = Chunk::kUnscaling * products.after[i / 4][i % 4];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) of_columns[i / 4][i % 4] = rcp_normal(to[i / 4][i % 4]);
  }
  this->finish_chains(m, to, of_columns, sums, dg);
  if (!cut) return;
  float alpha[2][4];
  this->decays_of(m, alpha);  // once more: no register has held them
  const Rows rows = rows_of(norms(), m);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float of_column[2] = {alpha[0][c], alpha[1][c]};
    this->add_by_distance(m, c, rows, of_column, sums, dg);
  }
}

// dq, dk, and of the gates' gradients what the pairs of each token add: to the warp's tile.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::finish_pairs(bool cut,
                                                                            Sums& sums) const {
  float beta_dots[2] = {}, query_dots[2] = {}, key_dots[2] = {};
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float dg[2][4];
    finish_pairs(cut, m, sums, dg);
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
        sums.queries[at] = dq, sums.columns[at] = dk;
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {  // over e, which the same lane has read
        store_shared(this->kept(h, 2 * m + n), dg[h][2 * n], dg[h][2 * n + 1]);
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

// The gates' gradients of the lane's tokens in turn, from the warp's tile, and the block's sums.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::sum_gates(Gates& gates) const {
  float whole[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) load_shared(this->kept_in_turn(i), gates.own[i]);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float four = (gates.own[0][e] + gates.own[1][e]) + (gates.own[2][e] + gates.own[3][e]);
    const float beside = __shfl_xor_sync(0xffffffffu, four, 8), eight = four + beside;
    const float other = __shfl_xor_sync(0xffffffffu, eight, 16);
    gates.behind[e] = ((lane & 8) == 0 ? beside : 0.0f) + ((lane & 16) == 0 ? other : 0.0f);
    whole[e] = eight + other;
  }
  if (lane < 8) {
    store_shared(shared + Smem::kTotals + block * Smem::kColumn + 4 * this->column_in_turn(),
                 pack<float, 16>(whole));
  }
}

// Adds what later blocks and the state behind the chunk add to the gates of the block. Each lane
// makes the sum of one column for all that have its four.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::add_later(Gates& gates) const {
  const unsigned at = shared + 4 * (this->column_in_turn() + (lane >> 3));
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
  for (int e = 0; e < 4; ++e) {
    gates.behind[e] += __shfl_sync(0xffffffffu, sum, 8 * e + (lane & 7));
  }
}

// dg as the gate was given, and what the warp adds to dA_log and ddt_bias.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::finish_gates(Gates& gates) const {
  const KdaNumbers from = numbers();
  float rate_sum = 0.0f, z[4][4] = {}, bias[4] = {}, bias_sums[4] = {};
  add_later(gates);
  if constexpr (Config::kGate != kKdaGateGiven) this->load_gates(z, bias);
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    const bool inside = this->inside_in_turn(i);
    float dg[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      gates.behind[e] += gates.own[i][e];
      dg[e] = gate_gradient<Config>(gates.behind[e], z[i][e], bias[e], from, inside, rate_sum);
      if (inside) bias_sums[e] += dg[e];
    }
    if (p.dg == nullptr || !inside) continue;
    store_global(this->template row_of<Gate>(p.dg, p.dg_batch_stride, p.dg_token_stride,
                                             tile.first + this->row_in_turn() + i) +
                     head * p.dg_head_stride + this->column_in_turn(),
                 pack<Gate, 4 * sizeof(Gate)>(dg));
  }
  if constexpr (Config::kAlog || Config::kDtBias) {
    store_shared(shared + Smem::kBiasSums + block * Smem::kColumn +
                     4 * (this->column_in_turn() + (lane >> 3)),
                 sum_in_turn(bias_sums, lane));
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
  const float beta = load_shared(shared + Smem::kSteps + 4 * thread);
  d /= kda_row_scale(beta);
  if constexpr (Config::kSigmoid) {
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

// The chunk of `tile`. `more`: another one of the run comes behind it.
template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::work(bool more, int ahead) {
  if (warp == Smem::kWarps - 1) this->prefetch(more, ahead);
  Sums sums;
  {
    float scores[Chunk::kScoreColumns / 2] = {};
    typename Chunk::Values of_values;
    this->load_values(of_values);
    // Products of half of the warps run while the others do what needs none.
    const bool later = part >= kParts / 2;
    const auto without_products = [&] {
      this->multiply_states();
      this->finish_values(of_values);
    };
    if (later) this->wait_for_values(), without_products();
    this->start_products(sums.queries, sums.rows, sums.columns, scores);
    if (!later) without_products();
    mbarrier_wait(this->landed(Chunk::kOfKeys), this->phase);
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
  const bool cut = publish();
  sum_states();
  __syncthreads();  // what the blocks give each other is there
  this->find_thread();
  this->scale(sums);
  this->store_behind(cut, sums);
  this->chain_rows(cut, sums);
  this->chain_columns(cut, sums);
  this->find_thread();
  finish_pairs(cut, sums);
  if (more) this->carry_state();
  __syncwarp();  // what each token adds to the gates is there for every lane
  Gates gates;
  sum_gates(gates);
  if (more) fence_shared_writes();
  __syncthreads();  // what spans blocks and the rows' sums are there, and all have left V's tiles
  if (more && copies()) {
    this->copy_values(this->next_tile(), false);
    if constexpr (kKeysAreFree) this->copy_keys(this->next_tile());
  }
  this->find_thread();
  finish_gates(gates);
  finish_rows(norms(), sums);
  finish_beta();
  if constexpr (Config::kAlog || Config::kDtBias) {
    __syncthreads();  // every block's sums are there
    finish_parameters();
  }
}

template <class Config>
__device__ __forceinline__ void KdaBackwardWarpgroups<Config>::run(int ahead) {
  if (copies()) {
#pragma unroll
    for (int i = Chunk::kOfOutputs; i <= Chunk::kOfKeys; ++i) {
      mbarrier_init(this->landed(static_cast<typename Chunk::Landing>(i)), 1);
    }
    fence_mbarrier_init();
    if (tile.first < tile.count) this->copy_values(tile, true), this->copy_keys(tile);
  }
  __syncthreads();  // the barriers are there for all
#pragma unroll 1
  for (int left = p.run; left > 0; --left) {
    if (this->has_slot()) clear_rest<Config>(p, tile, head);
    const KdaChunkTile next = this->next_tile();
    if (tile.first < tile.count) {
      const bool more = left > 1 && next.first < next.count;
      work(more, ahead);
      if (more) {
        __syncthreads();  // all have left what the next chunk writes
        if constexpr (!kKeysAreFree) {
          if (copies()) this->copy_keys(next);
        }
      }
    }
    this->phase ^= 1, tile = next;
    this->find_thread();
  }
}

template <class Config>
__device__ void kda_backward_warpgroups(const KdaBackwardWarpgroupsParams& params) {
  extern __shared__ __align__(1024) float4 shared[];
  KdaBackwardWarpgroups<Config>(params, shared_address(shared)).run(params.ahead);
}

}  // namespace lathe
