// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_mask_blocks: which key blocks a tile of rows must visit under a mask_mod, as the lists
// of visits.cuh, ahead of the kernel that walks them.
//
// Block n of kTileN keys is in the list of a tile of kTileM rows iff some row of the sequence keeps
// one of its keys, by window and mask_mod; masked unless every row keeps every key of the whole
// block. mask_tile says so where the snippet has it; otherwise every pair is looked at, up to the
// first that shows the block to be mixed. Only the blocks that the window leaves are looked at.
//
// A block of threads makes the list of one tile. In each round every warp classifies one key block;
// then the entries are written in order.
#pragma once
#include "attention/mask.cuh"
#include "attention/place.cuh"
#include "attention/softmax.cuh"
#include "params/attention.h"

namespace lathe {

// [kWarps] classes of one round.
template <class Config>
struct AttentionMaskBlocksSmem {
  static constexpr int kBytes = Config::kThreads / 32 * 4;
};

enum MaskClass { kMaskNone = 0, kMaskMixed = 1, kMaskAll = 2 };

template <class Config>
struct MaskBlocks {
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;
  const AttentionForwardParams& p;
  const AttentionTile& tile;
  const KeyWindow window;
  const int group, first, last;  // heads that share the tile, and its rows of the sequence

  __device__ __forceinline__ MaskBlocks(const AttentionForwardParams& params,
                                        const AttentionTile& place)
      : p(params),
        tile(place),
        window(key_window(place.rows, place.keys, Config::kLocal ? params.window_left : -1,
                          Config::kLocal ? params.window_right : -1)),
        group(Config::kPackGqa ? place.group : 1),
        first(place.first / group),
        last(minimum((place.first + kTileM - 1) / group, place.rows - 1)) {}

  // By mask_tile, over all heads and rows of the tile. `whole`: the window and the end of the keys
  // cut nothing off the block.
  __device__ __forceinline__ int class_by_tile(int block, bool whole) const {
    const int key = block * kTileN, end = minimum(key + kTileN, tile.keys);
    bool none = true, all = whole;
    for (int h = 0; h < group; ++h) {
      const int found = Config::MaskMod::tile(tile.sequence, tile.head * group + h, first, last + 1,
                                              key, end, p.captures);
      none = none && found == kMaskNone;
      all = all && found == kMaskAll;
    }
    return none ? kMaskNone : all ? kMaskAll : kMaskMixed;
  }

  // By mask_mod, the pairs shared out to the lanes of a warp.
  __device__ __forceinline__ int class_by_pairs(int block) const {
    const int lane = threadIdx.x % 32;
    bool any = false, all = true;
#pragma unroll 1
    for (int r = 0; r < kTileM; ++r) {
      const int row = (tile.first + r) / group, head = tile.head * group + (tile.first + r) % group;
      if (row > last) break;
      const long long lowest = first_key(window, row), highest = last_key(window, row);
#pragma unroll 1
      for (int column = 0; column < kTileN; column += 32) {
        const int key = block * kTileN + column + lane;
        const bool seen = key >= lowest && key <= highest;
        const bool keep = Config::MaskMod::keep(tile.sequence, head, row,
                                                minimum(key, tile.keys - 1), p.captures);
        const unsigned kept = __ballot_sync(0xffffffffu, seen && keep);
        any = any || kept != 0;
        all = all && kept == 0xffffffffu;
      }
      if (any && !all) break;
    }
    return all ? kMaskAll : any ? kMaskMixed : kMaskNone;
  }

  __device__ __forceinline__ void run(int* classes) const {
    constexpr int kWarps = Config::kThreads / 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const BlockRange range = block_range<kTileN>(window, first, last);
    int* list = static_cast<int*>(p.visits) + tile.list * p.visits_stride;
    int count = 0;
#pragma unroll 1
    for (int from = range.begin; from < range.end; from += kWarps) {
      const int block = from + warp;
      int found = kMaskNone;
      if (block < range.end) {
        if constexpr (Config::MaskMod::kHasTile) {
          found = class_by_tile(block, block >= range.left && block < range.right);
        } else {
          found = class_by_pairs(block);
        }
      }
      if (lane == 0) classes[warp] = found;
      __syncthreads();  // the classes of the round are there
      const int own = lane < kWarps ? classes[lane] : kMaskNone;
      const unsigned listed = __ballot_sync(0xffffffffu, own != kMaskNone);
      const int place = count + __popc(listed & ((1u << lane) - 1u));
      if (warp == 0 && own != kMaskNone) {
        list[place] = 2 * (from + lane) + (own == kMaskAll ? 0 : 1);
      }
      count += __popc(listed);
      __syncthreads();  // all have read them
    }
    if (threadIdx.x == 0) static_cast<int*>(p.visit_counts)[tile.list] = count;
  }
};

template <class Config>
__device__ void attention_mask_blocks(const AttentionForwardParams& p) {
  extern __shared__ __align__(16) int classes[];
  const AttentionTile tile = attention_tile<Config>(p);
  const int group = Config::kPackGqa ? tile.group : 1;
  if (tile.first / group >= tile.rows) return;  // nobody reads its list
  MaskBlocks<Config>(p, tile).run(classes);
}

}  // namespace lathe
