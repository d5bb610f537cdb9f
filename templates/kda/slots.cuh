// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Slots of a pool of states, and the checkpoints of a sequence: states that go to slots of their
// own after some of its tokens. Params is any struct with the fields of these names.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"

namespace lathe {

// Returns a slot of the pool; -1 for whatever is none, and for the one that stands for padding.
template <class Index, class Params>
__device__ __forceinline__ int kda_slot(const Params& p, const void* indices, long long at) {
  const Index slot = load_element(static_cast<const Index*>(indices) + at);
  return slot >= 0 && slot < p.slots && slot != p.null_slot ? static_cast<int>(slot) : -1;
}

// Where a sequence's state is read and written; -1: nowhere.
struct KdaSlots {
  int from, to;
  bool padding;
};

// Returns the slots of a sequence that writes its state once.
template <class Index, class Params>
__device__ __forceinline__ KdaSlots kda_pool_slots(const Params& p, int sequence) {
  KdaSlots out = {-1, kda_slot<Index>(p, p.state_indices, sequence), false};
  out.padding = out.to < 0;
  if (out.padding) return out;
  if (p.has_initial_state != nullptr &&
      load_element(static_cast<const int*>(p.has_initial_state) + sequence) == 0) {
    return out;
  }
  out.from = p.source_indices != nullptr ? kda_slot<Index>(p, p.source_indices, sequence) : out.to;
  return out;
}

// What a Config says of a pool: the type of its states and of its indices, and whether there are
// checkpoints. A Config without a pool says nothing.
template <class Config, class = void>
struct KdaPoolOf {
  static constexpr bool kThere = false;
};
template <class Config>
struct KdaPoolOf<Config, decltype(static_cast<void>(sizeof(typename Config::PoolElement)))> {
  static constexpr bool kThere = true;
};
template <class Config>
constexpr bool kPooled = KdaPoolOf<Config>::kThere;

template <class Config, class = void>
struct KdaCheckpointsOf {
  static constexpr bool kThere = false;
};
template <class Config>
struct KdaCheckpointsOf<Config, decltype(static_cast<void>(Config::kCheckpoints))> {
  static constexpr bool kThere = Config::kCheckpoints;
};
template <class Config>
constexpr bool kCheckpointed = KdaCheckpointsOf<Config>::kThere;

// The checkpoints of a sequence, in any order, as a warp reads them. Nothing is kept from one call
// to the next: registers are short between the walks of two pieces.
struct KdaCheckpoints {
  const int* tokens;
  const int* slots;
  int count;

  template <class Params>
  __device__ __forceinline__ KdaCheckpoints(const Params& p, int sequence) {
    const int* offsets = static_cast<const int*>(p.cu_checkpoints) + sequence;
    const int begin = minimum(maximum(load_element(offsets), 0), p.checkpoints);
    const int end = minimum(maximum(load_element(offsets + 1), begin), p.checkpoints);
    tokens = static_cast<const int*>(p.checkpoint_tokens) + begin;
    slots = static_cast<const int*>(p.checkpoint_slots) + begin;
    count = end - begin;
  }

  // Returns the first checkpoint behind token `after`, or `end` if none comes before it.
  __device__ __forceinline__ int next(int lane, int after, int end) const {
    int least = end;
#pragma unroll 1
    for (int i = lane; i < count; i += 32) {
      const int token = load_element(tokens + i);
      if (token > after) least = minimum(least, token);
    }
#pragma unroll
    for (int other = 1; other < 32; other *= 2) {
      least = minimum(least, __shfl_xor_sync(0xffffffffu, least, other));
    }
    return least;
  }

  // Calls with the slot of each checkpoint after `token` tokens, by all lanes.
  template <class Body>
  __device__ __forceinline__ void at(int lane, int token, const Body& body) const {
#pragma unroll 1
    for (int first = 0; first < count; first += 32) {
      const bool there = first + lane < count && load_element(tokens + first + lane) == token;
      unsigned here = __ballot_sync(0xffffffffu, there);
#pragma unroll 1
      for (; here != 0; here &= here - 1) {
        body(load_element(slots + first + __ffs(static_cast<int>(here)) - 1));
      }
    }
  }
};

}  // namespace lathe
