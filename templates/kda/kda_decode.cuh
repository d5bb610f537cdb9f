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
// tokens lie in shared memory. The first state is on its way while the convolution works.
//
// With records the keys and decays of the tokens are written behind the last value head, whose
// replay reads what they replace. Blocks of a sequence share the count of its slot: each adds one
// to the upper half of its word and gets the count, and the last one, whom nobody follows, writes
// the new count in the word's place. So a call needs neither a second launch nor memory of its own.
#pragma once
#include "kda/decode_conv.cuh"
#include "kda/kda_recurrent.cuh"

namespace lathe {

// A token in shared memory: q, k and exp(g), then v and o of a value head, beta and k . q.
template <class Config>
struct KdaDecodeShape : KdaRecurrentShape<Config> {
  using Base = KdaRecurrentShape<Config>;
  static constexpr int kValues = Base::kTiles * Base::kTileV;
  static constexpr int kO = Base::kV + kValues;
  static constexpr int kScalars = kO + kValues, kToken = kScalars + 4;
};

// [tokens][the count of records], and with records [decays of kReplayed of them][their keys][their
// updates]
template <class Config>
struct KdaDecodeSmem {
  using Shape = KdaDecodeShape<Config>;
  static constexpr int kReplayed = Shape::kWidth <= 128 ? 16 : 4;  // records at once
  static constexpr int kCount = Config::kTokens * Shape::kToken, kDecays = kCount + 4;
  static constexpr int kKeys = kDecays + kReplayed * Shape::kWidth;
  static constexpr int kUpdates = kKeys + kReplayed * Shape::kWidth;
  static constexpr int kFloats =
      Config::kStates == kKdaStatesRings ? kUpdates + kReplayed * Shape::kValues : kDecays;
  static constexpr int kBytes = 4 * kFloats;
};

struct KdaRowOfShared {
  float* to;
  __device__ __forceinline__ void store(int column, float value) const { to[column] = value; }
};

// Adds to a word that blocks share, and returns what it was.
__device__ __forceinline__ unsigned add_shared_word(int* word, unsigned value) {
  unsigned before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(word), "r"(value)
               : "memory");
  return before;
}

template <class Config>
struct KdaDecode {
  using Shape = KdaDecodeShape<Config>;
  using Smem = KdaDecodeSmem<Config>;
  using Element = typename Config::Element;
  using Gate = typename Config::GateElement;
  using StateElement = typename KdaStateElement<Config>::Type;
  static constexpr bool kRings = Config::kStates == kKdaStatesRings;

  const KdaDecodeParams& params;
  const KdaRecurrentParams& p;
  float* const shared;
  KdaTokenTile tile;
  KdaSlots slots;
  KdaRing ring = {};
  int tokens;

  __device__ __forceinline__ KdaDecode(const KdaDecodeParams& its_params, float* memory)
      : params(its_params), p(its_params.state), shared(memory) {
    tile.head = static_cast<int>(blockIdx.x % p.heads);
    tile.sequence = static_cast<int>(blockIdx.x / p.heads);
    tile.batch = tile.sequence, tile.start = 0;
    tile.warp = static_cast<int>(threadIdx.x / 32), tile.lane = static_cast<int>(threadIdx.x % 32);
    tile.value_head = tile.head * group(), tile.column = 0;
    tokens = Config::kTokens == 1 ? 1 : minimum(p.tokens, Config::kTokens);
    slots = kda_pool_slots<typename Config::Index>(p, tile.sequence);
  }

  __device__ __forceinline__ int group() const { return p.value_heads / p.heads; }
  __device__ __forceinline__ float* token(int t) const { return shared + t * Shape::kToken; }
  // The warp's first column of a row of V, and the lane's.
  __device__ __forceinline__ int first_column() const {
    return tile.column + tile.warp * 4 * Shape::kGroups;
  }
  __device__ __forceinline__ int lane_column() const {
    return first_column() + tile.lane / Shape::kKeyLanes * 4;
  }
  __device__ __forceinline__ Element* output(int t) const {
    return static_cast<Element*>(p.o) + tile.batch * p.o_batch_stride + t * p.o_token_stride +
           tile.value_head * p.o_head_stride;
  }

  __device__ __forceinline__ void clear_outputs();
  __device__ __forceinline__ void take_count();
  __device__ __forceinline__ void load_state(KdaStateTile<Config>* state) const;
  __device__ __forceinline__ void store_state(KdaStateTile<Config>* state) const;
  __device__ __forceinline__ void convolve_keys() const;
  __device__ __forceinline__ void convolve_values() const;
  __device__ __forceinline__ void normalise(int t) const;
  template <class Body>
  __device__ __forceinline__ void each_gate(int t, const Body& body) const;
  __device__ __forceinline__ void prepare(int t) const;
  __device__ __forceinline__ void stage_records(int first) const;
  __device__ __forceinline__ void apply_records(int first, KdaStateTile<Config>* state) const;
  __device__ __forceinline__ void replay(KdaStateTile<Config>* state) const;
  __device__ __forceinline__ void walk(KdaStateTile<Config>* state) const;
  __device__ __forceinline__ void finish(int t) const;
  __device__ __forceinline__ void record_keys() const;
  __device__ __forceinline__ void run();
};

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

// By all threads, with a barrier behind it before `ring` is read.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::take_count() {
  int* held = reinterpret_cast<int*>(shared + Smem::kCount);
  if (threadIdx.x == 0) {
    int* word = static_cast<int*>(p.ring_count) + slots.to;
    const unsigned before = add_shared_word(word, 1u << 16);
    const int count = minimum(static_cast<int>(before & 0xffffu), p.ring_length);
    *held = count;
    if (static_cast<int>(before >> 16) == p.heads - 1) {  // the word is now the last block's
      const int first = count + tokens > p.ring_length ? 0 : count;
      const int after = first + (p.append != 0 ? minimum(tokens, p.ring_length - first) : 0);
      add_shared_word(word, static_cast<unsigned>(after) - before - (1u << 16));
    }
  }
  __syncthreads();  // the count is there
  ring.count = *held;
  ring.first = ring.count + tokens > p.ring_length ? 0 : ring.count;
}

// The lane's elements of the slot's state, as they lie in memory.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::load_state(KdaStateTile<Config>* state) const {
  state->clear();
  if (slots.from < 0) return;
  state->load(static_cast<const StateElement*>(p.state_in) + slots.from * p.in_slot_stride +
                  tile.value_head * p.in_head_stride,
              tile.lane, lane_column(), p.in_row_stride);
}

template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::store_state(KdaStateTile<Config>* state) const {
  state->store(static_cast<StateElement*>(p.state_out) + slots.to * p.out_slot_stride +
                   tile.value_head * p.out_head_stride,
               tile.lane, lane_column(), p.out_row_stride);
}

// q and k of all tokens, with zeros from K on.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::convolve_keys() const {
  const KdaDecodeConv<Config> conv = {params, slots, tile.batch, tokens};
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
  const KdaDecodeConv<Config> conv = {params, slots, tile.batch, tokens};
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
  const Gate* row = static_cast<const Gate*>(p.g) + tile.batch * p.g_batch_stride +
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
        to_float(load_element(static_cast<const Beta*>(p.beta) + tile.batch * p.beta_batch_stride +
                              t * p.beta_token_stride + tile.value_head));
    at[Shape::kScalars] = kda_beta<Config::kSigmoid>(beta, p.beta_factor);
  }
}

// Records from `first` on, for all warps: each would compute the same decays.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::stage_records(int first) const {
  constexpr int kPieces = Shape::kWidth / 4;
  const int count = minimum(ring.count - first, Smem::kReplayed);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count * kPieces; i += Config::kThreads) {
    const int r = i / kPieces, d = i % kPieces * 4;
    const long long record = static_cast<long long>(slots.to) * p.ring_length + first + r;
    float decay[4] = {}, key[4] = {};
    if (d < Config::kKeyDim) {
      load_written_four<16>(static_cast<const float*>(p.ring_g) +
                                (record * p.value_heads + tile.value_head) * Config::kKeyDim + d,
                            decay);
      load_written_four<16>(static_cast<const Element*>(p.ring_k) +
                                (record * p.heads + tile.head) * Config::kKeyDim + d,
                            key);
#pragma unroll
      for (int j = 0; j < 4; ++j) decay[j] = kda_decay(decay[j]);
    }
    store_shared(shared + Smem::kDecays + r * Shape::kWidth + d, pack<f32, 16>(decay));
    store_shared(shared + Smem::kKeys + r * Shape::kWidth + d, pack<f32, 16>(key));
  }
  constexpr int kRowPieces = Shape::kValues / 4;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count * kRowPieces; i += Config::kThreads) {
    const int r = i / kRowPieces, column = i % kRowPieces * 4;
    const long long record = static_cast<long long>(slots.to) * p.ring_length + first + r;
    float update[4] = {};
    if (column < Config::kValueDim) {
      load_written_four<16>(static_cast<const typename Config::RingElement*>(p.ring_u) +
                                (record * p.value_heads + tile.value_head) * Config::kValueDim +
                                column,
                            update);
    }
    store_shared(shared + Smem::kUpdates + r * Shape::kValues + column, pack<f32, 16>(update));
  }
}

// The warp's columns go through the staged records, as kda_replay has them.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::apply_records(
    int first, KdaStateTile<Config>* state) const {
  const int count = minimum(ring.count - first, Smem::kReplayed);
  const float* at = shared + 4 * (tile.lane % Shape::kKeyLanes);
  const float* updates = shared + Smem::kUpdates + lane_column();
#pragma unroll 1
  for (int r = 0; r < count; ++r) {
    float u[4];
    kda_read(updates + r * Shape::kValues, u);
#pragma unroll
    for (int b = 0; b < Shape::kBlocks; ++b) {
      const float* piece = at + r * Shape::kWidth + 4 * Shape::kKeyLanes * b;
      float alpha[4], k[4];
      kda_read(piece + Smem::kDecays, alpha);
      kda_read(piece + Smem::kKeys, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          float& s = state->s[b][i][c];
          s = __fmaf_rn(k[i], u[c], __fmul_rn(s, alpha[i]));
        }
      }
    }
  }
}

// Brings the state up to date by the records of its slot. The first ones have been staged beside
// the tokens.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::replay(KdaStateTile<Config>* state) const {
#pragma unroll 1
  for (int first = 0; first < ring.count; first += Smem::kReplayed) {
    if (first > 0 || (tile.column > 0 && ring.count > Smem::kReplayed)) {
      __syncthreads();  // all have left the records that are staged anew
      stage_records(first);
      __syncthreads();  // the records are there
    }
    apply_records(first, state);
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
      const Out* row = static_cast<const Out*>(params.output_gate) +
                       tile.batch * params.output_gate_batch_stride +
                       t * params.output_gate_token_stride +
                       tile.value_head * params.output_gate_head_stride;
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

// The keys of the tokens' records: no value head reads those that they replace any more.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::record_keys() const {
  constexpr int kPieces = Config::kKeyDim / 4;
  const int kept = minimum(tokens, p.ring_length - ring.first);
  for (int i = static_cast<int>(threadIdx.x); i < kept * kPieces; i += Config::kThreads) {
    const int t = i / kPieces, d = i % kPieces * 4;
    float key[4];
    kda_read(token(t) + Shape::kK + d, key);
    const long long record = static_cast<long long>(slots.to) * p.ring_length + ring.first + t;
    Element* row =
        static_cast<Element*>(p.ring_k) + (record * p.heads + tile.head) * Config::kKeyDim;
    store_global(row + d, pack<Element, 4 * sizeof(Element)>(key));
  }
}

template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::run() {
  if (slots.padding) {
    clear_outputs();
    return;
  }
  KdaStateTile<Config> state;
  if constexpr (kRings) take_count();
  convolve_keys();
  const int first = tile.value_head;
#pragma unroll 1
  for (; tile.value_head < first + group(); ++tile.value_head) {
    convolve_values();
    if (tile.value_head == first) {
      __syncthreads();  // q and k of every token are there
      for (int t = tile.warp; t < tokens; t += Shape::kWarps) normalise(t);
    }
    for (int t = tile.warp; t < tokens; t += Shape::kWarps) prepare(t);
    if constexpr (kRings) stage_records(0);
    load_state(&state);
    __syncthreads();  // every token is ready
#pragma unroll 1
    for (tile.column = 0; tile.column < Config::kValueDim; tile.column += Shape::kTileV) {
      if (tile.column > 0) load_state(&state);
      if constexpr (kRings) replay(&state);
      walk(&state);
    }
    tile.column = 0;
    __syncthreads();  // whole rows of o are there, and no warp reads the tokens any more
    for (int t = tile.warp; t < tokens; t += Shape::kWarps) finish(t);
    if (tile.value_head + 1 < first + group()) __syncthreads();  // o has been read
  }
  if constexpr (kRings) record_keys();
}

template <class Config>
__device__ void kda_decode(const KdaDecodeParams& p) {
  extern __shared__ float4 shared[];
  KdaDecode<Config>(p, reinterpret_cast<float*>(shared)).run();
}

}  // namespace lathe
