// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_mask_queries: attention_mask_blocks seen from the keys, ahead of the backward: which
// blocks of kTileM queries a tile of kTileN keys must visit, for each query head. A block of threads
// makes one list.
#pragma once
#include "attention/mask_class.cuh"
#include "attention/query_visits.cuh"

namespace lathe {

// [warps] classes of one round.
template <class Config>
struct AttentionMaskQueriesSmem {
  static constexpr int kBytes = Config::kThreads / 32 * 4;
};

template <class Config>
__device__ void attention_mask_queries(const AttentionBackwardParams& p) {
  extern __shared__ __align__(16) int classes[];
  const unsigned other = blockIdx.x / p.key_tiles;
  const int n = static_cast<int>(blockIdx.x % p.key_tiles);
  const int head = static_cast<int>(other % p.heads);
  const KeyTile tile = key_tile<Config>(p, head, static_cast<int>(other / p.heads));
  if (n * Config::kTileN >= tile.keys) return;  // nobody reads its list
  const KeyWindow window = key_window(tile.rows, tile.keys, Config::kLocal ? p.window_left : -1,
                                      Config::kLocal ? p.window_right : -1);
  const QueryBlocks blocks =
      query_blocks<Config::kTileM, Config::kTileN>(window, tile.rows, n * Config::kTileN);
  const MaskClasses<Config> mask = {p.captures, window, tile.sequence, tile.rows};
  const auto class_of = [&](int block) {
    return mask.of({head, 1, block * Config::kTileM, n * Config::kTileN}, blocks.full(block));
  };
  const long long own = query_list<Config>(p, tile, head, n);
  const int count =
      list_tiles<Config::kThreads>(blocks.begin, blocks.end, class_of, classes,
                                   static_cast<int*>(p.visits) + own * p.visits_stride);
  if (threadIdx.x == 0) static_cast<int*>(p.visit_counts)[own] = count;
}

}  // namespace lathe
