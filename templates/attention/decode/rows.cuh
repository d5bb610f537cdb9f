// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels that decode share this: which rows, keys and part of the keys a block works on, and
// where its results lie. The query heads of a key head are rows of one tile of kTileM: tile row r
// is query r / G of head r % G. With more than one split, a block has one of these parts of the
// tile's key blocks (Flash-Decoding, Dao et al. 2023) and stores a float32 partial result without
// the sink, for attention_combine.
#pragma once
#include "attention/decode/ragged.cuh"
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

// The tile of the block, and its split. Splits are the slowest in the grid: those
// of one sequence that are read at the same time lie apart, and a short sequence leaves its last
// splits, which are empty, to the end. Packed queries: decode/ragged.cuh, which needs shared memory
// at the begin.
template <class Config>
__device__ __forceinline__ QueryTile decode_tile(const AttentionDecodeParams& decode, char* memory,
                                                 DecodeSplit& split) {
  const AttentionForwardParams& p = decode.forward;
  QueryTile tile;
  if constexpr (IsRagged<Config>::kValue) {
    tile = ragged_tile<Config>(decode, memory, split);
    if (tile.sequence == kNoSequence || tile.sequence == p.sequences) return tile;
  } else {
    tile = query_tile<DecodeConfig<Config>>(p);
    split = {tile.sequence / p.sequences, decode.splits, 0};
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
  __device__ __forceinline__ DecodePart(const Visits& visits, const DecodeSplit& split) {
    const int part = ceil_div(visits.end - visits.begin, split.count);
    first = minimum(visits.begin + split.number * part, visits.end);
    last = minimum(first + part, visits.end);
  }
};

// Returns the index of a row's lse.
template <class Config>
__device__ __forceinline__ long long decode_row(const AttentionForwardParams& p,
                                                const QueryTile& tile, int query, int head) {
  if constexpr (IsRagged<Config>::kValue) {
    return static_cast<long long>(head) * p.seq_q + tile.start_q + query;
  }
  return (static_cast<long long>(tile.sequence) * p.heads + head) * p.seq_q + query;
}
// Returns the index of a row among the partial results: [splits, B, H, Sq], or if packed
// [slots, kTileM].
template <class Config>
__device__ __forceinline__ long long decode_partial(const AttentionForwardParams& p,
                                                    const QueryTile& tile, const DecodeSplit& split,
                                                    int query, int head) {
  if constexpr (IsRagged<Config>::kValue) {
    return static_cast<long long>(split.slot) * Config::kTileM +
           (query * tile.group + head - tile.head * tile.group - tile.first);
  }
  const long long rows = static_cast<long long>(p.sequences) * p.heads * p.seq_q;
  return split.number * rows + decode_row<Config>(p, tile, query, head);
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
                                                  const QueryTile& tile, const DecodeSplit& split) {
  const AttentionForwardParams& p = decode.forward;
  const unsigned group = tile.group, at = tile.first + threadIdx.x;
  const int query = at / group, head = tile.head * group + at % group;
  if (threadIdx.x >= Config::kTileM || query >= tile.rows) return;
  float* lse = static_cast<float*>(decode.partial_lse);
  store_element(lse + decode_partial<Config>(p, tile, split, query, head), minus_infinity());
}

// Rows behind the last sequence, of which nothing but the results is there: they are 0, without
// weight. They are not split. Returns whether the tile is of such rows.
template <class Config>
__device__ __forceinline__ bool store_padding(const AttentionDecodeParams& decode,
                                              const QueryTile& tile) {
  using Element = typename Config::Element;
  const AttentionForwardParams& p = decode.forward;
  if (!IsRagged<Config>::kValue || tile.sequence < p.sequences) return false;
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
