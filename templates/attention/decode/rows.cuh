// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels that decode share this: which rows, keys and part of the keys a block works on, and
// where its results lie. The query heads of a key head are rows of one tile of kTileM: tile row r
// is query r / G of head r % G. With more than one split, a block has one of these parts of the
// tile's key blocks (Flash-Decoding, Dao et al. 2023) and stores a float32 partial result without
// the sink, for attention_combine.
#pragma once
#include "attention/decode/calls.cuh"
#include "attention/decode/pages.cuh"
#include "attention/query_tile.cuh"
#include "attention/softmax.cuh"

namespace lathe {

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

// Tile `number` of a key head of packed queries, but for its keys. Sequence b has the tiles from
// floor(rows ahead of it / kTileM) + b on, which is at least as many as its rows need; rows behind
// the last sequence are one more, of padding, which has no keys.
template <class Config>
__device__ __forceinline__ QueryTile ragged_tile(const AttentionForwardParams& p, int head,
                                                 int number) {
  using Offset = typename Config::CuSeqlens;
  QueryTile tile;
  tile.group = p.heads / p.kv_heads, tile.head = tile.kv_head = head;
  const auto start = [&](int b) { return offset_at<Offset>(p.cu_seqlens_q, b, p.seq_q); };
  const auto first_of = [&](int b) {
    return static_cast<int>(static_cast<long long>(start(b)) * tile.group / Config::kTileM) + b;
  };
  tile.sequence = last_before(p.sequences + 1, [&](int b) { return first_of(b) <= number; });
  tile.start_q = start(tile.sequence), tile.start_k = 0;
  const bool padding = tile.sequence == p.sequences;
  tile.rows = maximum((padding ? p.seq_q : start(tile.sequence + 1)) - tile.start_q, 0);
  tile.first = (number - first_of(tile.sequence)) * Config::kTileM;
  tile.keys = 0, tile.written = tile.rows, tile.list = 0;
  return tile;
}
// Whether a tile has rows. The grid has some that have none.
__device__ __forceinline__ bool has_rows(const QueryTile& tile) {
  return tile.first < static_cast<long long>(tile.rows) * tile.group;
}

// The tile of the block, and its split. Splits are the slowest in the grid: those
// of one sequence that are read at the same time lie apart, and a short sequence leaves its last
// splits, which are empty, to the end.
template <class Config>
__device__ __forceinline__ QueryTile decode_tile(const AttentionDecodeParams& decode, int& split) {
  const AttentionForwardParams& p = decode.forward;
  QueryTile tile;
  if constexpr (IsRagged<Config>::kValue) {
    const unsigned other = blockIdx.x / p.tiles;
    split = static_cast<int>(other / p.kv_heads);
    tile = ragged_tile<Config>(p, static_cast<int>(other % p.kv_heads),
                               p.tiles - 1 - static_cast<int>(blockIdx.x % p.tiles));
    if (tile.sequence == p.sequences) return tile;
  } else {
    tile = query_tile<DecodeConfig<Config>>(p);
    split = tile.sequence / p.sequences;
    tile.sequence %= p.sequences;
  }
  const int appended =
      IsRagged<Config>::kValue && decode.appended > 0 ? tile.rows : decode.appended;
  tile.keys = PageTable(decode.pages, tile.sequence).keys(appended);
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
template <class Config>
__device__ __forceinline__ long long decode_row(const AttentionForwardParams& p,
                                                const QueryTile& tile, int query, int head) {
  if constexpr (IsRagged<Config>::kValue) {
    return static_cast<long long>(head) * p.seq_q + tile.start_q + query;
  }
  return (static_cast<long long>(tile.sequence) * p.heads + head) * p.seq_q + query;
}
template <class Config>
__device__ __forceinline__ long long decode_partial(const AttentionForwardParams& p, int split) {
  const int batch = IsRagged<Config>::kValue ? 1 : p.sequences;
  return split * (static_cast<long long>(batch) * p.heads * p.seq_q);
}
// From a tensor's first element to the tile's first row.
template <class Config>
__device__ __forceinline__ long long decode_offset(const QueryTile& tile, long long batch_stride,
                                                   long long token_stride) {
  return sequence_offset<DecodeConfig<Config>>(tile, batch_stride, token_stride, tile.start_q);
}

// A split without blocks has only its lse read.
template <class Config>
__device__ __forceinline__ void store_empty_split(const AttentionDecodeParams& decode,
                                                  const QueryTile& tile, int split) {
  const AttentionForwardParams& p = decode.forward;
  const unsigned group = tile.group, at = tile.first + threadIdx.x;
  const int query = at / group, head = tile.head * group + at % group;
  if (threadIdx.x >= Config::kTileM || query >= tile.rows) return;
  float* lse = static_cast<float*>(decode.partial_lse) + decode_partial<Config>(p, split);
  store_element(lse + decode_row<Config>(p, tile, query, head), minus_infinity());
}

// Rows behind the last sequence, of which nothing but the results is there: they are 0, without
// weight. Returns whether the tile is of such rows.
template <class Config>
__device__ __forceinline__ bool store_padding(const AttentionDecodeParams& decode,
                                              const QueryTile& tile, int split) {
  using Element = typename Config::Element;
  const AttentionForwardParams& p = decode.forward;
  if (!IsRagged<Config>::kValue || tile.sequence < p.sequences) return false;
  if (decode.splits > 1) {
    store_empty_split<Config>(decode, tile, split);
    return true;
  }
  const int group = tile.group;
#pragma unroll 1
  for (int i = threadIdx.x; i < Config::kTileM * p.value_dim; i += Config::kThreads) {
    const int at = tile.first + i / p.value_dim, column = i % p.value_dim;
    const int query = at / group, head = tile.head * group + at % group;
    if (query >= tile.rows) break;
    store_element(static_cast<Element*>(p.out) +
                      decode_offset<Config>(tile, p.out_batch_stride, p.out_token_stride) +
                      query * p.out_token_stride + head * p.out_head_stride + column,
                  from_float<Element>(0.0f));
    if (column > 0) continue;
    store_element(static_cast<float*>(p.lse) + decode_row<Config>(p, tile, query, head),
                  minus_infinity());
  }
  return true;
}

}  // namespace lathe
