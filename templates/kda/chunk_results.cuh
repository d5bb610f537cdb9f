// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The backward of KDA does this with a chunk's sums once they are whole: the gradients of gates and
// of beta, what waits for the norms of queries and keys, and zeros where there is no token.
#pragma once
#include "kda/chunk_pairs.cuh"
#include "kda/gate_gradient.cuh"

namespace lathe {

template <class Config>
struct KdaChunkResults : KdaChunkPairs<Config> {
  using Work = KdaChunkPairs<Config>;
  using typename Work::Accumulators;
  using typename Work::Element;
  using typename Work::Smem;
  using Work::block, Work::column, Work::g, Work::head, Work::in, Work::lane, Work::lane_column;
  using Work::p, Work::part, Work::tile, Work::row, Work::shared, Work::t, Work::there;
  using Work::thread, Work::token, Work::warp;
  using Work::Work;
  static constexpr int kPasses = Smem::kPasses, kColumns = Smem::kColumns;
  using Gate = typename Config::GateElement;
  using Beta = typename Config::BetaElement;

  template <class T>
  __device__ __forceinline__ T* row_of(const void* tensor, long long batch_stride,
                                       long long token_stride, int token) const {
    return Work::template row_of<T>(tensor, batch_stride, token_stride, token);
  }

  // dq and dk of the pass, over the heads.
  struct Gradients {
    Accumulators query, key;
  };

  __device__ __forceinline__ unsigned stash(int pass, int which, int i) const {
    const bool in_tiles = pass == kPasses - 1;
    return shared + (in_tiles ? 0 : Smem::kStash + pass * Smem::kStashBytes) +
           (8 * which + i) * 4 * Config::kThreads + 4 * thread;
  }
  __device__ __forceinline__ const Element* input_row(int which, int token) const {
    return which == 0 ? this->query_row(token) : this->key_row(token);
  }
  __device__ __forceinline__ bool wanted(int which) const {
    return (which == 0 ? p.dq : p.dk) != nullptr;
  }
  __device__ __forceinline__ Element* output_row(int which, int token) const {
    return which == 0 ? row_of<Element>(p.dq, p.dq_batch_stride, p.dq_token_stride, token) +
                            head * p.dq_head_stride
                      : row_of<Element>(p.dk, p.dk_batch_stride, p.dk_token_stride, token) +
                            head * p.dk_head_stride;
  }
  // Returns the slot that keeps a head's sums of rows from pass to pass; the last slot is shared by
  // all others.
  __device__ __forceinline__ int heads_slot(int member) const {
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
  __device__ __forceinline__ void add_behind(float (&dg)[2][4]) const;
  __device__ __forceinline__ void finish_gate(int value_head, int pass, float (&dg)[2][4]) const;
  __device__ __forceinline__ void finish_beta(int value_head, int member, int pass) const;
  __device__ __forceinline__ void finish_pass(int pass, Gradients& gradients) const;
  __device__ __forceinline__ void finish_stashed(int which, int h, float norm, float dot) const;
  __device__ __forceinline__ void finish_stored(int which, int h, float norm, float dot) const;
  __device__ __forceinline__ void finish() const;
};

// Pairs that span the whole block: of later blocks' rows with the blocks and the state before, and
// of the columns before with the state behind; the states themselves.
template <class Config>
__device__ __forceinline__ void KdaChunkResults<Config>::add_behind(float (&dg)[2][4]) const {
#pragma unroll
  for (int c = 0; c < 4; c += 2) {
    const unsigned at = shared + 4 * lane_column(c);
    float behind[2] = {}, decay[2] = {1.0f, 1.0f};
    float block_decay[4][2];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      load_shared(at + Smem::kDecay + Smem::kRow * b, block_decay[b][0], block_decay[b][1]);
    }
#pragma unroll
    for (int r = 1; r < 4; ++r) {
      if (r <= block) continue;
      float through[2];
      load_shared(at + Smem::kThrough + Smem::kRow * (r * (r - 1) / 2 + block), through[0],
                  through[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        decay[i] *= block_decay[r - 1][i];
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
        decay[i] *= block_decay[b][i];
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
__device__ __forceinline__ void KdaChunkResults<Config>::finish_gate(int value_head, int pass,
                                                                     float (&dg)[2][4]) const {
  KdaNumbers numbers = {in.scale, in.lower_bound, in.beta_factor, 1.0f, nullptr};
  if constexpr (Config::kAlog) {
    numbers.set_rate(load_element(static_cast<const float*>(in.A_log) + value_head));
  }
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
          d = gate_gradient<Config>(d, z[i], bias[i], numbers, inside, rate_sum);
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
      store_shared(shared + Smem::kBiasSums + Smem::kRow * block + 4 * lane_column(g >> 1), whole);
    }
    __syncthreads();  // every block's sums are there
    const int lane_column = thread, key = kColumns * pass + lane_column;
    const long long at = static_cast<long long>(tile.slot) * in.value_heads + value_head;
    if (lane_column < kColumns && key < in.key_dim && p.bias_sums != nullptr) {
      float sum = 0.0f;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        sum += load_shared(shared + Smem::kBiasSums + Smem::kRow * r + 4 * lane_column);
      }
      store_element(static_cast<float*>(p.bias_sums) + at * in.key_dim + key, sum);
    }
    if (lane_column == 32 && p.rate_sums != nullptr) {
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
__device__ __forceinline__ void KdaChunkResults<Config>::finish_beta(int value_head, int member,
                                                                     int pass) const {
  const bool last = pass == kPasses - 1;
  const int at = thread, token = tile.first + at;
  if (p.dbeta == nullptr || at >= kKdaChunk || token >= tile.count) return;
  if (!last && kept(member)) return;
  Beta* to = row_of<Beta>(p.dbeta, p.dbeta_batch_stride, p.dbeta_token_stride, token) +
             value_head * p.dbeta_head_stride;
  const int slot = heads_slot(member);
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

// dq and dk of the pass: stored, or kept for the norm.
template <class Config>
__device__ __forceinline__ void KdaChunkResults<Config>::finish_pass(int pass,
                                                                     Gradients& gradients) const {
  if constexpr (Smem::kStashed) {
    if (pass == kPasses - 1) __syncthreads();  // all have left the tiles, which take the last ones
  }
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    Accumulators& sums = which == 0 ? gradients.query : gradients.key;
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
__device__ __forceinline__ void KdaChunkResults<Config>::finish_stashed(int which, int h,
                                                                        float norm,
                                                                        float dot) const {
  const Element* from = input_row(which, token(h));
  Element* to = output_row(which, token(h));
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    const unsigned kept_at = stash(pass, which, 4 * h);
    float d[4];
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      float x[2];
      const int at = column(pass, c);
      load_pair(from + at, there(h) && at < in.key_dim, x);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float each = load_shared(kept_at + 4 * Config::kThreads * (c + i));
        d[c + i] = norm * (each - x[i] * norm * dot);
      }
    }
    store_row(to, d, kColumns * pass + 16 * part, in.key_dim, there(h));
  }
}
// The same of what lies where it belongs, each thread's own pieces.
template <class Config>
__device__ __forceinline__ void KdaChunkResults<Config>::finish_stored(int which, int h, float norm,
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
      float x[Pieces::kEach], d[Pieces::kEach];
      Words<8> raw, stored;
      load_global(from + at, raw);
      const volatile unsigned* words = reinterpret_cast<const volatile unsigned*>(to + at);
      stored.word[0] = words[0], stored.word[1] = words[1];
      unpack<Element>(raw, x), unpack<Element>(stored, d);
#pragma unroll
      for (int i = 0; i < Pieces::kEach; ++i) d[i] = norm * (d[i] - x[i] * norm * dot);
      store_global(to + at, pack<Element, 8>(d));
    }
  }
}

template <class Config>
__device__ __forceinline__ void KdaChunkResults<Config>::finish() const {
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
__device__ __forceinline__ void clear_rest(const KdaBackwardParams& p, const KdaChunkTile& tile,
                                           int head) {
  using Element = typename Config::Element;
  const KdaInputs& in = p.in;
  const int group = in.value_heads / in.heads, first_head = head * group;
  if (tile.first >= tile.count) {
    const long long from = static_cast<long long>(tile.slot) * in.value_heads + first_head;
    if constexpr (Config::kAlog) {
      clear_tokens<Config, float>(p.rate_sums, 1, 1, from, from + 1, 0, group, 1);
    }
    if constexpr (Config::kDtBias) {
      clear_tokens<Config, float>(p.bias_sums, in.key_dim, in.key_dim, from, from + 1, 0, group,
                                  in.key_dim);
    }
  }
  if (!Config::kPacked || tile.sequence + 1 < in.sequences) return;
  const int first = tile.start + maximum(tile.first, tile.count);
  const int behind = tile.start + tile.first + kKdaChunk;
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

}  // namespace lathe
