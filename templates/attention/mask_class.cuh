// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions say what a mask_mod and the window leave of a tile of scores, kTileM rows by
// kTileN keys: none, some or all of the pairs; and the making of a list of tiles. mask_tile says it
// where the mod has one; otherwise every pair is looked at, up to the first that shows the tile to
// be mixed.
#pragma once
#include "attention/mask.cuh"
#include "attention/mods/captures.cuh"
#include "attention/query_tile.cuh"

namespace lathe {

enum MaskClass { kMaskNone = 0, kMaskMixed = 1, kMaskAll = 2 };

// A tile: row r of it is query (first + r) / group of head `head` + (first + r) % group.
struct MaskTile {
  int head, group, first;
  int key;
};

template <class Config>
struct MaskClasses {
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;
  const AttentionCaptures captures;
  const KeyWindow window;
  const int sequence, rows;  // of the sequence

  // By one warp. `whole`: window and ends of the sequence cut nothing off the tile.
  __device__ __forceinline__ int of(const MaskTile& tile, bool whole) const {
    if constexpr (Config::MaskMod::kHasTile) {
      return by_tile(tile, whole);
    } else {
      return by_pairs(tile);
    }
  }

 private:
  // Over all heads and rows of the tile.
  __device__ __forceinline__ int by_tile(const MaskTile& tile, bool whole) const {
    const int row = tile.first / tile.group;
    const int end =
        minimum((tile.first + used_rows<Config>(tile.group) - 1) / tile.group + 1, rows);
    bool none = true, all = whole;
    for (int h = 0; h < tile.group; ++h) {
      const int found = Config::MaskMod::tile(sequence, tile.head + h, row, end, tile.key,
                                              minimum(tile.key + kTileN, window.keys), captures);
      none = none && found == kMaskNone;
      all = all && found == kMaskAll;
    }
    return none ? kMaskNone : all ? kMaskAll : kMaskMixed;
  }
  // A row at a time, its keys shared out to the lanes.
  __device__ __forceinline__ int by_pairs(const MaskTile& tile) const {
    const int lane = threadIdx.x % 32;
    bool any = false, all = true;
#pragma unroll 1
    for (int r = 0; r < used_rows<Config>(tile.group); ++r) {
      const int row = (tile.first + r) / tile.group;
      const int head = tile.head + (tile.first + r) % tile.group;
      if (row >= rows) break;
      const long long lowest = first_key(window, row), highest = last_key(window, row);
#pragma unroll 1
      for (int column = 0; column < kTileN; column += 32) {
        const int key = tile.key + column + lane;
        const bool seen = key >= lowest && key <= highest;
        const bool keep =
            Config::MaskMod::keep(sequence, head, row, minimum(key, window.keys - 1), captures);
        const unsigned kept = __ballot_sync(0xffffffffu, seen && keep);
        any = any || kept != 0;
        all = all && kept == 0xffffffffu;
      }
      if (any && !all) break;
    }
    return all ? kMaskAll : any ? kMaskMixed : kMaskNone;
  }
};

// The tiles begin..end - 1 that are not empty, as entries of visits.cuh; returns how many. By all
// threads of the block: in each round every warp classifies one tile, then the entries are written
// in order. `classes` is shared memory for one int a warp.
template <int kThreads, class ClassOf>
__device__ __forceinline__ int list_tiles(int begin, int end, const ClassOf& class_of, int* classes,
                                          int* list) {
  constexpr int kWarps = kThreads / 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int count = 0;
#pragma unroll 1
  for (int from = begin; from < end; from += kWarps) {
    const int found = from + warp < end ? class_of(from + warp) : kMaskNone;
    if (lane == 0) classes[warp] = found;
    __syncthreads();  // the classes of the round are there
    const int lane_class = lane < kWarps ? classes[lane] : kMaskNone;
    const unsigned listed = __ballot_sync(0xffffffffu, lane_class != kMaskNone);
    const int slot = count + __popc(listed & ((1u << lane) - 1u));
    if (warp == 0 && lane_class != kMaskNone)
      list[slot] = 2 * (from + lane) + (lane_class == kMaskAll ? 0 : 1);
    count += __popc(listed);
    __syncthreads();  // all have read them
  }
  return count;
}

}  // namespace lathe
