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
#include "kda/chunk_pairs.cuh"

namespace lathe {

template <class Config>
struct KdaBackward : KdaChunkPairs<Config> {
  using Work = KdaChunkPairs<Config>;
  using typename Work::Element;
  using typename Work::Own;
  using typename Work::Scores;
  using typename Work::Smem;
  using typename Work::Sums;
  using Work::block, Work::column, Work::g, Work::head, Work::in, Work::lane, Work::own_column;
  using Work::p, Work::part, Work::place, Work::row, Work::shared, Work::t, Work::there;
  using Work::thread, Work::token, Work::warp;
  using Work::Work;
  static constexpr int kPasses = Smem::kPasses, kColumns = Smem::kColumns;
  using Gate = typename Config::GateElement;
  using Beta = typename Config::BetaElement;

  template <class T>
  __device__ __forceinline__ T* row_of(const void* tensor, long long batch_stride,
                                       long long token_stride, int own) const {
    return Work::template row_of<T>(tensor, batch_stride, token_stride, own);
  }

  // dq and dk of the pass, over the heads.
  struct Gradients {
    Sums query, key;
  };

  __device__ __forceinline__ unsigned stash(int pass, int which, int i) const {
    const bool in_tiles = pass == kPasses - 1;
    return shared + (in_tiles ? 0 : Smem::kStash + pass * Smem::kStashBytes) +
           (8 * which + i) * 4 * Config::kThreads + 4 * thread;
  }
  __device__ __forceinline__ const Element* input_row(int which, int own) const {
    return which == 0 ? this->query_row(own) : this->key_row(own);
  }
  __device__ __forceinline__ bool wanted(int which) const {
    return (which == 0 ? p.dq : p.dk) != nullptr;
  }
  __device__ __forceinline__ Element* output_row(int which, int own) const {
    return which == 0 ? row_of<Element>(p.dq, p.dq_batch_stride, p.dq_token_stride, own) +
                            head * p.dq_head_stride
                      : row_of<Element>(p.dk, p.dk_batch_stride, p.dk_token_stride, own) +
                            head * p.dk_head_stride;
  }
  // Where a head's sums of rows are kept from pass to pass; the last place is shared by all others.
  __device__ __forceinline__ int heads_place(int member) const {
    return minimum(member, Smem::kHeads - 1);
  }
  __device__ __forceinline__ bool kept(int member) const {
    return !Config::kGrouped || member < Smem::kHeads - 1;
  }

  // The quad's sum, to what is kept there if there is `more`: always the same lane's.
  __device__ __forceinline__ void add_kept(unsigned to, float value, bool more) const {
    value = sum_over_quad(value);
    if (t == 0) store_shared(to, more ? load_shared(to) + value : value);
  }

  __device__ __forceinline__ void multiply_values(int value_head, int member, int pass,
                                                  Sums& queries, Sums& rows, Sums& columns);
  __device__ __forceinline__ void store_dots(const Own& own, const KdaProducts<4>& products,
                                             Sums& columns) const;
  __device__ __forceinline__ void add_cross(const Own& own, const KdaProducts<4>& products,
                                            Sums& queries, Sums& rows, Sums& columns,
                                            float (&dg)[2][4]) const;
  __device__ __forceinline__ void add_levels(const Own& own, const float (&alpha)[2][4],
                                             Sums& queries, Sums& rows, Sums& columns,
                                             float (&dg)[2][4]) const;
  __device__ __forceinline__ void add_gradients(const Own& own, Sums& queries, Sums& rows,
                                                Sums& columns, int member, int pass,
                                                Gradients& gradients) const;
  __device__ __forceinline__ void add_behind(float (&dg)[2][4]) const;
  __device__ __forceinline__ void finish_gate(int value_head, int pass, float (&dg)[2][4]) const;
  __device__ __forceinline__ void finish_beta(int value_head, int member, int pass) const;
  __device__ __forceinline__ void run_head(int member, int pass, Gradients& gradients);
  __device__ __forceinline__ void finish_pass(int pass, Gradients& gradients) const;
  __device__ __forceinline__ void finish_stashed(int which, int h, float norm, float dot) const;
  __device__ __forceinline__ void finish_stored(int which, int h, float norm, float dot) const;
  __device__ __forceinline__ void finish() const;
  __device__ __forceinline__ void run();
};

// All of V: the products with states, in the first pass the scores too, which heads of a group
// make anew in each; and dv.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::multiply_values(int value_head, int member,
                                                                     int pass, Sums& queries,
                                                                     Sums& rows, Sums& columns) {
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
    constexpr int kLanes = Config::kThreads / 64;
#pragma unroll
    for (int other = 1; other < kLanes; other *= 2) {
      value_dot += __shfl_xor_sync(0xffffffffu, value_dot, other);
    }
    if (thread % kLanes == 0) {
      store_shared(shared + Smem::kValueDots + 256 * heads_place(member) + 4 * (thread / kLanes),
                   value_dot);
    }
  }
  this->store_state_dots(dots);
}

// Of k with what the state behind the chunk gives its block, and of h with dh.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::store_dots(const Own& own,
                                                                const KdaProducts<4>& products,
                                                                Sums& columns) const {
  float sums[4] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      sums[c] = __fmaf_rn(own.k[h][c] * products.after[h][c], columns.at(h, c), sums[c]);
    }
  }
  const float whole = sum_over_tokens(sums, g);
  if ((g & 1) == 0) {
    store_shared(shared + Smem::kKeyDots + Smem::kRow * block + 4 * own_column(g >> 1), whole);
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
__device__ __forceinline__ void KdaBackward<Config>::add_cross(const Own& own,
                                                               const KdaProducts<4>& products,
                                                               Sums& queries, Sums& rows,
                                                               Sums& columns,
                                                               float (&dg)[2][4]) const {
  float row_terms[2][4], column_terms[2][4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float diagonal = load_shared(shared + Smem::kDiagonal + 4 * row(h));
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float q = own.q[h][c], k = own.k[h][c];
      const float query = queries.at(h, c) * products.to[h][c];
      const float key_row = rows.at(h, c) * products.to[h][c];
      const float key_column = columns.at(h, c) * products.after[h][c];
      row_terms[h][c] = q * query - own.beta[h] * k * key_row;
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
__device__ __forceinline__ void KdaBackward<Config>::add_levels(const Own& own,
                                                                const float (&alpha)[2][4],
                                                                Sums& queries, Sums& rows,
                                                                Sums& columns,
                                                                float (&dg)[2][4]) const {
  KdaProducts<4> products(alpha);
#pragma unroll 1
  for (int half = 1; half <= 8; half *= 2) {
    float span[2][4] = {};
    this->add_level(half, own, products, queries, rows, columns, span);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      add_spans(dg[h], span[h], half, g, ((g + 8 * h) & half) != 0);
    }
    if (half < 8) products.join(half, g);
  }
}

// dq and dk of this head, and the rows' products with q and k.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::add_gradients(const Own& own, Sums& queries,
                                                                   Sums& rows, Sums& columns,
                                                                   int member, int pass,
                                                                   Gradients& gradients) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float beta_dot = 0.0f, query_dot = 0.0f, key_dot = 0.0f;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float q = own.q[h][c], k = own.k[h][c];
      const float dq = in.scale * queries.at(h, c);
      const float dk = __fmaf_rn(-own.beta[h], rows.at(h, c), columns.at(h, c));
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
    add_kept(to + Smem::kBetaDots + 256 * (Smem::kParts * heads_place(member) + part), beta_dot,
             pass > 0 && kept(member));
    if constexpr (Config::kL2Norm) {
      const bool more = pass > 0 || member > 0;
      add_kept(to + Smem::kNormDots + 512 * part, query_dot, more);
      add_kept(to + Smem::kNormDots + 512 * part + 256, key_dot, more);
    }
  }
}

// Pairs that span the whole block: of later blocks' rows with the blocks and the state before, and
// of the columns before with the state behind; the states themselves.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::add_behind(float (&dg)[2][4]) const {
#pragma unroll
  for (int c = 0; c < 4; c += 2) {
    const unsigned at = shared + 4 * own_column(c);
    float behind[2] = {}, decay[2] = {1.0f, 1.0f};
    float own_decay[4][2];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      load_shared(at + Smem::kDecay + Smem::kRow * b, own_decay[b][0], own_decay[b][1]);
    }
#pragma unroll
    for (int r = 1; r < 4; ++r) {
      if (r <= block) continue;
      float through[2];
      load_shared(at + Smem::kThrough + Smem::kRow * (r * (r - 1) / 2 + block), through[0],
                  through[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        decay[i] *= own_decay[r - 1][i];
        behind[i] = __fmaf_rn(decay[i], through[i], behind[i]);
      }
    }
    decay[0] = decay[1] = 1.0f;
#pragma unroll
    for (int b = 3; b >= 0; --b) {
      float dots[2];
      load_shared(at + Smem::kKeyDots + Smem::kRow * b, dots[0], dots[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (b < block) behind[i] = __fmaf_rn(decay[i], dots[i], behind[i]);
        decay[i] *= own_decay[b][i];
      }
    }
    float states[2];
    load_shared(at + Smem::kStateDots + 16 * Smem::kRow, states[0], states[1]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      behind[i] = __fmaf_rn(decay[i], states[i], behind[i]);
      dg[0][c + i] += behind[i], dg[1][c + i] += behind[i];
    }
  }
}

// dg as the gate was given, and what the chunk adds to dA_log and ddt_bias.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::finish_gate(int value_head, int pass,
                                                                 float (&dg)[2][4]) const {
  KdaNumbers numbers = {in.scale, in.lower_bound, in.beta_factor, 1.0f, nullptr};
  if constexpr (Config::kAlog) {
    numbers.gate_factor = kda_rate(load_element(static_cast<const float*>(in.A_log) + value_head));
  }
  const float rate = numbers.gate_factor;
  float rate_sum = 0.0f, sums[4] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if constexpr (Config::kGate != 0) {
      const Gate* raw = row_of<Gate>(in.g, in.g_batch_stride, in.g_token_stride, token(h)) +
                        value_head * in.g_head_stride;
#pragma unroll
      for (int c = 0; c < 4; c += 2) {
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
          float& d = dg[h][c + i];
          const float sum = z[i] + bias[i];
          if constexpr (Config::kGate == 1) {
            if (inside) {
              rate_sum = __fmaf_rn(d, decay_log<Config>(z[i], bias[i], numbers), rate_sum);
            }
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
    if (p.dg != nullptr) {
      store_row(row_of<Gate>(p.dg, p.dg_batch_stride, p.dg_token_stride, token(h)) +
                    value_head * p.dg_head_stride,
                dg[h], kColumns * pass + 16 * part, in.key_dim, there(h));
    }
  }
  if constexpr (Config::kAlog || Config::kDtBias) {
#pragma unroll
    for (int other = 1; other < 32; other *= 2) {
      rate_sum += __shfl_xor_sync(0xffffffffu, rate_sum, other);
    }
    if (lane == 0) store_shared(shared + Smem::kRateSums + 4 * warp, rate_sum);
    const float whole = sum_over_tokens(sums, g);
    if ((g & 1) == 0) {
      store_shared(shared + Smem::kBiasSums + Smem::kRow * block + 4 * own_column(g >> 1), whole);
    }
    __syncthreads();  // every block's sums are there
    const int own = thread, key = kColumns * pass + own;
    const long long at = static_cast<long long>(place.slot) * in.value_heads + value_head;
    if (own < kColumns && key < in.key_dim && p.bias_sums != nullptr) {
      float sum = 0.0f;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        sum += load_shared(shared + Smem::kBiasSums + Smem::kRow * r + 4 * own);
      }
      store_element(static_cast<float*>(p.bias_sums) + at * in.key_dim + key, sum);
    }
    if (own == 32 && p.rate_sums != nullptr) {
      float* to = static_cast<float*>(p.rate_sums) + at;
      float sum = pass == 0 ? 0.0f : *static_cast<volatile float*>(to);
#pragma unroll
      for (int w = 0; w < Config::kThreads / 32; ++w) {
        sum += load_shared(shared + Smem::kRateSums + 4 * w);
      }
      store_element(to, sum);
    }
  }
}

// dbeta, once all columns of K have been gone through; of heads too many to keep sums of, what
// there is so far.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::finish_beta(int value_head, int member,
                                                                 int pass) const {
  const bool last = pass == kPasses - 1;
  const int at = thread, own = place.first + at;
  if (p.dbeta == nullptr || at >= kKdaChunk || own >= place.count) return;
  if (!last && kept(member)) return;
  Beta* to = row_of<Beta>(p.dbeta, p.dbeta_batch_stride, p.dbeta_token_stride, own) +
             value_head * p.dbeta_head_stride;
  const int slot = heads_place(member);
  float d = 0.0f;
#pragma unroll
  for (int i = 0; i < Smem::kParts; ++i) {
    d -= load_shared(shared + Smem::kBetaDots + 256 * (Smem::kParts * slot + i) + 4 * at);
  }
  if (kept(member) || pass == 0) {
    d += load_shared(shared + Smem::kValueDots + 256 * slot + 4 * at);
  } else {
    d += to_float(*to);
  }
  if constexpr (Config::kSigmoid) {
    const float beta = load_shared(shared + Smem::kBeta + 4 * at);
    if (last) d *= beta * (1.0f - beta * rcp(in.beta_factor));
  }
  store_element(to, from_float<Beta>(d));
}

// One value head's part in the columns of a pass.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::run_head(int member, int pass,
                                                              Gradients& gradients) {
  const int value_head = Config::kGrouped ? head * (in.value_heads / in.heads) + member : head;
  this->find_thread();
  __syncthreads();  // all have left the tiles, beta and the sums
  this->prepare_rows(value_head, member == 0 && pass == 0);
  Sums queries, rows, columns;
  multiply_values(value_head, member, pass, queries, rows, columns);
  this->find_thread();
  Own own;
  float alpha[2][4], dg[2][4];
  this->load_own(value_head, pass, own, alpha);
  {
    KdaProducts<4> whole(alpha);
    whole.template join<1>(g);
    whole.template join<2>(g);
    whole.template join<4>(g);
    whole.join_eights();
    __syncthreads();  // all have left the tiles; scores, decays and dots are there
    this->publish(own, whole);
#pragma unroll
    for (int i = 0; i < 8; ++i) store_shared(this->alpha_place(i), alpha[i / 4][i % 4]);
    __syncthreads();  // what the blocks give each other is there
    this->find_beta(own);
    store_dots(own, whole, columns);
    this->chain_rows(queries, rows, own, whole);
    this->chain_columns(columns);
    add_cross(own, whole, queries, rows, columns, dg);
  }
  this->find_thread();
  this->find_beta(own);
#pragma unroll
  for (int i = 0; i < 8; ++i) alpha[i / 4][i % 4] = load_shared(this->alpha_place(i));
  add_levels(own, alpha, queries, rows, columns, dg);
  this->find_beta(own);
  add_gradients(own, queries, rows, columns, member, pass, gradients);
  __syncthreads();  // what spans blocks and the rows' sums are there
  this->find_thread();
  add_behind(dg);
  finish_beta(value_head, member, pass);
  finish_gate(value_head, pass, dg);
}

// dq and dk of the pass: stored, or kept for the norm.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::finish_pass(int pass,
                                                                 Gradients& gradients) const {
  if constexpr (Smem::kStashed) {
    if (pass == kPasses - 1) __syncthreads();  // all have left the tiles, which take the last ones
  }
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    Sums& sums = which == 0 ? gradients.query : gradients.key;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (Smem::kStashed) {
#pragma unroll
        for (int c = 0; c < 4; ++c) store_shared(stash(pass, which, 4 * h + c), sums.at(h, c));
      } else {
        Element* to = output_row(which, token(h));
        float d[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) d[c] = sums.at(h, c);
        if (wanted(which)) {
          store_row(to, d, kColumns * pass + 16 * part, in.key_dim, there(h));
        }
      }
    }
    sums = {};
  }
}

// dq or dk of what was given: through the norm, whose gradient is r (d - n (d . n)).
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::finish_stashed(int which, int h, float norm,
                                                                    float dot) const {
  const Element* from = input_row(which, token(h));
  Element* to = output_row(which, token(h));
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    float d[4];
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      float own[2];
      const int at = column(pass, c);
      load_pair(from + at, there(h) && at < in.key_dim, own);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float each = load_shared(stash(pass, which, 4 * h + c + i));
        d[c + i] = norm * (each - own[i] * norm * dot);
      }
    }
    store_row(to, d, kColumns * pass + 16 * part, in.key_dim, there(h));
  }
}
// The same of what lies where it belongs, each thread's own pieces.
template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::finish_stored(int which, int h, float norm,
                                                                   float dot) const {
  using Pieces = KdaRowPieces<Element>;
  const Element* from = input_row(which, token(h));
  Element* to = output_row(which, token(h));
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
    for (int m = 0; m < Pieces::kPieces; ++m) {
      const int at = kColumns * pass + 16 * part + Pieces::column(m);
      if (!there(h) || at >= in.key_dim) continue;
      float own[Pieces::kEach], d[Pieces::kEach];
      Words<8> raw, stored;
      load_global(from + at, raw);
      const volatile unsigned* words = reinterpret_cast<const volatile unsigned*>(to + at);
      stored.word[0] = words[0], stored.word[1] = words[1];
      unpack<Element>(raw, own), unpack<Element>(stored, d);
#pragma unroll
      for (int i = 0; i < Pieces::kEach; ++i) d[i] = norm * (d[i] - own[i] * norm * dot);
      store_global(to + at, pack<Element, 8>(d));
    }
  }
}

template <class Config>
__device__ __forceinline__ void KdaBackward<Config>::finish() const {
  __syncthreads();  // every part's sums are there
#pragma unroll 1
  for (int which = 0; which < 2; ++which) {
    if (!wanted(which)) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float norm = load_shared(shared + Smem::kNorms + 256 * which + 4 * row(h));
      float dot = 0.0f;
#pragma unroll
      for (int i = 0; i < Smem::kParts; ++i) {
        dot += load_shared(shared + Smem::kNormDots + 512 * i + 256 * which + 4 * row(h));
      }
      if constexpr (Smem::kStashed) {
        finish_stashed(which, h, norm, dot);
      } else {
        finish_stored(which, h, norm, dot);
      }
    }
  }
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
    finish_pass(pass, gradients);
  }
  this->find_thread();
  if constexpr (Config::kL2Norm) finish();
}

// Tokens [first, end) of a row, of some heads' columns.
template <class Config, class Element>
__device__ __forceinline__ void clear_tokens(void* tensor, long long token_stride,
                                             long long head_stride, long long first, long long end,
                                             int first_head, int heads, int columns) {
  if (tensor == nullptr) return;
  for (long long token = first; token < end; ++token) {
    Element* row = static_cast<Element*>(tensor) + token * token_stride;
    for (int i = static_cast<int>(threadIdx.x); i < heads * columns; i += Config::kThreads) {
      store_element(row + (first_head + i / columns) * head_stride + i % columns,
                    from_float<Element>(0.0f));
    }
  }
}

// Zeros in the sums of an idle slot, and in those rows of a chunk that belong to no sequence: the
// slots of the last one reach as far as the tensors do.
template <class Config>
__device__ __forceinline__ void clear_rest(const KdaBackwardParams& p, const KdaChunkPlace& place,
                                           int head) {
  using Element = typename Config::Element;
  const KdaInputs& in = p.in;
  const int group = in.value_heads / in.heads, first_head = head * group;
  if (place.first >= place.count) {
    const long long from = static_cast<long long>(place.slot) * in.value_heads + first_head;
    if constexpr (Config::kAlog) {
      clear_tokens<Config, float>(p.rate_sums, 1, 1, from, from + 1, 0, group, 1);
    }
    if constexpr (Config::kDtBias) {
      clear_tokens<Config, float>(p.bias_sums, in.key_dim, in.key_dim, from, from + 1, 0, group,
                                  in.key_dim);
    }
  }
  if (!Config::kPacked || place.sequence + 1 < in.sequences) return;
  const int first = place.start + maximum(place.first, place.count);
  const int behind = place.start + place.first + kKdaChunk;
  const int end = minimum(behind, in.tokens);
  clear_tokens<Config, Element>(p.dq, p.dq_token_stride, p.dq_head_stride, first, end, head, 1,
                                in.key_dim);
  clear_tokens<Config, Element>(p.dk, p.dk_token_stride, p.dk_head_stride, first, end, head, 1,
                                in.key_dim);
  clear_tokens<Config, Element>(p.dv, p.dv_token_stride, p.dv_head_stride, first, end, first_head,
                                group, in.value_dim);
  clear_tokens<Config, typename Config::GateElement>(p.dg, p.dg_token_stride, p.dg_head_stride,
                                                     first, end, first_head, group, in.key_dim);
  clear_tokens<Config, typename Config::BetaElement>(
      p.dbeta, p.dbeta_token_stride, p.dbeta_head_stride, first, end, first_head, group, 1);
}

template <class Config>
__device__ void kda_backward(const KdaBackwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  KdaBackward<Config> work(p, shared_address(shared));
  clear_rest<Config>(p, work.place, work.head);
  if (work.place.first < work.place.count) work.run();
}

}  // namespace lathe
