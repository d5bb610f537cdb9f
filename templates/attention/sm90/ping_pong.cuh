// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The order in which a block's consumers issue their products: while one computes its softmax, the
// products of another one run (Shah et al., FlashAttention-3, where the two calls are
// warp_scheduler_barrier_sync and warp_scheduler_barrier_arrive).
#pragma once
#include "attention/mods/mods.cuh"
#include "attention/sm90/attention_producer.cuh"
#include "common/mbarrier.cuh"

namespace lathe {

// With mods the widest accumulators leave no register for a barrier's number or for two maxima at a
// time: these are always exchanged, those of one half of the rows after the other's.
template <class Config>
constexpr bool kOneByOne =
    (HasScoreMod<Config>::kValue || HasMaskMod<Config>::kValue) && Config::kValueWidth == 256;

// Named barrier 1 + g lets warpgroup g issue products, and each arrives at the barrier of the next
// one when its products are issued. start() arrives once at the barrier of the first one, in the
// name of the last one; what arrives after the last round of a tile begins the next tile. Nobody
// waits at the last arrival of all.
template <class Config>
struct PingPongBarrier {
  static constexpr unsigned kGroups = ConsumerConfig<Config>::kThreads / 128;
  unsigned group;

  // Waits until the warpgroup may issue its products.
  template <unsigned kGroup = 0>
  __device__ __forceinline__ void sync() const {
    if constexpr (kGroup < kGroups && kGroups > 1) {
      if (group == kGroup) {
        named_barrier_sync<1 + kGroup, 256>();
      } else {
        sync<kGroup + 1>();
      }
    }
  }
  // Lets the next warpgroup issue its products. A branch would cost more behind products than
  // elsewhere, so there is none where a register can hold the barrier's number.
  template <unsigned kGroup = 0>
  __device__ __forceinline__ void arrive() const {
    if constexpr (!kOneByOne<Config>) {
      if constexpr (kGroups > 1) named_barrier_arrive<256>(group + 1 < kGroups ? group + 2 : 1);
    } else if constexpr (kGroup < kGroups) {
      if (group == kGroup) {
        named_barrier_arrive<1 + (kGroup + 1) % kGroups, 256>();
      } else {
        arrive<kGroup + 1>();
      }
    }
  }
  __device__ __forceinline__ void start() const {
    if (group == kGroups - 1) arrive();
  }
};

}  // namespace lathe
