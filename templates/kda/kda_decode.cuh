// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_decode: one step of a KDA layer in one launch (Kimi Linear, arXiv 2510.26692).
//
//   q, k, v = act(conv(qkv))                     decode_conv.cuh, the slots of its pool rolled
//   o = recurrence of q, k, v                    kda_recurrent.cuh, with its state or its records
//   o = o rsqrt(mean(o^2) + eps) weight act(gate)
//
// One block takes a sequence and a query head with all value heads that share it: nobody else reads
// or writes the slots of its channels, and it has whole rows of o for the norm. Its value heads go
// one after another, and of each as many columns at once as its warps hold in registers; all of its
// tokens lie in shared memory. L2 is asked for a state before anything else, and its bytes are
// there once the tokens are made, for which the threads need their registers.
//
// With records the keys and decays of the tokens are written behind the last value head, whose
// replay reads what they replace. Blocks of a sequence share the count of its slot: each adds one
// to the upper half of its word and gets the count, and the last one, whom nobody follows, writes
// the new count in the word's place. So a call needs neither a second launch nor memory of its own.
#pragma once
#include "kda/decode_block.cuh"

namespace lathe {

// Rows of padding.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::clear_outputs() {
  constexpr int kPieces = Config::kValueDim / 4;
  const Words<4 * sizeof(Element)> zeros = {};
  for (int i = 0; i < group(); ++i, ++tile.value_head) {
    for (int at = static_cast<int>(threadIdx.x); at < tokens * kPieces; at += Config::kThreads) {
      store_aligned<kAlignmentOf<Config, Element>>(output(at / kPieces) + at % kPieces * 4, zeros);
    }
  }
}

// q and k of all tokens, with zeros from K on.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::convolve_keys() const {
  const KdaDecodeConv<Config> conv = {params, slots, batch(), tokens};
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < 2 * Shape::kWidth; i += Config::kThreads) {
    const int column = i % Shape::kWidth, section = i < Shape::kWidth ? Shape::kQ : Shape::kK;
    if (column >= Config::kKeyDim) {
      for (int t = 0; t < tokens; ++t) token(t)[section + column] = 0.0f;
      continue;
    }
    const int head = (i < Shape::kWidth ? 0 : p.heads) + tile.head;
    conv.run(head * Config::kKeyDim + column,
             [&](int t, float value) { token(t)[section + column] = value; });
  }
}

// v of a value head of all tokens, with zeros from V on.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::convolve_values() const {
  const KdaDecodeConv<Config> conv = {params, slots, batch(), tokens};
  const int first = 2 * p.heads * Config::kKeyDim + tile.value_head * Config::kValueDim;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Shape::kValues; i += Config::kThreads) {
    if (i >= Config::kValueDim) {
      for (int t = 0; t < tokens; ++t) token(t)[Shape::kV + i] = 0.0f;
      continue;
    }
    conv.run(first + i, [&](int t, float value) { token(t)[Shape::kV + i] = value; });
  }
}

// q and k of a token become what the recurrence reads, by a warp.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::normalise(int t) const {
  float* at = token(t);
  float query[Shape::kPasses][4], key[Shape::kPasses][4];
  float qq = 0, kk = 0, qk = 0;
#pragma unroll
  for (int pass = 0; pass < Shape::kPasses; ++pass) {
    const int d = 4 * tile.lane + 128 * pass;
#pragma unroll
    for (int i = 0; i < 4; ++i) query[pass][i] = key[pass][i] = 0.0f;
    if (d >= Shape::kWidth) continue;
    kda_read(at + Shape::kQ + d, query[pass]);
    kda_read(at + Shape::kK + d, key[pass]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      qq = __fmaf_rn(query[pass][i], query[pass][i], qq);
      kk = __fmaf_rn(key[pass][i], key[pass][i], kk);
      qk = __fmaf_rn(query[pass][i], key[pass][i], qk);
    }
  }
  float of_q = p.scale, of_k = 1;
  if constexpr (Config::kL2Norm) {
    of_q = __fmul_rn(of_q, kda_norm(kda_sum(qq)));
    of_k = kda_norm(kda_sum(kk));
  }
  const float product = __fmul_rn(__fmul_rn(kda_sum(qk), of_q), of_k);
  if (tile.lane == 0) at[Shape::kScalars + 1] = product;
#pragma unroll
  for (int pass = 0; pass < Shape::kPasses; ++pass) {
    const int d = 4 * tile.lane + 128 * pass;
    if (d >= Shape::kWidth) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      query[pass][i] = __fmul_rn(query[pass][i], of_q);
      key[pass][i] = __fmul_rn(key[pass][i], of_k);
    }
    store_shared(at + Shape::kQ + d, pack<f32, 16>(query[pass]));
    store_shared(at + Shape::kK + d, pack<f32, 16>(key[pass]));
  }
}

// Body(d, logarithms of the decays of channels d to d + 3) of a token and value head, by a warp.
template <class Config>
template <class Body>
__device__ __forceinline__ void KdaDecode<Config>::each_gate(int t, const Body& body) const {
  const Gate* row = static_cast<const Gate*>(p.g) + batch() * p.g_batch_stride +
                    t * p.g_token_stride + tile.value_head * p.g_head_stride;
  const KdaHeadGate<Config> gate(p, tile);
#pragma unroll
  for (int pass = 0; pass < Shape::kPasses; ++pass) {
    const int d = 4 * tile.lane + 128 * pass;
    if (d >= Shape::kWidth) continue;
    Words<4 * sizeof(Gate)> raw = {};
    if (d < Config::kKeyDim) load_aligned<kAlignmentOf<Config, Gate>>(row + d, raw);
    float decay[4];
    unpack<Gate>(raw, decay);
#pragma unroll
    for (int i = 0; i < 4; ++i) decay[i] = gate.log_decay(p, pass, i, decay[i]);
    body(d, decay);
  }
}

// The decays and beta of a token and value head, by a warp.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::prepare(int t) const {
  using Beta = typename Config::BetaElement;
  float* at = token(t);
  each_gate(t, [at](int d, float(&decay)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) decay[i] = kda_decay(decay[i]);
    store_shared(at + Shape::kAlpha + d, pack<f32, 16>(decay));
  });
  if (tile.lane == 0) {
    const float beta =
        to_float(load_element(static_cast<const Beta*>(p.beta) + batch() * p.beta_batch_stride +
                              t * p.beta_token_stride + tile.value_head));
    at[Shape::kScalars] = kda_beta<Config::kSigmoid>(beta, p.beta_factor);
  }
}

// The warp's columns go through the tokens; `state` is that of the slot and its records.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::walk(KdaStateTile<Config>* state) const {
  if (first_column() >= Config::kValueDim) return;
  KdaUpdates<Config> updates = {};
  if constexpr (kRings) {
    // Where the tokens leave no room, every thread folds the records into what it has read itself.
    if (ring.count + tokens > p.ring_length) store_state(state);
    updates.to = static_cast<typename Config::RingElement*>(p.ring_u) +
                 ((static_cast<long long>(slots.to) * p.ring_length + ring.first) * p.value_heads +
                  tile.value_head) *
                     Config::kValueDim +
                 first_column();
  }
#pragma unroll 1
  for (int t = 0; t < tokens; ++t) {
    float* at = token(t);
    kda_walk<Config, Shape>(at, tile.lane, first_column(), Config::kValueDim - first_column(),
                            state, KdaRowOfShared{at + Shape::kO + first_column()}, updates);
    if constexpr (kRings) {
      const bool next_fits = t + 1 < p.ring_length;
      updates.to = next_fits ? updates.to + p.value_heads * Config::kValueDim : nullptr;
    }
  }
  if constexpr (!kRings) {
    const bool stays = tokens == 0 && slots.from == slots.to;
    if (p.state_out != nullptr && !stays) store_state(state);
  }
}

// The norm and the gate of a row of o, by a warp, and the decays of the token's record.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::finish(int t) const {
  constexpr int kRowPasses = (Config::kValueDim + 127) / 128;
  const float* at = token(t) + Shape::kO;
  float o[kRowPasses][4], sum = 0;
#pragma unroll
  for (int pass = 0; pass < kRowPasses; ++pass) {
    const int column = 4 * tile.lane + 128 * pass;
    if (column >= Config::kValueDim) continue;
    kda_read(at + column, o[pass]);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum = __fmaf_rn(o[pass][i], o[pass][i], sum);
  }
  float factor = 1;
  if constexpr (Config::kNorm) {
    const float mean = __fmul_rn(kda_sum(sum), 1.0f / Config::kValueDim);
    factor = rsqrtf(__fadd_rn(mean, params.norm_eps));
  }
#pragma unroll
  for (int pass = 0; pass < kRowPasses; ++pass) {
    const int column = 4 * tile.lane + 128 * pass;
    if (column >= Config::kValueDim) continue;
    if constexpr (Config::kNorm) {
      using Weight = typename Config::NormElement;
      Words<4 * sizeof(Weight)> raw;
      float weight[4];
      load_aligned<kAlignmentOf<Config, Weight>>(
          static_cast<const Weight*>(params.norm_weight) + column, raw);
      unpack<Weight>(raw, weight);
#pragma unroll
      for (int i = 0; i < 4; ++i) o[pass][i] = __fmul_rn(__fmul_rn(o[pass][i], factor), weight[i]);
    }
    if constexpr (Config::kOutputGate) {
      using Out = typename Config::OutputGateElement;
      const Out* row =
          static_cast<const Out*>(params.output_gate) + batch() * params.output_gate_batch_stride +
          t * params.output_gate_token_stride + tile.value_head * params.output_gate_head_stride;
      Words<4 * sizeof(Out)> raw;
      float gate[4];
      load_aligned<kAlignmentOf<Config, Out>>(row + column, raw);
      unpack<Out>(raw, gate);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float open = Config::kOutputGateSilu ? silu(gate[i]) : sigmoid(gate[i]);
        o[pass][i] = __fmul_rn(o[pass][i], open);
      }
    }
    store_aligned<kAlignmentOf<Config, Element>>(output(t) + column,
                                                 pack<Element, 4 * sizeof(Element)>(o[pass]));
  }
  if constexpr (kRings) {
    if (ring.first + t >= p.ring_length) return;
    const long long record = static_cast<long long>(slots.to) * p.ring_length + ring.first + t;
    float* row = static_cast<float*>(p.ring_g) +
                 (record * p.value_heads + tile.value_head) * Config::kKeyDim;
    each_gate(t, [row](int d, float(&decay)[4]) {
      if (d < Config::kKeyDim) store_global(row + d, pack<f32, 16>(decay));
    });
  }
}

template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::run() {
  if (slots.padding) {
    clear_outputs();
    return;
  }
  KdaStateTile<Config> state;
  ask_for_state(tile.value_head);
  if constexpr (kRings) take_count();
  convolve_keys();
  bool keys_are_raw = true;
#pragma unroll 1
  for (;; ++tile.value_head) {
    if (!is_last()) ask_for_state(tile.value_head + 1);
    convolve_values();
    if (keys_are_raw) {
      __syncthreads();  // q and k of every token are there
      for (int t = tile.warp; t < tokens; t += Shape::kWarps) normalise(t);
      keys_are_raw = false;
    }
    for (int t = tile.warp; t < tokens; t += Shape::kWarps) prepare(t);
    if constexpr (kRings) stage_records(0);
    if constexpr (!kPrefetchesBytes) load_state(&state);
    __syncthreads();  // every token is ready
#pragma unroll 1
    for (tile.column = 0; tile.column < Config::kValueDim; tile.column += Shape::kTileV) {
      if (kPrefetchesBytes || tile.column > 0) load_state(&state);
      if constexpr (kRings) replay(&state);
      walk(&state);
    }
    tile.column = 0;
    __syncthreads();  // whole rows of o are there, and no warp reads the tokens any more
    for (int t = tile.warp; t < tokens; t += Shape::kWarps) finish(t);
    if (is_last()) break;
    __syncthreads();  // o has been read
  }
  if constexpr (kRings) record_keys();
}

template <class Config>
__device__ void kda_decode(const KdaDecodeParams& p) {
  extern __shared__ float4 shared[];
  KdaDecode<Config>(p, reinterpret_cast<float*>(shared)).run();
}

}  // namespace lathe
