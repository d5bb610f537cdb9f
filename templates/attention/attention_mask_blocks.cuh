// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_mask_blocks: which key blocks a tile of rows must visit under a mask_mod, as the lists
// of visits.cuh, ahead of the forward that walks them.
//
// Block n of kTileN keys is in the list of a tile of kTileM rows iff some row of the sequence keeps
// one of its keys, by window and mask_mod; masked unless every row keeps every key of the whole
// block. Only the blocks that the window leaves are looked at. A block of threads makes one list.
#pragma once
#include "attention/mask_class.cuh"
#include "attention/query_tile.cuh"

namespace lathe {

// [warps] classes of one round.
template <class Config>
struct AttentionMaskBlocksSmem {
  static constexpr int kBytes = Config::kThreads / 32 * 4;
};

template <class Config>
__device__ void attention_mask_blocks(const AttentionForwardParams& p) {
  extern __shared__ __align__(16) int classes[];
  const QueryTile tile = query_tile<Config>(p);
  const int group = Config::kPackGqa ? tile.group : 1;
  const int first = tile.first / group;
  const int last = minimum((tile.first + used_rows<Config>(group) - 1) / group, tile.rows - 1);
  if (first > last) return;  // nobody reads its list
  const KeyWindow window = key_window(tile.rows, tile.keys, Config::kLocal ? p.window_left : -1,
                                      Config::kLocal ? p.window_right : -1);
  const BlockRange range = block_range<Config::kTileN>(window, first, last);
  const MaskClasses<Config> mask = {captures_of(p), window, tile.sequence, tile.rows};
  const auto class_of = [&](int block) {
    return mask.of({tile.head * group, group, tile.first, block * Config::kTileN},
                   block >= range.left && block < range.right);
  };
  int* list = static_cast<int*>(p.visits) + tile.list * p.visits_stride;
  const int count = list_tiles<Config::kThreads>(range.begin, range.end, class_of, classes, list);
  if (threadIdx.x == 0) static_cast<int*>(p.visit_counts)[tile.list] = count;
}

}  // namespace lathe
