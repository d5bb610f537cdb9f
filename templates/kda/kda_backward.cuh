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
//   dg_t = the terms of sum_i (q_i .* dq_i + k_i .* row_i) + sum_j k_j .* dh vn_j + h .* dh in
//          which alpha_t is a factor: rows i >= t with columns j < t, states being before and
//          behind
//
// No inverse appears, and no exponent is positive: pairs of different blocks of 16 are chained from
// block to block as states are, those of one block go by levels as in kda/block.cuh.
//
// A thread block owns a chunk of one query head. 16 columns of K for every four warps are worked on
// at a time; within them the value heads that read the query head follow each other and their dq
// and dk add up in registers, in one order.
#pragma once
#include "kda/chunk_results.cuh"

namespace lathe {

template <class Config>
struct KdaBackward : KdaChunkResults<Config> {
  using Work = KdaChunkResults<Config>;
  using typename Work::Accumulators;
  using typename Work::Gradients;
  using typename Work::LaneRows;
  using typename Work::Scores;
  using typename Work::Smem;
  using Work::block, Work::g, Work::head, Work::in, Work::lane_column, Work::p, Work::part,
      Work::tile;
  using Work::row, Work::shared, Work::t, Work::thread, Work::heads_slot, Work::kept;
  using Work::Work;
  static constexpr int kPasses = Smem::kPasses, kColumns = Smem::kColumns;

  __device__ __forceinline__ void multiply_values(int value_head, int member, int pass,
                                                  Accumulators& queries, Accumulators& rows,
                                                  Accumulators& columns);
  __device__ __forceinline__ void store_dots(const LaneRows& lane_rows,
                                             const KdaProducts<4>& products,
                                             Accumulators& columns) const;
  __device__ __forceinline__ void add_cross(const LaneRows& lane_rows,
                                            const KdaProducts<4>& products, Accumulators& queries,
                                            Accumulators& rows, Accumulators& columns,
                                            float (&dg)[2][4]) const;
  __device__ __forceinline__ void add_levels(const LaneRows& lane_rows, const float (&alpha)[2][4],
                                             Accumulators& queries, Accumulators& rows,
                                             Accumulators& columns, float (&dg)[2][4]) const;
  __device__ __forceinline__ void add_gradients(const LaneRows& lane_rows, Accumulators& queries,
                                                Accumulators& rows, Accumulators& columns,
                                                int member, int pass, Gradients& gradients) const;
  __device__ __forceinline__ void run_head(int member, int pass, Gradients& gradients);
  __device__ __forceinline__ void run();
};

// All of V: the products with states, in the first pass the scores too, which heads of a group
// make anew in each; and dv.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::multiply_values(int value_head, int member,
                                                                     int pass,
                                                                     Accumulators& queries,
                                                                     Accumulators& rows,
                                                                     Accumulators& columns) {
  Scores scores;
  float dots[2] = {}, value_dot = 0.0f;
  const bool first = pass == 0;
#pragma unroll 1
  for (int value = 0; value < in.value_dim; value += Smem::kValues) {
    if (value != 0) __syncthreads();  // all have left what the tiles replace
    this->find_thread();
    this->copy_tiles(value_head, pass, value);
    copy_async_wait<0>();
    __syncthreads();  // the tiles are there for all
    this->find_thread();
    if (first || Config::kGrouped) this->add_scores(scores);
    if (first) this->finish_values(value_head, value, value_dot);
    this->add_states(queries, rows, columns, dots);
  }
  if (first || Config::kGrouped) this->store_scores(scores);
  if (first) {
    value_dot = sum_over_quad(value_dot);
    if constexpr (Smem::kParts == 4) value_dot += __shfl_xor_sync(0xffffffffu, value_dot, 8);
    if (t == 0 && (Smem::kParts == 2 || (thread & 8) == 0)) {
      store_shared(shared + Smem::kValueDots + 256 * heads_slot(member) + 4 * this->value_row(),
                   value_dot);
    }
  }
  this->store_state_dots(dots);
}

// Stores the dot products of k with what the state behind the chunk gives its block, and of h with
// dh.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::store_dots(const LaneRows& lane_rows,
                                                                const KdaProducts<4>& products,
                                                                Accumulators& columns) const {
  float sums[4] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      sums[c] = __fmaf_rn(lane_rows.k[h][c] * products.after[h][c], columns.at(h, c), sums[c]);
    }
  }
  const float whole = sum_over_tokens(sums, g);
  if ((g & 1) == 0) {
    store_shared(shared + Smem::kKeyDots + Smem::kRow * block + 4 * lane_column(g >> 1), whole);
  }
  if (thread < kColumns) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      sum += load_shared(shared + Smem::kStateDots + Smem::kRow * i + 4 * thread);
    }
    store_shared(shared + Smem::kStateDots + 16 * Smem::kRow + 4 * thread, sum);
  }
}

// The sums over states and other blocks, brought to the tokens, with the token itself; and what
// they add to the gates of the warp's block.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::add_cross(
    const LaneRows& lane_rows, const KdaProducts<4>& products, Accumulators& queries,
    Accumulators& rows, Accumulators& columns, float (&dg)[2][4]) const {
  float row_terms[2][4], column_terms[2][4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float diagonal = load_shared(shared + Smem::kDiagonal + 4 * row(h));
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float q = lane_rows.q[h][c], k = lane_rows.k[h][c];
      const float query = queries.at(h, c) * products.to[h][c];
      const float key_row = rows.at(h, c) * products.to[h][c];
      const float key_column = columns.at(h, c) * products.after[h][c];
      row_terms[h][c] = q * query - lane_rows.beta[h] * k * key_row;
      column_terms[h][c] = k * key_column;
      queries.at(h, c) = __fmaf_rn(diagonal, k, query);
      rows.at(h, c) = key_row;
      columns.at(h, c) = __fmaf_rn(diagonal, q, key_column);
      dg[h][c] = 0.0f;
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    add_spans(dg[h], row_terms[h], 8, g, true);
    add_spans(dg[h], column_terms[h], 8, g, false);
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) dg[0][c] += row_terms[1][c], dg[1][c] += column_terms[0][c];
}

// The pairs within the warp's block.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::add_levels(
    const LaneRows& lane_rows, const float (&alpha)[2][4], Accumulators& queries,
    Accumulators& rows, Accumulators& columns, float (&dg)[2][4]) const {
  KdaProducts<4> products(alpha);
#pragma unroll 1
  for (int half = 1; half <= 8; half *= 2) {
    float span[2][4] = {};
    this->add_level(half, lane_rows, products, queries, rows, columns, span);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      add_spans(dg[h], span[h], half, g, ((g + 8 * h) & half) != 0);
    }
    if (half < 8) products.join(half, g);
  }
}

// dq and dk of this head, and the rows' products with q and k.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::add_gradients(
    const LaneRows& lane_rows, Accumulators& queries, Accumulators& rows, Accumulators& columns,
    int member, int pass, Gradients& gradients) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float beta_dot = 0.0f, query_dot = 0.0f, key_dot = 0.0f;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float q = lane_rows.q[h][c], k = lane_rows.k[h][c];
      const float dq = in.scale * queries.at(h, c);
      const float dk = __fmaf_rn(-lane_rows.beta[h], rows.at(h, c), columns.at(h, c));
      beta_dot = __fmaf_rn(k, rows.at(h, c), beta_dot);
      if constexpr (Config::kGrouped) {
        gradients.query.at(h, c) += dq, gradients.key.at(h, c) += dk;
      } else {
        gradients.query.at(h, c) = dq, gradients.key.at(h, c) = dk;
      }
      if constexpr (Config::kL2Norm) {
        query_dot = __fmaf_rn(q, queries.at(h, c), query_dot);
        key_dot = __fmaf_rn(k, dk, key_dot);
      }
    }
    const unsigned to = shared + 4 * row(h);
    this->add_kept(to + Smem::kBetaDots + 256 * (Smem::kParts * heads_slot(member) + part),
                   beta_dot, pass > 0 && kept(member));
    if constexpr (Config::kL2Norm) {
      const bool more = pass > 0 || member > 0;
      this->add_kept(to + Smem::kNormDots + 512 * part, query_dot, more);
      this->add_kept(to + Smem::kNormDots + 512 * part + 256, key_dot, more);
    }
  }
}

// One value head's part in the columns of a pass.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::run_head(int member, int pass,
                                                              Gradients& gradients) {
  const int value_head = Config::kGrouped ? head * (in.value_heads / in.heads) + member : head;
  this->find_thread();
  __syncthreads();  // all have left the tiles, beta and the sums
  this->prepare_rows(value_head, member == 0 && pass == 0);
  Accumulators queries, rows, columns;
  multiply_values(value_head, member, pass, queries, rows, columns);
  this->find_thread();
  LaneRows lane_rows;
  float alpha[2][4], dg[2][4];
  this->load_rows(value_head, pass, lane_rows, alpha);
  {
    KdaProducts<4> whole(alpha);
    whole.template join<1>(g);
    whole.template join<2>(g);
    whole.template join<4>(g);
    whole.join_eights();
    __syncthreads();  // all have left the tiles; scores, decays and dots are there
    this->publish(lane_rows, whole);
#pragma unroll
    for (int i = 0; i < 8; ++i) store_shared(this->alpha_address(i), alpha[i / 4][i % 4]);
    __syncthreads();  // what the blocks give each other is there
    this->find_beta(lane_rows);
    store_dots(lane_rows, whole, columns);
    this->chain_rows(queries, rows, lane_rows, whole);
    this->chain_columns(columns);
    add_cross(lane_rows, whole, queries, rows, columns, dg);
  }
  this->find_thread();
  this->find_beta(lane_rows);
#pragma unroll
  for (int i = 0; i < 8; ++i) alpha[i / 4][i % 4] = load_shared(this->alpha_address(i));
  add_levels(lane_rows, alpha, queries, rows, columns, dg);
  this->find_beta(lane_rows);
  add_gradients(lane_rows, queries, rows, columns, member, pass, gradients);
  __syncthreads();  // what spans blocks and the rows' sums are there
  this->find_thread();
  this->add_behind(dg);
  this->finish_beta(value_head, member, pass);
  this->finish_gate(value_head, pass, dg);
}

template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::run() {
  const int group = Config::kGrouped ? in.value_heads / in.heads : 1;
  Gradients gradients;
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll 1
    for (int member = 0; member < group; ++member) run_head(member, pass, gradients);
    this->find_thread();
    this->finish_pass(pass, gradients);
  }
  this->find_thread();
  if constexpr (Config::kL2Norm) this->finish();
}

template <class Config>
__device__ void kda_backward(const KdaBackwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  KdaBackward<Config> work(p, shared_address(shared));
  clear_rest<Config>(p, work.tile, work.head);
  if (work.tile.first < work.tile.count) work.run();
}

}  // namespace lathe
