// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_mask_queries: attention_mask_blocks seen from the keys, ahead of the backward: which
// blocks of kTileM queries a tile of kTileN keys must visit, for each query head. A block of
// threads makes one list.
#pragma once
#include "attention/mask_class.cuh"
#include "attention/query_visits.cuh"

namespace lathe {

// [key tile][classes of one round, one a warp]
template <class Config>
struct AttentionMaskQueriesSmem {
  static constexpr int kBytes = KeyTile::kBytes + Config::kThreads / 32 * 4;
};

template <class Config>
__device__ void attention_mask_queries(const AttentionBackwardParams& p) {
  extern __shared__ __align__(16) char shared[];
  volatile KeyTile* const tile = reinterpret_cast<volatile KeyTile*>(shared);
  if (threadIdx.x == 0) {
    key_tile_begin<Config>(p, blockIdx.x / p.key_tiles, 0, tile);
    key_tile_at<Config>(static_cast<int>(blockIdx.x % p.key_tiles) * Config::kTileN, tile);
  }
  __syncthreads();  // the tile is there for all
  const int key = tile->first, head = tile->first_head;
  if (key >= tile->keys) return;  // its list is that of nobody, or of the next sequence
  const MaskClasses<Config> mask = {captures_of(p), tile->window(), tile->sequence, tile->rows};
  const auto class_of = [&](int block) {
    const int found = mask.of({head, 1, block * Config::kTileM, key}, tile->full(block));
    // Rows past the last are no pairs, but have to be masked.
    return found == kMaskAll && !tile->full(block) ? kMaskMixed : found;
  };
  const long long list = query_list<Config>(p, tile) + head * query_list_step<Config>(p);
  const int count = list_tiles<Config::kThreads>(
      tile->begin, tile->end, class_of, reinterpret_cast<int*>(shared + KeyTile::kBytes),
      static_cast<int*>(p.visits) + list * p.visits_stride);
  if (threadIdx.x == 0) static_cast<int*>(p.visit_counts)[list] = count;
}

}  // namespace lathe
