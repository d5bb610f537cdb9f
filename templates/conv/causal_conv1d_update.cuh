// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update: one token per sequence, the state rolled in place.
//
//   state[s] <- state[s + 1] for s < W - 1,  state[W - 1] <- x
//   y = act(bias + sum_i weight[i] state[i]) + residual
//
// Bitwise the forward's result for the same tokens: same filter, same order. A warp takes 32 *
// kVector channels of kRows sequences; the warps of a block take others, so one staged filter
// serves all. The slots of a sequence are one contiguous run of memory that goes through shared
// memory whole, whatever the width: no access with a stride of W. All rows of a warp are on their
// way at once, and before the filter is waited for.
#pragma once
#include "common/async_copy.cuh"
#include "conv/window.cuh"
#include "params/conv.h"

namespace lathe {

// Bytes of the slots of one sequence and the channels of a warp.
template <class Config>
constexpr int kConvUpdateSlots = 32 * Config::kVectorBytes* Config::kWidth;

// [filter][kRows runs of slots per warp].
template <class Config>
struct ConvUpdateSmem {
  static constexpr int kOfWarp = Config::kRows * kConvUpdateSlots<Config>;
  static constexpr int kBytes =
      4 * ConvShape<Config>::kFilterFloats + ConvShape<Config>::kWarps * kOfWarp;
};

// The slots of one thread as words, in accesses as wide as its place in the run allows.
template <int kWords>
__device__ __forceinline__ void read_slots(const void* from, unsigned (&word)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords;) {
    if constexpr (kWords % 4 == 0) {
      const uint4 four = static_cast<const uint4*>(from)[i / 4];
      word[i] = four.x, word[i + 1] = four.y, word[i + 2] = four.z, word[i + 3] = four.w, i += 4;
    } else if constexpr (kWords % 2 == 0) {
      const uint2 two = static_cast<const uint2*>(from)[i / 2];
      word[i] = two.x, word[i + 1] = two.y, i += 2;
    } else {
      word[i] = static_cast<const unsigned*>(from)[i], ++i;
    }
  }
}
template <int kWords>
__device__ __forceinline__ void write_slots(void* to, const unsigned (&word)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords;) {
    if constexpr (kWords % 4 == 0) {
      static_cast<uint4*>(to)[i / 4] = make_uint4(word[i], word[i + 1], word[i + 2], word[i + 3]);
      i += 4;
    } else if constexpr (kWords % 2 == 0) {
      static_cast<uint2*>(to)[i / 2] = make_uint2(word[i], word[i + 1]);
      i += 2;
    } else {
      static_cast<unsigned*>(to)[i] = word[i], ++i;
    }
  }
}
// Element i of words, and the same put into words that are put together in order.
template <class Element, int kWords>
__device__ __forceinline__ Element get_slot(const unsigned (&word)[kWords], int i) {
  if constexpr (sizeof(Element) == 4) {
    return bit_cast<Element>(word[i]);
  } else {
    return Element{static_cast<unsigned short>(word[i / 2] >> 16 * (i % 2))};
  }
}
template <class Element, int kWords>
__device__ __forceinline__ void put_slot(unsigned (&word)[kWords], int i, Element value) {
  if constexpr (sizeof(Element) == 4) {
    word[i] = bit_cast<unsigned>(value);
  } else {
    const unsigned bits = value.bits;
    word[i / 2] = i % 2 == 0 ? bits : word[i / 2] | bits << 16;
  }
}

// The step of one thread, for kernels that fuse it: rolls `slots` ([channel][W], shared or local
// memory) by one, puts `x` into the last and gives act(z) of the rolled window. Elements move as
// they are, whatever their bits.
template <class Config, int kVector>
__device__ __forceinline__ void conv_update_step(const float (&weight)[Config::kWidth][kVector],
                                                 const float (&bias)[kVector],
                                                 const Words<Config::kVectorBytes>& x,
                                                 typename Config::Element* slots,
                                                 float (&result)[kVector]) {
  using Element = typename Config::Element;
  constexpr int kWidth = Config::kWidth;
  float history[kWidth - 1][kVector], current[kVector];
  unpack<Element>(x, current);
  if constexpr (Config::kVectorBytes % 4 == 0) {
    constexpr int kWords = kWidth * Config::kVectorBytes / 4;
    unsigned old[kWords], rolled[kWords];
    read_slots(slots, old);
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
#pragma unroll
      for (int s = 0; s < kWidth - 1; ++s) {
        const Element slot = get_slot<Element>(old, v * kWidth + s + 1);
        put_slot(rolled, v * kWidth + s, slot);
        history[s][v] = to_float(slot);
      }
      put_slot(rolled, v * kWidth + kWidth - 1, element_of<Element>(x, v));
    }
    write_slots(slots, rolled);
  } else {  // a single element of 16 bits
#pragma unroll
    for (int s = 0; s < kWidth - 1; ++s) {
      const Element slot = slots[s + 1];
      slots[s] = slot;
      history[s][0] = to_float(slot);
    }
    slots[kWidth - 1] = element_of<Element>(x, 0);
  }
  conv_filter(weight, bias, history, current, result);
  if constexpr (Config::kSilu) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) result[v] = conv_silu(result[v]);
  }
}

// An exact copy by the 32 lanes of one warp, 16 bytes at a time where the address allows; what it
// brings asynchronously belongs to the group that the caller closes.
template <class Element>
__device__ __forceinline__ void copy_in_async(Element* shared, const Element* global, int count,
                                              int lane) {
  constexpr int kPer = 16 / sizeof(Element);
  const bool wide = (reinterpret_cast<unsigned long long>(global) & 15) == 0;
  const int vectors = wide ? count / kPer : 0;
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  for (int i = lane; i < vectors; i += 32) copy_async(to + 16 * i, global + i * kPer, true);
  for (int i = vectors * kPer + lane; i < count; i += 32) shared[i] = global[i];
}

// A thread's channels of one sequence: what it adds, and where its slots lie.
template <class Config>
struct ConvUpdateRow {
  Words<Config::kVectorBytes> x, residual;
  typename Config::Element* slots;  // of the warp, in shared memory
  typename Config::Element* state;  // the same in memory
  int count;                        // elements of both

  // Brings slots and inputs. `channel` is the first one of the warp.
  __device__ __forceinline__ void fetch(const ConvUpdateParams& p, int row, int channel, int lane) {
    using Element = typename Config::Element;
    constexpr int kVector = ConvShape<Config>::kVector;
    state = static_cast<Element*>(p.state) + row * p.state_stride +
            static_cast<long long>(channel) * Config::kWidth;
    count = minimum(ConvShape<Config>::kChannels, p.channels - channel) * Config::kWidth;
    copy_in_async(slots, state, count, lane);
    const int own = channel + lane * kVector;
    if (own >= p.channels) return;
    load_global(static_cast<const Element*>(p.x) + row * p.x_stride + own, x);
    if constexpr (Config::kResidual) {
      load_global(static_cast<const Element*>(p.residual) + row * p.residual_stride + own,
                  residual);
    }
  }
  // Rolls the slots and stores y. The run of slots is there.
  template <int kVector>
  __device__ __forceinline__ void step(const ConvUpdateParams& p, int row, int channel, int lane,
                                       const float (&weight)[Config::kWidth][kVector],
                                       const float (&bias)[kVector]) {
    using Element = typename Config::Element;
    const int own = channel + lane * kVector;
    if (own >= p.channels) return;
    float result[kVector];
    conv_update_step<Config>(weight, bias, x, slots + lane * kVector * Config::kWidth, result);
    if constexpr (Config::kResidual) {
      float added[kVector];
      unpack<Element>(residual, added);
#pragma unroll
      for (int v = 0; v < kVector; ++v) result[v] = __fadd_rn(result[v], added[v]);
    }
    store_global(static_cast<Element*>(p.y) + row * p.y_stride + own,
                 pack<Element, Config::kVectorBytes>(result));
  }
};

template <class Config>
__device__ void causal_conv1d_update(const ConvUpdateParams& p) {
  using Element = typename Config::Element;
  using Shape = ConvShape<Config>;
  constexpr int kRows = Config::kRows, kBlockRows = Shape::kWarps * kRows;
  extern __shared__ float4 shared[];
  float* filter = reinterpret_cast<float*>(shared);
  const int groups = (p.batch - 1) / kBlockRows + 1;  // of sequences
  const ConvTile at = conv_tile<Config>(p.channels, 1, 0, groups);
  char* slots = reinterpret_cast<char*>(filter + Shape::kFilterFloats) +
                at.warp * ConvUpdateSmem<Config>::kOfWarp;
  const int first = at.tile * kBlockRows + at.warp;  // and every kWarps-th one behind it
  ConvUpdateRow<Config> rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first + r * Shape::kWarps;
    rows[r].slots = reinterpret_cast<Element*>(slots + r * kConvUpdateSlots<Config>);
    if (row < p.batch) rows[r].fetch(p, row, at.block_channel, at.lane);
  }
  copy_async_commit();
  float weight[Shape::kWidth][Shape::kVector], bias[Shape::kVector];
  load_filter<Config>(p, at, filter, weight, bias);
  copy_async_wait<0>();
  __syncwarp();  // the runs of slots are there
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first + r * Shape::kWarps;
    if (row < p.batch) rows[r].step(p, row, at.block_channel, at.lane, weight, bias);
  }
  __syncwarp();  // all lanes have rolled theirs
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r * Shape::kWarps < p.batch) {
      copy_out(rows[r].state, rows[r].slots, rows[r].count, at.lane);
    }
  }
}

}  // namespace lathe
