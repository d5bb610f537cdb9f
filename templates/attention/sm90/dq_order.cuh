// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The order in which a deterministic backward by warpgroups adds to dq: to each tile of dq, tile of
// keys after tile of keys, as they lie in their sequence. A word of memory for each tile of dq says
// how many tiles of keys are past it; a block waits until the one in front of its own is. The first
// one that sees a tile of dq stores there, so that nobody zeroes it.
//
// Under a mask_mod not every tile of keys between two others sees a tile of dq: a block waits for
// the last one in front of it that has it in its list, which one warp looks up.
//
// Blocks take their tiles of keys by tickets, and wait for lower tickets alone. Whoever holds one
// has begun, so nobody waits for a block that has no multiprocessor yet, whatever the device runs
// beside this.
//
// Blocks of neighbouring tiles of keys are one step apart, because all of them walk their queries
// from the last one back: under a causal mask, tiles of a head then have the same queries first,
// and the longest ones begin. Tickets of a section of heads alternate between these. The blocks of
// a section finish as much apart as those of the next one begin, so that only the first section
// waits.
#pragma once
#include "attention/query_visits.cuh"
#include "params/attention_backward_warpgroups.h"

namespace lathe {

// QueryVisits from the end of each head, or of its list, back.
template <class Config>
struct DescendingVisits {
  static constexpr bool kListed = HasMaskMod<Config>::kValue;
  const AttentionBackwardParams& p;
  const volatile KeyTile* const tile;

  __device__ __forceinline__ QueryCursor begin() const {
    if constexpr (kListed) {
      return tile->begin < tile->end ? last_of(tile->first_head) : QueryCursor{tile->end_head, 0};
    }
    return {tile->begin < tile->end ? tile->first_head : tile->end_head, tile->end - 1};
  }
  __device__ __forceinline__ QueryCursor next(const QueryCursor& at) const {
    if constexpr (kListed) {
      return at.index > 0 ? QueryCursor{at.head, at.index - 1} : last_of(at.head + 1);
    }
    if (at.index > tile->begin) return {at.head, at.index - 1};
    return {at.head + 1, tile->end - 1};
  }
  __device__ __forceinline__ bool there(const QueryCursor& at) const {
    return at.head < tile->end_head;
  }
  // By ranges.
  __device__ __forceinline__ bool full(const QueryCursor& at) const { return tile->full(at.index); }
  // Returns the entry of the list that the cursor is at.
  __device__ __forceinline__ int entry(const QueryCursor& at) const {
    return QueryVisits<Config>{p, tile}.entry(at);
  }

 private:
  __device__ __forceinline__ QueryCursor last_of(int head) const {
    int count = 0;
#pragma unroll 1
    for (; head < tile->end_head; ++head) {
      count = QueryVisits<Config>{p, tile}.count(head);
      if (count > 0) break;
    }
    return {head, count - 1};
  }
};

template <class Config>
using GradientVisits =
    typename Choose<Config::kDeterministic, DescendingVisits<Config>, QueryVisits<Config>>::Type;

// The number of the first tile of dq of the sequence that the keys are of, of head 0. Those of
// other heads follow, p.dq_tiles apart.
template <class Config>
__device__ __forceinline__ long long first_dq_tile_of_head(
    const AttentionBackwardWarpgroupsParams& p, const volatile KeyTile* tile) {
  if constexpr (Config::kPacked) return tile->start_q / Config::kTileM + tile->sequence;
  return static_cast<long long>(tile->sequence) * p.backward.heads * p.dq_tiles;
}

// A tile of keys of one head: `sequence_head` counts heads of all sequences.
struct TicketTile {
  unsigned sequence_head;
  int slice;
};

__device__ __forceinline__ unsigned take_ticket(unsigned* counter) {
  unsigned ticket;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(ticket)
               : "l"(counter)
               : "memory");
  return ticket;
}
// Without an order the block's number does: nobody waits.
template <class Config>
__device__ __forceinline__ TicketTile ticket_tile(const AttentionBackwardWarpgroupsParams& p) {
  const unsigned slices = p.backward.slices;
  if (!Config::kDeterministic || p.dq_order == nullptr) {
    return {blockIdx.x / slices, static_cast<int>(blockIdx.x % slices)};
  }
  const unsigned section = p.section, all = section * slices;
  const unsigned ticket = take_ticket(static_cast<unsigned*>(p.dq_order));
  const unsigned first = ticket / all * section, left = gridDim.x / slices - first;
  const unsigned heads = left < section ? left : section, at = ticket % all;
  return {first + at % heads, static_cast<int>(at / heads)};
}

// Waits until a word that others raise is `least`, and knows then what they did before.
__device__ __forceinline__ void wait_for_turn(const long long* turn, int least) {
  asm volatile(
      "{\n .reg .pred over;\n .reg .s64 turn;\nAGAIN:\n"
      " ld.acquire.gpu.global.s64 turn, [%0];\n"
      " setp.ge.s64 over, turn, %1;\n"
      " @!over bra AGAIN;\n}" ::"l"(turn),
      "l"(static_cast<long long>(least))
      : "memory");
}
__device__ __forceinline__ void pass_turn(long long* turn, int value) {
  asm volatile("st.release.gpu.global.s64 [%0], %1;" ::"l"(turn), "l"(static_cast<long long>(value))
               : "memory");
}

}  // namespace lathe
