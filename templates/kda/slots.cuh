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

// A warp's cursor over the checkpoints of a sequence, in the order of their tokens. Callers list
// them in any order; in a rising one each costs a load.
struct KdaCheckpoints {
  const int* tokens;
  const int* slots;
  int from, count, lane;
  bool rises;

  template <class Params>
  __device__ __forceinline__ KdaCheckpoints(const Params& p, int sequence, int its_lane)
      : lane(its_lane) {
    const int* offsets = static_cast<const int*>(p.cu_checkpoints) + sequence;
    const int begin = minimum(maximum(load_element(offsets), 0), p.checkpoints);
    const int end = minimum(maximum(load_element(offsets + 1), begin), p.checkpoints);
    tokens = static_cast<const int*>(p.checkpoint_tokens) + begin;
    slots = static_cast<const int*>(p.checkpoint_slots) + begin;
    from = 0, count = end - begin;
    bool falls = false;
    for (int i = lane; i + 1 < count; i += 32) {
      falls = falls || load_element(tokens + i) > load_element(tokens + i + 1);
    }
    rises = __any_sync(0xffffffffu, falls) == 0;
  }

  // Returns the first checkpoint behind token `after`, or `end` if none comes before it.
  __device__ __forceinline__ int next(int after, int end) {
    while (from < count && load_element(tokens + from) <= after) ++from;
    if (from == count) return end;
    if (rises) return minimum(load_element(tokens + from), end);
    int least = end;
    for (int i = from + lane; i < count; i += 32) {
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
  __device__ __forceinline__ void at(int token, const Body& body) const {
    for (int first = from; first < count; first += 32) {
      const bool there = first + lane < count;
      const int its_token = there ? load_element(tokens + first + lane) : token + 1;
      unsigned here = __ballot_sync(0xffffffffu, there && its_token == token);
      for (; here != 0; here &= here - 1) {
        body(load_element(slots + first + __ffs(static_cast<int>(here)) - 1));
      }
      if (rises && __any_sync(0xffffffffu, its_token > token)) return;
    }
  }
};

}  // namespace lathe
