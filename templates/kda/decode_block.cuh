// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A block of kda_decode: what it holds, its tokens in shared memory, and its slot's state and
// records.
#pragma once
#include "common/fresh.cuh"
#include "common/tma.cuh"
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
    tile.start = 0;
    tile.warp = static_cast<int>(threadIdx.x / 32), tile.lane = static_cast<int>(threadIdx.x % 32);
    tile.value_head = tile.head * group(), tile.column = 0;
    tokens = Config::kTokens == 1 ? 1 : minimum(p.tokens, Config::kTokens);
    slots = kda_pool_slots<typename Config::Index>(p, tile.sequence);
  }

  // The sequence, a row of the batch, as new at every call: it takes no register in between.
  __device__ __forceinline__ long long batch() const { return fresh_block() / p.heads; }
  // Whether no other value head comes behind this one.
  __device__ __forceinline__ bool is_last() const {
    const unsigned next = fresh_block() % p.heads + 1;
    return tile.value_head + 1 == static_cast<int>(next * p.value_heads / p.heads);
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
    return static_cast<Element*>(p.o) + batch() * p.o_batch_stride + t * p.o_token_stride +
           tile.value_head * p.o_head_stride;
  }

  __device__ __forceinline__ void clear_outputs();
  __device__ __forceinline__ void take_count();
  __device__ __forceinline__ void ask_for_state(int value_head) const;
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

// Has L2 ask for the rows of a state that the block will load: its bytes come while the tokens are
// made, for which no thread has registers.
template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::ask_for_state(int value_head) const {
  constexpr int kRows = Config::kStateVFirst ? Config::kValueDim : Config::kKeyDim;
  constexpr int kRowBytes = (Config::kStateVFirst ? Config::kKeyDim : Config::kValueDim) *
                            static_cast<int>(sizeof(StateElement));
  if constexpr (kAlignmentOf<Config, StateElement> % 16 == 0 && kRowBytes % 16 == 0) {
    if (slots.from < 0) return;
    const StateElement* first = static_cast<const StateElement*>(p.state_in) +
                                slots.from * p.in_slot_stride + value_head * p.in_head_stride;
    for (int i = static_cast<int>(threadIdx.x); i < kRows; i += Config::kThreads) {
      prefetch_bytes(first + i * p.in_row_stride, kRowBytes);
    }
  }
}

template <class Config>
__device__ __forceinline__ void KdaDecode<Config>::store_state(KdaStateTile<Config>* state) const {
  // Anew, so that addresses take no register while the warps walk.
  const int thread = fresh_thread(), lane = thread % 32;
  const int column = tile.column + thread / 32 * 4 * Shape::kGroups;
  state->store(static_cast<StateElement*>(p.state_out) + slots.to * p.out_slot_stride +
                   tile.value_head * p.out_head_stride,
               lane, column + lane / Shape::kKeyLanes * 4, p.out_row_stride);
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

}  // namespace lathe
