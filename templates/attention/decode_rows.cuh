// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels that decode share this: which rows, keys and part of the keys a block works on, and
// where its results lie. The query heads of a key head are rows of one tile of kTileM: tile row r
// is query r / G of head r % G. With more than one split, a block has one of these parts of the
// tile's key blocks (Flash-Decoding, Dao et al. 2023) and stores a float32 partial result without
// the sink, for attention_combine.
#pragma once
#include "attention/pages.cuh"
#include "attention/query_tile.cuh"
#include "attention/softmax.cuh"

namespace lathe {

// The kernel's constants as the pieces that it shares with attention_forward want them.
template <class Config>
struct DecodeConfig : Config {
  static constexpr bool kPacked = false, kPackGqa = true, kListed = false;
};

// The 16 rows of a warp, as WarpRows has them: lane i knows query and head of row i % 16.
template <class Config>
struct DecodeRows {
  int lane_query, lane_head;

  __device__ __forceinline__ DecodeRows(const QueryTile& tile, int row_warp) {
    const unsigned group = tile.group;
    const unsigned row = tile.first + row_warp * 16 + thread_index() % 16;
    lane_query = row / group;
    lane_head = tile.head * group + row % group;
  }
  static __device__ __forceinline__ int warp_row(int, int half, int thread) {
    return 8 * half + thread % 32 / 4;
  }
  __device__ __forceinline__ int query(const QueryTile&, int warp_row, int) const {
    return __shfl_sync(0xffffffffu, lane_query, warp_row);
  }
  __device__ __forceinline__ int head(const QueryTile&, int warp_row) const {
    return __shfl_sync(0xffffffffu, lane_head, warp_row);
  }
};

// The tile of the block, but for its keys, and its split. Splits are the slowest in the grid: those
// of one sequence that are read at the same time lie apart, and a short sequence leaves its last
// splits, which are empty, to the end.
template <class Config>
__device__ __forceinline__ QueryTile decode_tile(const AttentionForwardParams& p, int& split) {
  QueryTile tile = query_tile<DecodeConfig<Config>>(p);
  split = tile.sequence / p.sequences;
  tile.sequence %= p.sequences;
  return tile;
}

// The key blocks [first, last) of a split.
struct DecodePart {
  int first, last;

  template <class Visits>
  __device__ __forceinline__ DecodePart(const Visits& visits, int splits, int split) {
    const int part = ceil_div(visits.end - visits.begin, splits);
    first = minimum(visits.begin + split * part, visits.end);
    last = minimum(first + part, visits.end);
  }
};

// Returns the index of a row's lse, and of its out in the partial results of a split.
__device__ __forceinline__ long long decode_row(const AttentionForwardParams& p,
                                                const QueryTile& tile, int query, int head) {
  return (static_cast<long long>(tile.sequence) * p.heads + head) * p.seq_q + query;
}
__device__ __forceinline__ long long decode_partial(const AttentionForwardParams& p, int split) {
  return split * (static_cast<long long>(p.sequences) * p.heads * p.seq_q);
}

// A split without blocks has only its lse read.
template <int kTileM>
__device__ __forceinline__ void store_empty_split(const AttentionDecodeParams& decode,
                                                  const QueryTile& tile, int split) {
  const AttentionForwardParams& p = decode.forward;
  const unsigned group = tile.group, at = tile.first + threadIdx.x;
  const int query = at / group, head = tile.head * group + at % group;
  if (threadIdx.x >= kTileM || query >= tile.rows) return;
  float* lse = static_cast<float*>(decode.partial_lse) + decode_partial(p, split);
  store_element(lse + decode_row(p, tile, query, head), minus_infinity());
}

}  // namespace lathe
