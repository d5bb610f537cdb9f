// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward: Kimi Delta Attention over whole sequences in one launch.
//
//   S = Diag(alpha_t) S;  S += beta_t k_t (v_t - S^T k_t)^T;  o_t = scale S^T q_t
//
// and for a block of 16 tokens at once, with h the state before it and the names of kda/block.cuh,
//
//   vn = M Diag(beta) (v - ke h)      o = scale (qg h + P vn)      S = Diag(decay) h + kg^T vn
//
// (Yang et al., Parallelizing Linear Transformers with the Delta Rule, 2024; Kimi Linear, 2025.)
//
// q, k, g, beta and v are read once by each thread block, o is written once, and nothing else
// touches memory. With kSaved the rows vn and the state at the start of each chunk are kept for the
// backward; without kOutput nothing but they is made.
#pragma once
#include "kda/scan.cuh"

namespace lathe {

template <class Config>
struct KdaForward : KdaScan<Config> {
  using Scan = KdaScan<Config>;
  using Scan::in, Scan::lane, Scan::place;
  using typename Scan::Block;
  using typename Scan::Element;

  const KdaForwardParams& p;

  __device__ __forceinline__ KdaForward(const KdaForwardParams& params, unsigned block,
                                        unsigned shared)
      : Scan(params.in, block, shared), p(params) {}
  __device__ __forceinline__ KdaForward(const KdaForwardParams& params, const KdaPlace& where,
                                        unsigned shared)
      : Scan(params.in, where, shared), p(params) {}

  __device__ __forceinline__ void advance(KdaState<Config>& state, unsigned block, int own,
                                          int first) const;
  __device__ __forceinline__ void read_state(const KdaState<Config>& state, unsigned block,
                                             float (&x)[2][4], float (&o)[2][4]) const;
  __device__ __forceinline__ void multiply_square(float (&to)[2][4], const Fragment<Element>& rows,
                                                  unsigned square) const;
  __device__ __forceinline__ void multiply_square_by_token(float (&to)[2][4],
                                                           const Fragment<Element>& rows,
                                                           unsigned square) const;
  __device__ __forceinline__ void update_state(KdaState<Config>& state, unsigned block,
                                               const Fragment<Element>& values) const;
  __device__ __forceinline__ void store_chunk_state(KdaState<Config>& state, int first) const;
  __device__ __forceinline__ void load_initial_state(KdaState<Config>& state) const;
  __device__ __forceinline__ void walk(KdaState<Config>& state) const;
  __device__ __forceinline__ void store_final_state(KdaState<Config>& state) const;
  __device__ __forceinline__ void run() const;
};

// to += rows square^T over the 16 tokens of a block, `square` being lower triangular.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::multiply_square(float (&to)[2][4],
                                                                    const Fragment<Element>& rows,
                                                                    unsigned square) const {
  Fragment<Element> b;
  load_planes<Element, KdaSquare::kBytes>(
      b, square + KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane)));
  multiply_add_pair(to[0], to[1], rows, b);
}

// The same where rows are not finite: zero times them is not zero. Every token is summed on its
// own, without what comes after it, so that nothing of a later token reaches it.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::multiply_square_by_token(
    float (&to)[2][4], const Fragment<Element>& rows, unsigned square) const {
  const int t = lane % 4;
#pragma unroll 1
  for (int token = 0; token < 16; ++token) {
    Fragment<Element> cut;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int from = 2 * t + i / 2 * 8;  // tokens from, from + 1 in the halves of the word
      const unsigned kept = (from <= token ? 0xffffu : 0u) | (from + 1 <= token ? 0xffff0000u : 0u);
#pragma unroll
      for (int n = 0; n < Block::kPlanes; ++n) cut.word[n][i] = rows.word[n][i] & kept;
    }
    float sum[2][4] = {};
    multiply_square(sum, cut, square);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (8 * n + 2 * t + i % 2 == token) to[n][i] += sum[n][i];
      }
    }
  }
}

// sum += 0 times both halves of the word: NaN for what is not finite.
__device__ __forceinline__ void add_nothing(unsigned& sum, unsigned word, bf16) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(word), "r"(0));
}
__device__ __forceinline__ void add_nothing(unsigned& sum, unsigned word, f16) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(word), "r"(0));
}
// Whether the rows hold numbers alone; the first plane of a float32 shows it.
template <class Element>
__device__ __forceinline__ bool all_finite(const Fragment<Element>& rows) {
  using Plane = typename Choose<sizeof(Element) == 4, bf16, Element>::Type;
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) add_nothing(sum, rows.word[0][i], Plane{});
  return __all_sync(0xffffffffu, sum == 0) != 0;
}

// x = (ke h)^T and o = (qg h)^T.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::read_state(const KdaState<Config>& state,
                                                               unsigned block, float (&x)[2][4],
                                                               float (&o)[2][4]) const {
  constexpr int kPlane = Block::Rows::kBytes;
  const unsigned at =
      block + Block::Rows::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
#pragma unroll
  for (int j = 0; j < Scan::kSteps; ++j) {
    const Fragment<Element> h = state.operand(j);
    Fragment<Element> rows;
    load_planes<Element, kPlane>(rows, Block::Rows::at(at, 2 * j) + Block::kKe);
    multiply_add_pair(x[0], x[1], h, rows);
    if constexpr (Config::kOutput) {
      load_planes<Element, kPlane>(rows, Block::Rows::at(at, 2 * j) + Block::kQg);
      multiply_add_pair(o[0], o[1], h, rows);
    }
  }
}

// One block of tokens, the `own`th of its round.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::advance(KdaState<Config>& state, unsigned block,
                                                            int own, int first) const {
  const int t = lane % 4;
  float x[2][4] = {}, o[2][4] = {};
  read_state(state, block, x, o);
  float norm[2][2];
  const KdaValues<Element> v = this->load_values(own);
#pragma unroll
  for (int n = 0; n < 2; ++n) {  // x = Diag(beta) (v - ke h), q's norm and scale into o
    float beta[2], scale[2];
    const int tokens = 4 * (8 * n + 2 * t);
    load_shared(block + Block::kBeta + tokens, beta[0], beta[1]);
    load_shared(block + Block::kNormK + tokens, norm[n][0], norm[n][1]);
    load_shared(block + Block::kScaleQ + tokens, scale[0], scale[1]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float own_v[2];
      v.pair(n, h, own_v[0], own_v[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float read = Block::kUnscaling * norm[n][i];
        x[n][2 * h + i] = beta[i] * __fmaf_rn(-read, x[n][2 * h + i], own_v[i]);
        o[n][2 * h + i] *= Block::kUnscaling * scale[i];
      }
    }
  }
  float vn[2][4] = {};
  const Fragment<Element> given = fragment_of<Element>(x[0], x[1]);
  multiply_square(vn, given, block + Block::kInverse);
  Fragment<Element> rows = fragment_of<Element>(vn[0], vn[1]);
  if (all_finite(rows)) {
    if constexpr (Config::kOutput) multiply_square(o, rows, block + Block::kScores);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) vn[i / 4][i % 4] = 0.0f;
    multiply_square_by_token(vn, given, block + Block::kInverse);
    rows = fragment_of<Element>(vn[0], vn[1]);
    if constexpr (Config::kOutput) multiply_square_by_token(o, rows, block + Block::kScores);
  }
  if constexpr (Config::kOutput) {
    Element* to = static_cast<Element*>(p.o) + place.row * p.o_batch_stride +
                  place.start * p.o_token_stride + place.head * p.o_head_stride;
    this->store_values(o, to, p.o_token_stride, first);
  }
  if constexpr (Config::kSaved) {
    const long long stride = static_cast<long long>(in.value_heads) * in.value_dim;
    Element* to = static_cast<Element*>(p.saved_values) +
                  (place.row * in.tokens + place.start) * stride + place.head * in.value_dim;
    this->store_values(vn, to, stride, first);
  }
  if constexpr (Config::kL2Norm) {
#pragma unroll
    for (int i = 0; i < 8; ++i) vn[i / 4][i % 4] *= norm[i / 4][i % 2];
    rows = fragment_of<Element>(vn[0], vn[1]);
  }
  update_state(state, block, rows);
}

// S = Diag(decay) h + kg^T vn.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::update_state(
    KdaState<Config>& state, unsigned block, const Fragment<Element>& values) const {
  const int t = lane % 4;
  const unsigned at =
      block + Block::Rows::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
#pragma unroll
  for (int j = 0; j < Scan::kSteps; ++j) {
    Fragment<Element> kg;
    load_planes_transposed<Element, Block::Rows::kBytes>(kg,
                                                         Block::Rows::at(at, 2 * j) + Block::kKg);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float decay[2];
      load_shared(block + Block::kDecay + 4 * (16 * j + 8 * n + 2 * t), decay[0], decay[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) state.s[2 * j + n][i] *= decay[i % 2];
    }
    multiply_add_pair(state.s[2 * j], state.s[2 * j + 1], values, kg);
  }
}

// The state before token `first`, if a chunk begins there. Chunks of packed sequences are counted
// through: those of the sequences before are added up.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::store_chunk_state(KdaState<Config>& state,
                                                                      int first) const {
  if constexpr (Config::kSaved) {
    if (first % kKdaChunk == 0) {
      this->store_rounded(state, static_cast<Element*>(p.saved_states) + this->slot(first));
    }
  }
  if constexpr (Config::kChunkStates) {
    if (first % p.chunk_size != 0) return;
    long long chunk = first / p.chunk_size;
    if constexpr (Config::kPacked) {
      using Offset = typename Config::Offset;
      int before = 0;
      for (int n = lane; n < place.sequence; n += 32) {
        const int from = offset_at<Offset>(in.cu_seqlens, n, in.tokens);
        const int until = offset_at<Offset>(in.cu_seqlens, n + 1, in.tokens);
        before += ceil_div(maximum(until - from, 0), p.chunk_size);
      }
#pragma unroll
      for (int other = 1; other < 32; other *= 2) {
        before += __shfl_xor_sync(0xffffffffu, before, other);
      }
      chunk += before;
    } else {
      chunk += place.row * ceil_div(in.tokens, p.chunk_size);
    }
    if (chunk >= p.chunks) return;
    const long long at = (chunk * in.value_heads + place.head) * this->state_size();
    state.store(static_cast<float*>(p.chunk_states) + at, this->own_value(), in.key_dim,
                in.value_dim);
  }
}

template <class Config>
__device__ __forceinline__ void KdaForward<Config>::load_initial_state(
    KdaState<Config>& state) const {
  if constexpr (Config::kInitialState) {
    state.load(static_cast<const float*>(p.initial_state) + this->own_state(), this->own_value(),
               in.key_dim, in.value_dim);
  } else {
    state.clear();
  }
}

// The state goes through the tokens of the segment.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::walk(KdaState<Config>& state) const {
  const Element* v = static_cast<const Element*>(in.v) + place.row * in.v_batch_stride +
                     place.start * in.v_token_stride + place.head * in.v_head_stride;
  const KdaNumbers head = this->numbers();
  KdaIncoming<Config> incoming;
  this->expect(incoming, place.first);
#pragma unroll 1
  for (int round = place.first; round < place.count; round += Scan::kRows) {
    this->copy_values(v, in.v_token_stride, round);
    this->prepare(incoming, head, round, round + Scan::kRows);
    copy_async_wait<0>();
    __syncthreads();  // every warp's block and every thread's rows of v are there
#pragma unroll 1
    for (int block = 0; block < Scan::kWarps && round + 16 * block < place.count; ++block) {
      if constexpr (Config::kChunkStates || Config::kSaved) {
        store_chunk_state(state, round + 16 * block);
      }
      advance(state, this->blocks + block * Block::kBytes, block, round + 16 * block);
    }
    __syncthreads();  // all have left the blocks that are made anew
  }
}

template <class Config>
__device__ __forceinline__ void KdaForward<Config>::store_final_state(
    KdaState<Config>& state) const {
  if constexpr (Config::kFinalState) {
    if (!place.last) return;
    state.store(static_cast<float*>(p.final_state) + this->own_state(), this->own_value(),
                in.key_dim, in.value_dim);
  }
}

template <class Config>
__device__ __forceinline__ void KdaForward<Config>::run() const {
  if (place.idle()) return;
  KdaState<Config> state;
  if (place.segment == 0) {
    load_initial_state(state);
  } else {  // from behind the segment before
    const long long at = this->summary(place.segment - 1, in.value_dim + in.key_dim);
    state.template load<true>(static_cast<const float*>(p.summaries) + at, this->own_value(),
                              in.key_dim, in.value_dim);
  }
  walk(state);
  store_final_state(state);
}

template <class Config>
__device__ void kda_forward(const KdaForwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  KdaForward<Config>(p, blockIdx.x, shared_address(shared)).run();
}

}  // namespace lathe
