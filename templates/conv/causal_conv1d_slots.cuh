// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d, the forward, with states in slots of a pool, or with its result in parts.
//
// The tokens are walked as in conv/causal_conv1d.cuh, but those of the first W - 1 of a sequence
// are not stored: they alone need the state before it. A warp of a state block has them, for a
// sequence and some channels: it reads the slot, gives their y, and only then writes the state
// behind the sequence. So nobody reads a slot that is written, though both are one slot, and blocks
// wait for nobody. Checkpoints that lie further than a state's columns behind the start are copies
// of tokens, and have warps of their own. Slots, offsets and checkpoints are on the device and
// checked by nobody: a slot that is not there is padding, a token that is not there no checkpoint.
#pragma once
#include "conv/causal_conv1d.cuh"
#include "kda/slots.cuh"
#include "params/conv_slots.h"

namespace lathe {

// [a forward's memory][one state per warp, as its elements are]: states only where there are any.
template <class Config>
struct ConvSlotsSmem {
  using Forward = ConvForwardSmem<Config>;
  static constexpr int kWarps = ConvShape<Config>::kWarps;
  static constexpr int kOfState =
      Config::kStates ? 32 * Config::kVectorBytes * Config::kColumns : 0;
  static constexpr int kBytes = Forward::kBytes + kWarps * kOfState;
};

// The result at this thread's channels, which lie in one part.
template <class Config>
__device__ __forceinline__ void conv_result_at(const ConvSlotsParams& p, const ConvTile& at,
                                               int token, ConvForwardWalk<Config>& walk) {
  using Element = typename Config::Element;
  void* data = p.call.y;
  long long batch = p.call.y_batch_stride, stride = p.call.y_token_stride;
  int first = 0;
#pragma unroll
  for (int i = 0; i < Config::kParts; ++i) {
    const int begin = i == 0 ? 0 : p.part_end[i - 1];
    if (at.channel < begin) continue;
    data = p.parts[i], first = begin;
    batch = p.part_batch_stride[i], stride = p.part_token_stride[i];
  }
  walk.y = static_cast<Element*>(data) + at.row * batch + token * stride + at.channel - first;
  walk.y_stride = stride;
}

// The next `count` rows of y are 0, and so they are with a residual. Does not move on.
template <class Config>
__device__ __forceinline__ void conv_zero_result(const ConvForwardWalk<Config>& walk, int count) {
  for (int i = 0; walk.active && i < count; ++i) {
    store_global(walk.y + i * walk.y_stride, Words<Config::kVectorBytes>{});
  }
}

// All tokens of this warp but those that a state block has.
template <class Config>
__device__ __forceinline__ void conv_slots_walk(const ConvSlotsParams& p, const ConvTile& at,
                                                const ConvTokens& tokens,
                                                ConvForwardWalk<Config>& walk) {
  const bool mine = walk.active;
  unsigned offset = 0;
  int stop = tokens.first;  // nothing changes up to here
  int end = tokens.first;   // the window is that of a sequence up to here
#pragma unroll 1
  for (int group = tokens.first; group < tokens.last; group += kConvGroup) {
    copy_async_wait<ConvRing<Config>::kGroups - 1>();
    const int rows = minimum(kConvGroup, tokens.last - group);
#pragma unroll 1
    for (int row = 0; row < rows;) {
      const int position = group + row;
      if (position == stop) {
        walk.active = mine;
        if (position == end) {
          const Sequence sequence = conv_sequence<Config>(p.call, at.row, position);
          if (conv_is_padding<Config>(p.call, sequence)) {
            copy_async_wait<0>();
            conv_zero_result(walk, tokens.last - position);
            return;
          }
          end = minimum(tokens.last, sequence.end);
          load_history<Config, true>(p.call, at, at.row, sequence, position, nullptr, walk.before,
                                     walk.history);
          if constexpr (Config::kStates) {
            const int others = minimum(sequence.start + Config::kWidth - 1, end);
            walk.active = walk.active && position >= others;
            stop = position < others ? others : end;
          } else {
            stop = end;
          }
          if constexpr (Config::kPool) {
            using Index = typename Config::Index;
            if (kda_slot<Index>(p.pool, p.pool.state_indices, sequence.index) < 0) {
              walk.active = mine;
              conv_zero_result(walk, end - position);
              walk.active = false;
              stop = end;
            }
          }
        } else {
          stop = end;
        }
      }
      if (row == 0 && group + kConvGroup <= stop) {
#pragma unroll
        for (int g = 0; g < kConvGroup; ++g) walk.token(offset, g);
        row = kConvGroup;
      } else {
        walk.token(offset, row++);
      }
    }
    walk.fetch(offset);
    offset = ring_next<Config>(offset);
  }
  copy_async_wait<0>();
}

// A sequence's states at the channels of a warp. `stage` has the slot that is read.
template <class Config>
struct ConvStates {
  using Element = typename Config::Element;
  static constexpr int kColumns = Config::kColumns, kBefore = Config::kWidth - 1;
  static constexpr int kVector = ConvShape<Config>::kVector;
  static constexpr int kAtOnce = kVector * kColumns < 6 ? kVector * kColumns : 6;  // of a lane

  const ConvSlotsParams& p;
  const ConvTile& at;
  Element* stage;  // [channels][kColumns]
  Sequence sequence;
  KdaSlots slots;

  __device__ __forceinline__ int tokens() const { return sequence.end - sequence.start; }

  __device__ __forceinline__ void find(int index) {
    sequence = conv_sequence_at<Config>(p.call, index);
    if constexpr (Config::kPool) {
      slots = kda_pool_slots<typename Config::Index>(p.pool, index);
    } else {
      slots = {p.pool.before != nullptr ? index : -1, p.pool.after != nullptr ? index : -1, false};
    }
  }

  // Calls body(i, channel, column) for some of this lane's elements, from its `first` one on.
  // Neighbouring lanes meet neighbouring memory.
  template <class Body>
  __device__ __forceinline__ void some(int first, const Body& body) const {
    const int count = minimum(ConvShape<Config>::kChannels, p.call.channels - at.block_channel);
    const bool columns = p.pool.column_stride == 1;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int flat = at.lane + 32 * (first + i);
      const int c = columns ? flat / kColumns : at.lane + 32 * ((first + i) % kVector);
      const int column = columns ? flat % kColumns : (first + i) / kVector;
      if (c < count && column < kColumns) body(i, c, column);
    }
  }
  // Moves the warp's elements of a state: value(channel, column) goes to store(channel, column,
  // value). A few values of each lane are on their way at once.
  template <class Value, class Store>
  __device__ __forceinline__ void move(const Value& value, const Store& store) const {
#pragma unroll 1
    for (int first = 0; first < kVector * kColumns; first += kAtOnce) {
      Element held[kAtOnce];
      some(first, [&](int i, int c, int column) { held[i] = value(c, column); });
      some(first, [&](int i, int c, int column) { store(c, column, held[i]); });
    }
  }
  __device__ __forceinline__ long long place(int slot, int c, int column) const {
    return slot * p.pool.slot_stride + (at.block_channel + c) * p.pool.channel_stride +
           column * p.pool.column_stride;
  }

  // Brings the slot that is read. Plain loads: the grid writes the pool.
  __device__ __forceinline__ void fetch() const {
    if (slots.from < 0) return;
    const Element* pool = static_cast<const Element*>(p.pool.before);
    move([&](int c, int column) { return pool[place(slots.from, c, column)]; },
         [&](int c, int column, Element value) { stage[c * kColumns + column] = value; });
  }
  // Writes the state after the first `count` tokens: elements move as they are.
  __device__ __forceinline__ void put(int slot, int count) const {
    const int row = Config::kPacked ? 0 : sequence.index;
    const Element* x = conv_x<Element>(p.call, row, sequence.start) + at.block_channel;
    Element* pool = static_cast<Element*>(p.pool.after);
    const auto input = [&](int c, int column) {
      const int since = count - kColumns + column;
      if (since >= 0) return load_element(x + since * p.call.x_token_stride + c);
      return slots.from >= 0 ? stage[c * kColumns + count + column] : Element{};
    };
    move(input, [&](int c, int column, Element value) { pool[place(slot, c, column)] = value; });
  }
  // The inputs before the first token.
  __device__ __forceinline__ void read(float (&history)[kBefore][kVector]) const {
#pragma unroll
    for (int j = 0; j < kBefore; ++j) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const int from = (at.lane * kVector + v) * kColumns + kColumns - kBefore + j;
        history[j][v] =
            slots.from >= 0 && at.channel < p.call.channels ? to_float(stage[from]) : 0.0f;
      }
    }
  }

  // Whether a state after `token` tokens, kept in `slot`, needs the slot that is read, or replaces
  // it.
  __device__ __forceinline__ bool needs_before(int token, int slot) const {
    return token < kColumns || slot == slots.from;
  }
  __device__ __forceinline__ bool is_checkpoint(int token, int slot) const {
    return token >= 0 && token <= tokens() && slot >= 0 && slot < p.pool.slots &&
           slot != p.pool.null_slot;
  }
  // Keeps those of the sequence's checkpoints that need the slot that is read.
  __device__ __forceinline__ void put_first_checkpoints() const {
    const KdaCheckpoints kept(p.pool, sequence.index);
    for (int i = 0; i < kept.count; ++i) {
      const int token = load_element(kept.tokens + i), slot = load_element(kept.slots + i);
      if (needs_before(token, slot) && is_checkpoint(token, slot)) put(slot, token);
    }
  }
  // Keeps checkpoint number `index` of all if it needs none.
  __device__ __forceinline__ void put_checkpoint(int index) {
    const auto offset = [&](int n) {
      return load_element(static_cast<const int*>(p.pool.cu_checkpoints) + n);
    };
    const int owner = last_before(p.call.sequences, [&](int n) { return offset(n) <= index; });
    if (offset(owner) > index || offset(owner + 1) <= index) return;
    find(owner);
    if (slots.padding) return;
    const int token = load_element(static_cast<const int*>(p.pool.checkpoint_tokens) + index);
    const int slot = load_element(static_cast<const int*>(p.pool.checkpoint_slots) + index);
    if (!needs_before(token, slot) && is_checkpoint(token, slot)) put(slot, token);
  }
};

// A block of states: a warp has a sequence, or a checkpoint.
template <class Config>
__device__ __forceinline__ void conv_states_block(const ConvSlotsParams& p, ConvTile at,
                                                  float* filter, char* ring,
                                                  typename Config::Element* stage) {
  const int index = at.tile * ConvShape<Config>::kWarps + at.warp;
  ConvStates<Config> states = {p, at, stage, {0, 0, 0}, {-1, -1, true}};
  if (index < p.call.sequences) states.find(index);
  const bool works = !states.slots.padding;
  at.row = Config::kPacked || !works ? 0 : index;
  const int first = states.sequence.start;
  const ConvTokens tokens = {first, first + minimum(Config::kWidth - 1, states.tokens())};
  ConvForwardWalk<Config> walk;
  conv_start<Config>(p.call, at, works ? tokens : ConvTokens{0, 0}, ring, walk);
  if (works) states.fetch();
  load_filter<Config>(p.call, at, filter, walk.weight, walk.bias);
  copy_async_wait<0>();
  __syncwarp();  // the slot is there
  if (works) {
    states.read(walk.history);
    conv_result_at(p, at, first, walk);
    unsigned offset = 0;
#pragma unroll 1
    for (int t = 0; t < tokens.last - tokens.first; ++t) {
      walk.token(offset, t % kConvGroup);
      if (t % kConvGroup == kConvGroup - 1) offset = ring_next<Config>(offset);
    }
    if constexpr (Config::kCheckpoints) states.put_first_checkpoints();
    const bool stays = states.slots.from == states.slots.to && p.pool.before == p.pool.after;
    if (states.slots.to >= 0 && !(stays && states.tokens() == 0)) {
      states.put(states.slots.to, states.tokens());
    }
  }
  if constexpr (Config::kCheckpoints) {
    const int checkpoint = index - p.call.sequences;
    const bool there = p.call.sequences > 0 && checkpoint >= 0 && checkpoint < p.pool.checkpoints;
    if (there) states.put_checkpoint(checkpoint);
  }
}

// Blocks of states come first: they wait for memory more often than those of tokens, and have less
// to do.
template <class Config>
__device__ __forceinline__ ConvTile conv_slots_tile(const ConvForwardParams& p) {
  const unsigned columns = (p.channels - 1u) / ConvShape<Config>::kChannels + 1u;
  const unsigned item = blockIdx.x / columns;
  ConvTile at = {};
  at.warp = threadIdx.x / 32, at.lane = threadIdx.x % 32;
  at.block_channel = static_cast<int>(blockIdx.x - item * columns) * ConvShape<Config>::kChannels;
  at.channel = at.block_channel + at.lane * ConvShape<Config>::kVector;
  at.state = item < static_cast<unsigned>(p.state_tiles);
  at.tile = static_cast<int>(item);
  if (at.state) return at;
  const unsigned tile = item - p.state_tiles;
  at.row = static_cast<int>(tile / p.tiles);
  at.tile = static_cast<int>(tile - at.row * p.tiles);
  return at;
}

template <class Config>
__device__ void causal_conv1d_slots(const ConvSlotsParams& p) {
  using Shape = ConvShape<Config>;
  using Smem = ConvSlotsSmem<Config>;
  extern __shared__ float4 shared[];
  char* const bytes = reinterpret_cast<char*>(shared);
  float* const filter = reinterpret_cast<float*>(shared);
  const ConvTile at = conv_slots_tile<Config>(p.call);
  char* const ring = bytes + Smem::Forward::kRings + at.warp * Smem::Forward::kOfWarp;
  if (at.state) {
    if constexpr (Config::kStates) {
      conv_states_block<Config>(p, at, filter, ring,
                                reinterpret_cast<typename Config::Element*>(
                                    bytes + Smem::Forward::kBytes + at.warp * Smem::kOfState));
    }
    return;
  }
  const ConvTokens tokens = conv_tokens<Config>(at, p.call.run, p.call.begin, p.call.end);
  ConvForwardWalk<Config> walk;
  conv_start<Config>(p.call, at, tokens, ring, walk);
  conv_result_at(p, at, tokens.first, walk);
  load_filter<Config>(p.call, at, filter, walk.weight, walk.bias);
  conv_slots_walk<Config>(p, at, tokens, walk);
}

}  // namespace lathe
