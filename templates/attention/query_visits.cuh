// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which blocks of queries a tile of keys visits, of one query head after the other. By ranges the
// index of a cursor is the block; under a mask_mod it counts the entries of a list, which are those
// of visits.cuh and were made by attention_mask_queries.
#pragma once
#include "attention/key_tile.cuh"
#include "attention/mods/mods.cuh"
#include "common/types.cuh"

namespace lathe {

// A QueryCursor names a block of queries of one head.
struct QueryCursor {
  int head, index;
};

// Lists lie as those of query_tile.cuh: those of a head one after another, of packed sequences as
// close as their keys do. That of query head 0 and the tile of keys that begins at `first`; others
// follow at multiples of query_list_step.
template <class Config>
__device__ __forceinline__ long long query_list_step(const AttentionBackwardParams& p) {
  return Config::kPacked ? p.key_tiles + p.sequences : p.key_tiles;
}
template <class Config>
__device__ __forceinline__ long long query_list(const AttentionBackwardParams& p,
                                                const volatile KeyTile* tile) {
  const int n = tile->first / Config::kTileN, b = tile->sequence;
  if constexpr (Config::kPacked) return tile->start_k / Config::kTileN + b + n;
  return static_cast<long long>(b) * p.heads * p.key_tiles + n;
}

template <class Config>
struct QueryVisits {
  static constexpr bool kListed = HasMaskMod<Config>::kValue;
  const AttentionBackwardParams& p;
  const volatile KeyTile* const tile;

  __device__ __forceinline__ QueryCursor begin() const {
    if constexpr (kListed) {
      // A tile that no query sees has no list.
      return tile->begin < tile->end ? skip_empty({tile->first_head, 0})
                                     : QueryCursor{tile->end_head, 0};
    }
    return {tile->begin < tile->end ? tile->first_head : tile->end_head, tile->begin};
  }
  __device__ __forceinline__ QueryCursor next(const QueryCursor& at) const {
    if constexpr (kListed) return skip_empty({at.head, at.index + 1});
    if (at.index + 1 < tile->end) return {at.head, at.index + 1};
    return {at.head + 1, tile->begin};
  }
  __device__ __forceinline__ bool there(const QueryCursor& at) const {
    return at.head < tile->end_head;
  }
  __device__ __forceinline__ int block(const QueryCursor& at) const {
    return kListed ? entry(at) >> 1 : at.index;
  }
  // Returns whether all of its pairs are kept.
  __device__ __forceinline__ bool full(const QueryCursor& at) const {
    return kListed ? (entry(at) & 1) == 0 : tile->full(at.index);
  }

  // Returns the entry of the list that the cursor is at.
  __device__ __forceinline__ int entry(const QueryCursor& at) const {
    return load_element(static_cast<const int*>(p.visits) + list(at.head) * p.visits_stride +
                        at.index);
  }
  __device__ __forceinline__ int count(int head) const {
    return load_element(static_cast<const int*>(p.visit_counts) + list(head));
  }

 private:
  __device__ __forceinline__ long long list(int head) const {
    return query_list<Config>(p, tile) + head * query_list_step<Config>(p);
  }
  __device__ __forceinline__ QueryCursor skip_empty(QueryCursor at) const {
#pragma unroll 1
    while (at.head < tile->end_head && at.index >= count(at.head)) at = {at.head + 1, 0};
    return at;
  }
};

}  // namespace lathe
