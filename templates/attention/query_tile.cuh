// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which rows and keys a block of attention works on, and which rows its warps and lanes number.
#pragma once
#include "attention/mods/mods.cuh"
#include "attention/tile.cuh"
#include "common/varlen.cuh"
#include "params/attention.h"

namespace lathe {

// With Config::kWholeGroups no tile has a part of a group: rows behind the last whole one are
// nobody's.
template <class Config, class = void>
struct HasWholeGroups {
  static constexpr bool kValue = false;
};
template <class Config>
struct HasWholeGroups<Config, typename Exists<decltype(Config::kWholeGroups)>::Type> {
  static constexpr bool kValue = true;
};
// The rows of a tile that are somebody's. `group`: query heads that are rows of it.
template <class Config>
__device__ __forceinline__ int used_rows(int group) {
  return HasWholeGroups<Config>::kValue ? Config::kTileM / group * group : Config::kTileM;
}

// Where tiles do not divide a sequence one of them is short. With Config::kShortFirst it is the
// first one if no window ends on the left of a row, as under a causal mask: then a tile sees more
// keys the further behind it is, and rows of nobody should see few.
template <class Config, class = void>
struct HasShortFirst {
  static constexpr bool kValue = false;
};
template <class Config>
struct HasShortFirst<Config, typename Exists<decltype(Config::kShortFirst)>::Type> {
  static constexpr bool kValue = Config::kShortFirst;
};

// A QueryTile is what a block of threads works on.
struct QueryTile {
  int sequence, head;    // the key head with kPackGqa, otherwise the query head
  int kv_head, group;    // query heads of a key head
  int start_q, start_k;  // of a packed sequence, otherwise 0
  int rows, keys;        // of the sequence
  // Rows of `out` that its tiles must write: with padding behind the last one, and without the next
  // tile's rows if the first one is short.
  int written;
  int first;       // tile row 0 in the sequence, counted in tile rows
  long long list;  // which list of visits is the tile's, with kListed
};

// Tile number `number` of a sequence and a head, which is a key head with kPackGqa.
template <class Config>
__device__ __forceinline__ QueryTile query_tile_at(const AttentionForwardParams& p, int sequence,
                                                   int head, int number) {
  QueryTile tile;
  tile.group = p.heads / p.kv_heads;
  const int used = used_rows<Config>(tile.group);
  tile.first = number * used;
  tile.head = head;
  tile.sequence = sequence;
  tile.kv_head = Config::kPackGqa ? head : head / tile.group;
  tile.start_q = tile.start_k = 0;
  tile.rows = tile.written = p.seq_q, tile.keys = p.seq_k;
  const int heads = Config::kPackGqa ? p.kv_heads : p.heads;
  tile.list = (static_cast<long long>(sequence) * heads + head) * p.tiles + number;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::CuSeqlens;
    const int b = sequence;
    const bool any = b < p.sequences;  // without sequences every row is padding
    tile.start_q = any ? offset_at<Offset>(p.cu_seqlens_q, b, p.seq_q) : 0;
    tile.start_k = any ? offset_at<Offset>(p.cu_seqlens_k, b, p.seq_k) : 0;
    const int end_q = any ? offset_at<Offset>(p.cu_seqlens_q, b + 1, p.seq_q) : 0;
    const int end_k = any ? offset_at<Offset>(p.cu_seqlens_k, b + 1, p.seq_k) : 0;
    tile.rows = maximum(end_q - tile.start_q, 0);
    tile.keys = maximum(end_k - tile.start_k, 0);
    tile.written = b + 1 >= p.sequences ? p.seq_q - tile.start_q : tile.rows;
    // Lists of a head lie as close as the sequences' rows do: floor(start / M) + b + tile never
    // meets that of the next sequence, whatever the lengths.
    const long long start =
        static_cast<long long>(tile.start_q) * (Config::kPackGqa ? tile.group : 1);
    tile.list =
        static_cast<long long>(tile.head) * (p.tiles + p.sequences) + start / used + b + number;
  }
  return tile;
}
// With kShortFirst: if the first tile is the short one, it is so by `missing` tile rows, and the
// others begin so much earlier. It has rows of the next one behind its own, which it does not
// write.
template <class Config>
__device__ __forceinline__ void shorten_first(const AttentionForwardParams& p, int missing,
                                              QueryTile& tile) {
  if constexpr (HasShortFirst<Config>::kValue) {
    if (p.window_left >= 0) return;
    const int group = Config::kPackGqa ? tile.group : 1;
    if (tile.first == 0) tile.written = (used_rows<Config>(group) - missing) / group;
    tile.first = maximum(tile.first - missing, 0);
  }
}
// `block` counts tiles in the order in which they are begun: within a head the last rows first,
// which see most under a causal mask.
template <class Config>
__device__ __forceinline__ QueryTile query_tile(const AttentionForwardParams& p, unsigned block) {
  const int heads = Config::kPackGqa ? p.kv_heads : p.heads;
  const unsigned other = block / p.tiles;
  return query_tile_at<Config>(p, static_cast<int>(other / heads), static_cast<int>(other % heads),
                               p.tiles - 1 - static_cast<int>(block % p.tiles));
}
template <class Config>
__device__ __forceinline__ QueryTile query_tile(const AttentionForwardParams& p) {
  return query_tile<Config>(p, blockIdx.x);
}

// From a tensor's first element to the first row of the tile's sequence, head 0.
template <class Config>
__device__ __forceinline__ long long sequence_offset(const QueryTile& tile, long long batch_stride,
                                                     long long token_stride, int start) {
  return Config::kPacked ? start * token_stride : tile.sequence * batch_stride;
}
// From there to tile row r of a tensor of queries.
template <class Config>
__device__ __forceinline__ long long query_offset(const QueryTile& tile, int r,
                                                  long long token_stride, long long head_stride) {
  const int row = tile.first + r;
  if constexpr (Config::kPackGqa) {
    return row / tile.group * token_stride +
           (tile.head * tile.group + row % tile.group) * head_stride;
  }
  return row * token_stride + tile.head * head_stride;
}

// The rows of a warp: warp row 16 b + 8 h + lane / 4 is the lane's row of block b, half h. With
// packed heads a lane keeps query and head of row `lane` alone and gives them to who asks:
// registers are what the kernel is short of, and nothing is divided twice.
template <class Config>
struct WarpRows {
  static constexpr int kRows = Config::kTileM / (Config::kThreads / 32);
  static_assert(kRows == 16 || kRows == 32, "a lane for every row");
  int lane_query, lane_head;

  __device__ __forceinline__ explicit WarpRows(const QueryTile& tile) {
    if constexpr (Config::kPackGqa) {
      const unsigned thread = thread_index(), group = tile.group;
      const unsigned warp_row = thread / 32 * kRows + thread % kRows;
      const unsigned row = tile.first + warp_row;
      lane_query = row / group;
      lane_head = tile.head * group + row % group;
      if constexpr (HasWholeGroups<Config>::kValue) {
        if (warp_row >= static_cast<unsigned>(used_rows<Config>(tile.group)))
          lane_query = tile.written;
      }
    }
  }
  static __device__ __forceinline__ int warp_row(int block, int half, int thread) {
    return 16 * block + 8 * half + thread % 32 / 4;
  }
  __device__ __forceinline__ int query(const QueryTile& tile, int warp_row, int thread) const {
    if constexpr (Config::kPackGqa) return __shfl_sync(0xffffffffu, lane_query, warp_row);
    return tile.first + thread / 32 * kRows + warp_row;
  }
  __device__ __forceinline__ int head(const QueryTile& tile, int warp_row) const {
    if constexpr (Config::kPackGqa) return __shfl_sync(0xffffffffu, lane_head, warp_row);
    return tile.head;
  }
};

}  // namespace lathe
