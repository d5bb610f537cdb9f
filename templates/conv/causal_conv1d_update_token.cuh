// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update over slots of a pool, for one token of each sequence and states of W or
// W - 1 columns: the formula of conv/causal_conv1d_update.cuh.
//
// A warp takes 32 * kVector channels of up to kRows sequences. Their slots are looked up together,
// then all their states and inputs are on their way at once, then the filter's taps: a warp waits
// for memory twice, whatever it has to do. States go through shared memory, so that neighbouring
// lanes meet neighbouring memory whether channels or columns lie side by side; of channels side by
// side a lane takes its own. Warps share nothing, so a few sequences lie over as many
// multiprocessors as many do.
#pragma once
#include "conv/causal_conv1d_update.cuh"
#include "params/conv_slots.h"

namespace lathe {

template <class Config>
struct ConvTokenSmem {
  static constexpr int kOfRow = 32 * Config::kVectorBytes * Config::kColumns;
  static constexpr int kOfWarp = Config::kRows * kOfRow;
  static constexpr int kBytes = Config::kThreads / 32 * kOfWarp;
};

// A lane's elements of a state, by words where they are whole words.
template <class Element, int kCount>
__device__ __forceinline__ void read_columns(const Element* from, Element (&held)[kCount]) {
  constexpr int kBytes = kCount * sizeof(Element);
  if constexpr (kBytes % 4 == 0) {
    unsigned word[kBytes / 4];
    read_slots(from, word);
#pragma unroll
    for (int i = 0; i < kCount; ++i) held[i] = get_slot<Element>(word, i);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) held[i] = from[i];
  }
}
template <class Element, int kCount>
__device__ __forceinline__ void write_columns(Element* to, const Element (&held)[kCount]) {
  constexpr int kBytes = kCount * sizeof(Element);
  if constexpr (kBytes % 4 == 0) {
    unsigned word[kBytes / 4];
#pragma unroll
    for (int i = 0; i < kCount; ++i) put_slot(word, i, held[i]);
    write_slots(to, word);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = held[i];
  }
}

// The states of a warp's channels: one for each of its sequences, -1 for a slot that is none.
template <class Config>
struct ConvTokenStates {
  using Element = typename Config::Element;
  static constexpr int kColumns = Config::kColumns, kRows = Config::kRows;
  static constexpr int kVector = Config::kVectorBytes / sizeof(Element);
  static constexpr int kEach = kVector * kColumns;  // elements of a lane

  const ConvUpdatePoolParams& p;
  char* shared;              // of the warp
  int channel, lane, count;  // count: channels of the warp

  __device__ __forceinline__ Element* stage(int row) const {
    return reinterpret_cast<Element*>(shared + row * ConvTokenSmem<Config>::kOfRow);
  }
  __device__ __forceinline__ Element* state(int slot) const {
    return static_cast<Element*>(p.call.state) + slot * p.call.state_slot_stride +
           channel * p.call.state_channel_stride;
  }
  // Returns whether a state is one run of memory.
  __device__ __forceinline__ bool dense() const {
    return p.state_column_stride == 1 && p.call.state_channel_stride == kColumns;
  }
  // Returns whether a lane's channels are one access of each column.
  __device__ __forceinline__ bool beside() const {
    const auto address = reinterpret_cast<unsigned long long>(p.call.state);
    const auto gaps =
        static_cast<unsigned long long>(p.call.state_slot_stride | p.state_column_stride) *
        sizeof(Element);
    return p.call.state_channel_stride == 1 && ((address | gaps) & (Config::kVectorBytes - 1)) == 0;
  }
  using Channels = Words<Config::kVectorBytes>;
  __device__ __forceinline__ Channels* own(int slot, int column) const {
    return reinterpret_cast<Channels*>(state(slot) + lane * kVector +
                                       column * p.state_column_stride);
  }
  // Calls body(i, channel, column) for this lane's i-th element, which lies in memory beside that
  // of the next lane.
  template <class Body>
  __device__ __forceinline__ void each(const Body& body) const {
    const bool columns = p.state_column_stride == 1;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int flat = lane + 32 * i;
      const int c = columns ? flat / kColumns : lane + 32 * (i % kVector);
      const int column = columns ? flat % kColumns : i / kVector;
      if (c < count) body(i, c, column);
    }
  }
  __device__ __forceinline__ long long place(int c, int column) const {
    return c * p.call.state_channel_stride + column * p.state_column_stride;
  }

  // Brings the states; plain loads, as the grid writes the pool.
  __device__ __forceinline__ void fetch(const int (&from)[kRows]) const {
    if (dense()) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (from[r] >= 0) copy_in_async(stage(r), state(from[r]), count * kColumns, lane);
      }
    } else if (beside()) {
      const bool active = lane * kVector < count;
      Channels held[kRows][kColumns];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int s = 0; s < kColumns; ++s) {
          if (from[r] >= 0 && active) held[r][s] = *own(from[r], s);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        Element columns[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          columns[i] = element_of<Element>(held[r][i % kColumns], i / kColumns);
        }
        if (from[r] >= 0 && active) write_columns(stage(r) + lane * kEach, columns);
      }
    } else {
      Element held[kRows][kEach];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Element* source = state(maximum(from[r], 0));
        each([&](int i, int c, int column) {
          if (from[r] >= 0) held[r][i] = source[place(c, column)];
        });
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        each([&](int i, int c, int column) {
          if (from[r] >= 0) stage(r)[c * kColumns + column] = held[r][i];
        });
      }
    }
    copy_async_commit();
  }
  __device__ __forceinline__ void put(int row, int slot) const {
    if (dense()) {
      copy_out(state(slot), stage(row), count * kColumns, lane);
    } else if (beside()) {
      if (lane * kVector >= count) return;
      Element columns[kEach];
      read_columns(stage(row) + lane * kEach, columns);
#pragma unroll
      for (int s = 0; s < kColumns; ++s) {
        Channels channels;
        if constexpr (Config::kVectorBytes == 2) {
          channels.half = columns[s].bits;
        } else {
#pragma unroll
          for (int v = 0; v < kVector; ++v) put_slot(channels.word, v, columns[v * kColumns + s]);
        }
        store_global(own(slot, s), channels);
      }
    } else {
      Element* to = state(slot);
      each([&](int, int c, int column) {
        store_element(to + place(c, column), stage(row)[c * kColumns + column]);
      });
    }
  }
};

// Rolls this lane's columns by one, puts `x` into the last and gives act(z) of the last W inputs.
// `zeros`: there were none before. Elements move as they are, whatever their bits.
template <class Config, int kVector>
__device__ __forceinline__ void conv_token_step(const float (&weight)[Config::kWidth][kVector],
                                                const float (&bias)[kVector],
                                                const Words<Config::kVectorBytes>& x, bool zeros,
                                                typename Config::Element* columns,
                                                float (&result)[kVector]) {
  using Element = typename Config::Element;
  constexpr int kColumns = Config::kColumns, kBefore = Config::kWidth - 1;
  Element held[kVector * kColumns]{}, rolled[kVector * kColumns];
  if (!zeros) read_columns(columns, held);
  float history[kBefore][kVector], current[kVector];
  unpack<Element>(x, current);
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int j = 0; j < kBefore; ++j) {
      history[j][v] = to_float(held[v * kColumns + kColumns - kBefore + j]);
    }
#pragma unroll
    for (int s = 0; s < kColumns - 1; ++s) {
      rolled[v * kColumns + s] = held[v * kColumns + s + 1];
    }
    rolled[v * kColumns + kColumns - 1] = element_of<Element>(x, v);
  }
  write_columns(columns, rolled);
  conv_filter(weight, bias, history, current, result);
  if constexpr (Config::kSilu) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) result[v] = conv_silu(result[v]);
  }
}

// Slot of a sequence; -1 for whatever is none.
template <class Config>
__device__ __forceinline__ int conv_token_slot(const ConvUpdatePoolParams& p, const void* indices,
                                               int sequence) {
  long long slot = sequence;
  if (indices != nullptr) {
    slot = load_element(static_cast<const typename Config::Index*>(indices) + sequence);
  }
  return slot < 0 || slot >= p.call.slots || slot == p.call.null_slot ? -1 : static_cast<int>(slot);
}

// The taps and the bias of a lane's channels.
template <class Config, int kVector>
__device__ __forceinline__ void load_taps(const ConvUpdateSlotsParams& p, int channel,
                                          float (&weight)[Config::kWidth][kVector],
                                          float (&bias)[kVector]) {
  using Weight = typename Config::WeightElement;
  const Weight* taps =
      static_cast<const Weight*>(p.weight) + static_cast<long long>(channel) * Config::kWidth;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int i = 0; i < Config::kWidth; ++i) {
      weight[i][v] = to_float(load_element(taps + v * Config::kWidth + i));
    }
    bias[v] = 0.0f;
    if constexpr (Config::kBias) {
      bias[v] = to_float(load_element(static_cast<const Weight*>(p.bias) + channel + v));
    }
  }
}

template <class Config>
__device__ void causal_conv1d_update_token(const ConvUpdatePoolParams& p) {
  using Element = typename Config::Element;
  using States = ConvTokenStates<Config>;
  constexpr int kRows = Config::kRows, kVector = States::kVector;
  extern __shared__ float4 shared[];
  const unsigned tiles = (p.call.channels - 1u) / (32 * kVector) + 1u;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned item = blockIdx.x * (Config::kThreads / 32) + warp;
  const int first = static_cast<int>(item / tiles) * p.rows;
  if (first >= p.call.sequences) return;
  const int channel = static_cast<int>(item % tiles) * 32 * kVector;
  const States states = {p, reinterpret_cast<char*>(shared) + warp * ConvTokenSmem<Config>::kOfWarp,
                         channel, lane, minimum(32 * kVector, p.call.channels - channel)};
  const int own = channel + lane * kVector;
  const bool active = own < p.call.channels;

  int from[kRows], to[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int sequence = first + r;
    const bool there = r < p.rows && sequence < p.call.sequences;
    to[r] = there ? conv_token_slot<Config>(p, p.call.state_indices, sequence) : -1;
    from[r] = to[r];
    if (p.call.source_indices != nullptr && to[r] >= 0) {
      from[r] = conv_token_slot<Config>(p, p.call.source_indices, sequence);
    }
  }
  states.fetch(from);
  Words<Config::kVectorBytes> x[kRows], residual[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (to[r] < 0 || !active) continue;
    const long long row = first + r;
    load_global(static_cast<const Element*>(p.call.x) + row * p.call.x_batch_stride + own, x[r]);
    if constexpr (Config::kResidual) {
      load_global(
          static_cast<const Element*>(p.call.residual) + row * p.call.residual_batch_stride + own,
          residual[r]);
    }
  }
  float weight[Config::kWidth][kVector], bias[kVector];
  if (active) load_taps<Config>(p.call, own, weight, bias);
  copy_async_wait<0>();
  __syncwarp();  // the states are there
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= p.rows || first + r >= p.call.sequences || !active) continue;
    Words<Config::kVectorBytes> out{};
    if (to[r] >= 0) {
      float result[kVector];
      conv_token_step<Config>(weight, bias, x[r], from[r] < 0,
                              states.stage(r) + lane * States::kEach, result);
      if constexpr (Config::kResidual) {
        float added[kVector];
        unpack<Element>(residual[r], added);
#pragma unroll
        for (int v = 0; v < kVector; ++v) result[v] = __fadd_rn(result[v], added[v]);
      }
      out = pack<Element, Config::kVectorBytes>(result);
    }
    store_global(static_cast<Element*>(p.call.y) +
                     static_cast<long long>(first + r) * p.call.y_batch_stride + own,
                 out);
  }
  if (!p.call.update_state) return;
  __syncwarp();  // all lanes have rolled theirs
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (to[r] >= 0) states.put(r, to[r]);
  }
}

}  // namespace lathe
