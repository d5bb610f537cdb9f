// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which key blocks a tile of rows visits, in which order and with which masks. A cursor counts down
// from end - 1 to begin, one visit for each value, so that blocks go from the right to the left and
// a block's copies are in the stage of the cursor's parity.
//
// By ranges (mask.cuh) the cursor is the block. With kListed it is an index of a list in memory
// that an earlier kernel made, for masks that are known block by block alone: its entries ascend,
// being 2 * block + 1 where some pair of the block may be masked and 2 * block where all are kept.
#pragma once
#include "attention/mask.cuh"
#include "attention/mods/mods.cuh"
#include "attention/query_tile.cuh"

namespace lathe {

enum class AttentionMask { none, left, both };

template <class Config, class Window = KeyWindow>
struct Visits {
  Window window;
  // From `right` on both masks are needed, below `left` the left one, between them none.
  int begin, left, right, end;
  const int* listed;  // entries, with kListed

  __device__ __forceinline__ Visits(const AttentionForwardParams& p, const QueryTile& tile)
      : Visits(key_window(tile.rows, tile.keys, Config::kLocal ? p.window_left : -1,
                          Config::kLocal ? p.window_right : -1),
               p, tile) {}
  __device__ __forceinline__ Visits(const Window& of, const AttentionForwardParams& p,
                                    const QueryTile& tile)
      : window(of), begin(0), left(0), right(0), end(0), listed(nullptr) {
    const int group = Config::kPackGqa ? tile.group : 1;
    const int first = tile.first / group;
    const int last = minimum((tile.first + used_rows<Config>(group) - 1) / group,
                             minimum(tile.rows, tile.written) - 1);
    if (first >= tile.rows) return;
    if constexpr (Config::kListed) {
      end = load_element(static_cast<const int*>(p.visit_counts) + tile.list);
      listed = static_cast<const int*>(p.visits) + tile.list * p.visits_stride;
    } else {
      const BlockRange range = block_range<Config::kTileN>(window, first, last);
      begin = range.begin, left = range.left, right = range.right, end = range.end;
      // Without a list nobody knows which blocks a mask_mod leaves whole.
      if constexpr (HasMaskMod<Config>::kValue) left = right = begin;
    }
  }

  __device__ __forceinline__ int entry(int cursor) const { return load_element(listed + cursor); }
  // The first key of a visit's block.
  __device__ __forceinline__ int key(int cursor) const {
    return (Config::kListed ? entry(cursor) >> 1 : cursor) * Config::kTileN;
  }
  __device__ __forceinline__ bool masked(int cursor) const { return (entry(cursor) & 1) != 0; }
};

}  // namespace lathe
