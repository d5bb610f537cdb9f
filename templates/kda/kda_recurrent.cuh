// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_recurrent: Kimi Delta Attention token by token (Kimi Linear, arXiv 2510.26692), for decoding
// and as the definition that the chunked form is held against.
//
//   Sd  = Diag(exp(g)) S
//   u   = beta (v - Sd^T k)
//   S   = Sd + k u^T
//   o   = scale S^T q = Sd^T (scale q) + (k . scale q) u
//
// The second form of o needs Sd alone, so both sums over K are done at once and a token costs one
// chain of shuffles. One block takes one sequence, one value head and kTileV columns of the state,
// which stays in registers from the first token to the last; its warps take turns in fetching and
// transforming tokens, one ahead of those being walked.
#pragma once
#include "common/varlen.cuh"
#include "kda/recurrent_token.cuh"

namespace lathe {

// The lane's elements of the state: block b, row i of it, column c.
template <class Config>
struct KdaStateTile {
  using Shape = KdaRecurrentShape<Config>;
  float s[Shape::kBlocks][4][4];

  // Calls with the offset of each 16 bytes and with references to the four elements there.
  template <class Access>
  __device__ __forceinline__ void each(int lane, int column, long long row_stride, Access access) {
    const int key = 4 * (lane % Shape::kKeyLanes);
    if (column >= Config::kValueDim) return;
#pragma unroll
    for (int b = 0; b < Shape::kBlocks; ++b) {
      const int row = key + 4 * Shape::kKeyLanes * b;
      if (row >= Config::kKeyDim) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (Config::kStateVFirst) {
          access((column + i) * row_stride + row, s[b][0][i], s[b][1][i], s[b][2][i], s[b][3][i]);
        } else {
          access((row + i) * row_stride + column, s[b][i][0], s[b][i][1], s[b][i][2], s[b][i][3]);
        }
      }
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int b = 0; b < Shape::kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < 16; ++i) s[b][i / 4][i % 4] = 0.0f;
    }
  }
  // A plain load: the grid writes the pool that it reads.
  template <class Element>
  __device__ __forceinline__ void load(const Element* from, int lane, int column,
                                       long long stride) {
    each(lane, column, stride, [from](long long at, float& a, float& b, float& c, float& d) {
      float four[4];
      load_written_four<kAlignmentOf<Config, Element>>(from + at, four);
      a = four[0], b = four[1], c = four[2], d = four[3];
    });
  }
  template <class Element>
  __device__ __forceinline__ void store(Element* to, int lane, int column, long long stride) {
    each(lane, column, stride, [to](long long at, float& a, float& b, float& c, float& d) {
      store_aligned<kAlignmentOf<Config, Element>>(
          to + at, pack<Element, 4 * sizeof(Element)>({a, b, c, d}));
    });
  }
};

__device__ __forceinline__ void kda_read(const float* from, float (&value)[4]) {
  Words<16> raw;
  load_shared(from, raw);
  unpack<f32>(raw, value);
}

// The type of states in memory: a Config whose pool has another one than float32 says which.
template <class Config, bool kPool = kPooled<Config>>
struct KdaStateElement {
  using Type = float;
};
template <class Config>
struct KdaStateElement<Config, true> {
  using Type = typename Config::PoolElement;
};

// Sums over the key lanes of a group, eight at a time: each round halves what a lane still adds
// up. Lane bit 0 says which four it ends with, bits 1 and 2 which of them: 2 bit1 + bit2.
template <class Config>
__device__ __forceinline__ float kda_reduce(const float (&partial)[8], int lane) {
  constexpr unsigned kAll = 0xffffffffu;
  float four[4], two[2];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float mine = lane & 1 ? partial[4 + c] : partial[c];
    const float other = lane & 1 ? partial[c] : partial[4 + c];
    four[c] = __fadd_rn(mine, __shfl_xor_sync(kAll, other, 1));
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float mine = lane & 2 ? four[2 + c] : four[c];
    const float other = lane & 2 ? four[c] : four[2 + c];
    two[c] = __fadd_rn(mine, __shfl_xor_sync(kAll, other, 2));
  }
  const float mine = lane & 4 ? two[1] : two[0];
  const float other = lane & 4 ? two[0] : two[1];
  float sum = __fadd_rn(mine, __shfl_xor_sync(kAll, other, 4));
  if constexpr (Config::kKeyLanes == 16) sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, 8));
  return sum;
}

// Where a walk with rings leaves a token's updates, from the warp's first column on; null: nowhere.
template <class Config, bool kRings = Config::kStates == kKdaStatesRings>
struct KdaUpdates {
  __device__ __forceinline__ void store(int, float) const {}
};
template <class Config>
struct KdaUpdates<Config, true> {
  typename Config::RingElement* to;

  __device__ __forceinline__ void store(int column, float update) const {
    if (to != nullptr) store_element(to + column, from_float<typename Config::RingElement>(update));
  }
};

// Where a walk leaves a token's row of o, from the warp's first column on.
template <class Config>
struct KdaOutputs {
  typename Config::Element* to;

  __device__ __forceinline__ void store(int column, float value) const {
    store_element(to + column, from_float<typename Config::Element>(value));
  }
};

// One token: the state moves on, and the lanes that hold a sum of q store their element of o.
template <class Config, class Shape, class Outputs>
__device__ __forceinline__ void kda_walk(const float* token, int lane, int first, int columns_left,
                                         KdaStateTile<Config>* state, Outputs o,
                                         KdaUpdates<Config> updates) {
  const int key = 4 * (lane % Shape::kKeyLanes), group = lane / Shape::kKeyLanes;
  float partial[8] = {};
#pragma unroll
  for (int b = 0; b < Shape::kBlocks; ++b) {
    const float* at = token + key + 4 * Shape::kKeyLanes * b;
    float alpha[4], k[4], q[4];
    kda_read(at + Shape::kAlpha, alpha);
    kda_read(at + Shape::kK, k);
    kda_read(at + Shape::kQ, q);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float& s = state->s[b][i][c];
        s = __fmul_rn(s, alpha[i]);
        partial[c] = __fmaf_rn(s, k[i], partial[c]);
        partial[4 + c] = __fmaf_rn(s, q[i], partial[4 + c]);
      }
    }
  }
  const float sum = kda_reduce<Config>(partial, lane);
  const int lane_column = 4 * group + (lane & 2) + (lane >> 2 & 1);  // the column of `sum`
  const float beta = token[Shape::kScalars], product = token[Shape::kScalars + 1];
  // Right where `sum` is Sd^T k; the others ask their neighbour.
  const float prediction_error = __fsub_rn(token[Shape::kV + first + lane_column], sum);
  const float update = __fmul_rn(beta, prediction_error);
  const float paired = __shfl_xor_sync(0xffffffffu, update, 1);
  float u[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    u[c] = __shfl_sync(0xffffffffu, update, group * Shape::kKeyLanes + (c & 2) + ((c & 1) << 2));
  }
#pragma unroll
  for (int b = 0; b < Shape::kBlocks; ++b) {
    float k[4];
    unpack<f32>(
        *reinterpret_cast<const Words<16>*>(token + Shape::kK + key + 4 * Shape::kKeyLanes * b), k);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        state->s[b][i][c] = __fmaf_rn(k[i], u[c], state->s[b][i][c]);
      }
    }
  }
  const bool stores = (Config::kKeyLanes == 8 || !(lane & 8)) && lane_column < columns_left;
  if (stores && !(lane & 1)) updates.store(lane_column, update);
  if (stores && (lane & 1)) o.store(lane_column, __fmaf_rn(product, paired, sum));
}

// Brings the lane's elements of a state up to date by the records of its slot.
template <class Config>
__device__ __forceinline__ void kda_replay(const KdaRecurrentParams& p, const KdaTokenTile& tile,
                                           int slot, int count, int column,
                                           KdaStateTile<Config>* state) {
  using Shape = KdaRecurrentShape<Config>;
  using Element = typename Config::Element;
  using RingElement = typename Config::RingElement;
  for (int r = 0; r < count; ++r) {
    const long long record = static_cast<long long>(slot) * p.ring_length + r;
    const Element* ring_k =
        static_cast<const Element*>(p.ring_k) + (record * p.heads + tile.head) * Config::kKeyDim;
    const float* ring_g = static_cast<const float*>(p.ring_g) +
                          (record * p.value_heads + tile.value_head) * Config::kKeyDim;
    const RingElement* ring_u = static_cast<const RingElement*>(p.ring_u) +
                                (record * p.value_heads + tile.value_head) * Config::kValueDim;
    // Plain loads: the grid writes records of its own tokens beside them.
    float u[4] = {};
    if (column < Config::kValueDim) load_written_four<16>(ring_u + column, u);
#pragma unroll
    for (int b = 0; b < Shape::kBlocks; ++b) {
      const int row = 4 * (tile.lane % Shape::kKeyLanes) + 4 * Shape::kKeyLanes * b;
      if (row >= Config::kKeyDim) continue;
      float k[4], g[4];
      load_written_four<16>(ring_k + row, k);
      load_written_four<16>(ring_g + row, g);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float alpha = kda_decay(g[i]);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          float& s = state->s[b][i][c];
          s = __fmaf_rn(k[i], u[c], __fmul_rn(s, alpha));
        }
      }
    }
  }
}

// The block's columns of rows [from, to), which belong to no live sequence, become 0.
template <class Config>
__device__ void kda_zero_rows(typename Config::Element* o, long long token_stride, int from, int to,
                              const KdaTokenTile& tile) {
  using Shape = KdaRecurrentShape<Config>;
  const int column = 4 * tile.lane;
  if (column >= Shape::kTileV || tile.column + column >= Config::kValueDim) return;
  const Words<4 * sizeof(typename Config::Element)> zeros = {};
  for (int row = from + tile.warp; row < to; row += Shape::kWarps) {
    store_aligned<kAlignmentOf<Config, typename Config::Element>>(o + row * token_stride + column,
                                                                  zeros);
  }
}

// Returns the slot of a sequence whose row of columns says where drafts have left the state.
template <class Config>
__device__ __forceinline__ int kda_accepted_slot(const KdaRecurrentParams& p, int sequence) {
  using Index = typename Config::Index;
  Index accepted = 1;
  if (p.num_accepted_tokens != nullptr) {
    accepted = load_element(static_cast<const Index*>(p.num_accepted_tokens) + sequence);
  }
  if (accepted < 1 || accepted > p.columns) return -1;
  return kda_slot<Index>(p, p.state_indices,
                         static_cast<long long>(sequence) * p.columns + accepted - 1);
}

template <class Config>
__device__ __forceinline__ KdaSlots kda_slots_of(const KdaRecurrentParams& p, int sequence) {
  using Index = typename Config::Index;
  if constexpr (Config::kStates == kKdaStatesPlain) return {sequence, sequence, false};
  if constexpr (Config::kStates != kKdaStatesColumns) return kda_pool_slots<Index>(p, sequence);
  KdaSlots out = {
      -1, kda_slot<Index>(p, p.state_indices, static_cast<long long>(sequence) * p.columns), false};
  out.padding = out.to < 0;
  if (out.padding) return out;
  if (p.has_initial_state != nullptr &&
      load_element(static_cast<const int*>(p.has_initial_state) + sequence) == 0) {
    return out;
  }
  if (p.source_indices != nullptr) {
    out.from = kda_slot<Index>(p, p.source_indices, sequence);
  } else {
    out.from = kda_accepted_slot<Config>(p, sequence);
    out.padding = out.from < 0;
  }
  return out;
}

template <class Config>
__device__ __forceinline__ KdaTokenTile kda_token_tile(const KdaRecurrentParams& p) {
  using Shape = KdaRecurrentShape<Config>;
  KdaTokenTile tile;
  int block = blockIdx.x;
  tile.column = block % Shape::kTiles * Shape::kTileV;
  block /= Shape::kTiles;
  tile.value_head = block % p.value_heads;
  tile.head = tile.value_head / (p.value_heads / p.heads);
  tile.sequence = block / p.value_heads;
  tile.warp = threadIdx.x / 32;
  tile.lane = threadIdx.x % 32;
  tile.batch = Config::kPacked ? 0 : tile.sequence;
  tile.start = 0;
  return tile;
}

// The tokens of the block's sequence, from tile->start on. Packed rows past the last offset are
// nobody's; the last sequence's blocks clear them.
template <class Config>
__device__ __forceinline__ int kda_tokens(const KdaRecurrentParams& p, KdaTokenTile* tile) {
  if constexpr (!Config::kPacked) return p.tokens;
  using Offset = typename Config::Offset;
  using Element = typename Config::Element;
  const bool exists = tile->sequence < p.sequences;
  int end = 0;
  if (exists) {
    tile->start = offset_at<Offset>(p.cu_seqlens, tile->sequence, p.tokens);
    end = offset_at<Offset>(p.cu_seqlens, tile->sequence + 1, p.tokens);
  }
  if (tile->sequence + 1 >= p.sequences) {
    Element* o = static_cast<Element*>(p.o) + tile->value_head * p.o_head_stride + tile->column;
    kda_zero_rows<Config>(o, p.o_token_stride, end, p.tokens, *tile);
  }
  return maximum(end - tile->start, 0);
}

template <class Config>
__device__ void kda_recurrent(const KdaRecurrentParams& p) {
  using Shape = KdaRecurrentShape<Config>;
  using Element = typename Config::Element;
  extern __shared__ float4 shared[];
  KdaTokenTile tile = kda_token_tile<Config>(p);
  const int tokens = kda_tokens<Config>(p, &tile);
  if (Config::kPacked && tile.sequence >= p.sequences) return;  // there is none at all
  Element* o = static_cast<Element*>(p.o) + tile.batch * p.o_batch_stride +
               tile.start * p.o_token_stride + tile.value_head * p.o_head_stride + tile.column;

  // The first tokens are on their way before the state's address is known.
  KdaRawToken<Config> raw;
  if (tile.warp < tokens) raw.load(p, tile, tile.warp);
  const KdaSlots slots = kda_slots_of<Config>(p, tile.sequence);
  if (slots.padding) {
    kda_zero_rows<Config>(o, p.o_token_stride, 0, tokens, tile);
    return;
  }
  // Without tokens a state goes to its slot as it is; slots of drafts and of records are left
  // alone.
  constexpr bool kRings = Config::kStates == kKdaStatesRings;
  if ((kRings || Config::kStates == kKdaStatesColumns) && tokens == 0) return;
  if (Config::kStates == kKdaStatesPool && tokens == 0 && slots.from == slots.to) return;

  const int first = tile.warp * 4 * Shape::kGroups;  // of the warp's columns within the tile
  const int column = tile.column + first + tile.lane / Shape::kKeyLanes * 4;
  const bool has_columns = tile.column + first < Config::kValueDim;
  using StateElement = typename KdaStateElement<Config>::Type;
  StateElement* state_out =
      static_cast<StateElement*>(p.state_out) + tile.value_head * p.out_head_stride;
  KdaStateTile<Config> state;
  state.clear();
  if (p.state_in != nullptr && slots.from >= 0) {
    state.load(static_cast<const StateElement*>(p.state_in) + slots.from * p.in_slot_stride +
                   tile.value_head * p.in_head_stride,
               tile.lane, column, p.in_row_stride);
  }

  KdaUpdates<Config> updates = {};
  if constexpr (kRings) {
    const KdaRing ring = kda_ring(p, slots.to, tokens);
    kda_replay<Config>(p, tile, slots.to, ring.count, column, &state);
    // Where the tokens leave no room, every thread folds the records into what it has read itself.
    if (ring.count + tokens > p.ring_length) {
      state.store(state_out + slots.to * p.out_slot_stride, tile.lane, column, p.out_row_stride);
    }
    updates.to = static_cast<typename Config::RingElement*>(p.ring_u) +
                 ((static_cast<long long>(slots.to) * p.ring_length + ring.first) * p.value_heads +
                  tile.value_head) *
                     Config::kValueDim +
                 tile.column + first;
  }

  const KdaHeadGate<Config> gate(p, tile);
  float* buffers = reinterpret_cast<float*>(shared);
  float* warp_token = buffers + tile.warp * Shape::kToken;
  constexpr int kBuffer = Shape::kWarps * Shape::kToken;
  if (tile.warp < tokens) raw.prepare(p, gate, tile.lane, warp_token);
  __syncthreads();  // the first tokens are there
  int buffer = 0;
  for (int base = 0; base < tokens; base += Shape::kWarps) {
    const int next = base + Shape::kWarps + tile.warp;
    if (next < tokens) raw.load(p, tile, next);
    const int count = minimum(Shape::kWarps, tokens - base);
    for (int t = 0; t < count && has_columns; ++t) {
      const float* token = buffers + buffer * kBuffer + t * Shape::kToken;
      kda_walk<Config, Shape>(token, tile.lane, first, Config::kValueDim - tile.column - first,
                              &state, KdaOutputs<Config>{o + (base + t) * p.o_token_stride + first},
                              updates);
      if constexpr (kRings) {
        const bool next_fits = base + t + 1 < p.ring_length;
        updates.to = next_fits ? updates.to + p.value_heads * Config::kValueDim : nullptr;
      }
      if constexpr (Config::kStates == kKdaStatesColumns) {
        const int to = __float_as_int(token[Shape::kScalars + 2]);
        if (to >= 0 && p.state_out != nullptr) {
          state.store(state_out + to * p.out_slot_stride, tile.lane, column, p.out_row_stride);
        }
      }
    }
    if (base + Shape::kWarps >= tokens) break;
    buffer ^= 1;
    if (next < tokens) raw.prepare(p, gate, tile.lane, warp_token + buffer * kBuffer);
    // The next tokens are there, and all have left the buffer that is filled after them.
    __syncthreads();
  }
  if constexpr (Config::kStates == kKdaStatesPlain || Config::kStates == kKdaStatesPool) {
    if (p.state_out != nullptr) {
      state.store(state_out + slots.to * p.out_slot_stride, tile.lane, column, p.out_row_stride);
    }
  }
}

}  // namespace lathe
