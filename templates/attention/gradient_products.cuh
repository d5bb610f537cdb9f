// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The five products of attention's backward over tiles in shared memory, and how warps share them.
//
//   s^T = k q^T, dp^T = v dout^T     16 keys (or a multiple) of a warp by its queries
//   dv += p^T dout, dk += ds^T q     the same keys by the warp's columns, over all queries
//   dq  = ds k                       blocks of 16 queries by columns, over all keys of the tile
//
// Accumulators of the first two are operand A of the next two as they stand. Where two warps have
// the same keys and half the columns each, each has the scores of half the queries, and p and ds
// reach both through shared memory.
#pragma once
#include "attention/column_share.cuh"
#include "attention/tile.cuh"
#include "common/shared_memory.cuh"

namespace lathe {

template <class Config>
struct GradientShape {
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kWidthWarps = Config::kWidthWarps, kKeyWarps = kWarps / kWidthWarps;
  static constexpr bool kSplit = kWidthWarps > 1;
  static constexpr int kRowBlocks = Config::kTileN / (16 * kKeyWarps);  // of 16 keys, per warp
  static constexpr int kQueries = Config::kTileM / kWidthWarps;         // of a warp's scores
  static constexpr int kTiles = kQueries / 8, kSteps = Config::kTileM / 16;
  using KeyShare = ColumnShare<Config::kWidth, kWidthWarps>;  // of dk
  using ValueShare = ColumnShare<Config::kValueWidth, kWidthWarps>;
  static_assert(kKeyWarps >= 1 && Config::kTileN == 16 * kKeyWarps * kRowBlocks, "16 keys a warp");
  static_assert(kQueries % 16 == 0 && Config::kThreads >= 2 * Config::kTileM, "whole blocks");
  static_assert(Config::kStages == 1 || Config::kStages == 2, "one stage of queries or two");

  // The warps of dq, columns by rows: as square as may be, for fewest loads to a product.
  __host__ __device__ static constexpr int row_blocks(int ways) {
    return Config::kTileM / 16 * ways / kWarps;
  }
  __host__ __device__ static constexpr bool possible(int ways) {
    return kWarps % ways == 0 && row_blocks(ways) * kWarps == Config::kTileM / 16 * ways &&
           row_blocks(ways) > 0 && (ways < 4 || Config::kWidth % 64 == 0);
  }
  __host__ __device__ static constexpr int loads(int ways) {
    return possible(ways) ? row_blocks(ways) + Config::kWidth / 16 / ways : 1 << 20;
  }
  static constexpr int kDqWays = loads(1) < loads(2) && loads(1) < loads(4) ? 1
                                 : loads(2) < loads(4)                      ? 2
                                                                            : 4;
  static_assert(possible(kDqWays), "the warps do not divide the tile of dq");
  static constexpr int kDqRowBlocks = row_blocks(kDqWays);
  using DqShare = ColumnShare<Config::kWidth, kDqWays>;

  using Scores = float[kRowBlocks][kTiles][4];
  using Operands = unsigned[kRowBlocks][kTiles / 2][4];  // of 16-bit pairs
  using KeySums = float[kRowBlocks][2 * KeyShare::kBlocks][4];
  using ValueSums = float[kRowBlocks][2 * ValueShare::kBlocks][4];
  using DqSums = float[kDqRowBlocks][2 * DqShare::kBlocks][4];

  static __device__ __forceinline__ int lane() { return thread_index() % 32; }
  // The warp's first block of keys, and its place among those that share them.
  static __device__ __forceinline__ int key_block() {
    return thread_index() / 32 % kKeyWarps * kRowBlocks;
  }
  static __device__ __forceinline__ int width_warp() {
    return kSplit ? thread_index() / 32 / kKeyWarps : 0;
  }
  static __device__ __forceinline__ int first_query() { return width_warp() * kQueries; }
  static __device__ __forceinline__ int dq_way() { return thread_index() / 32 % kDqWays; }
  static __device__ __forceinline__ int dq_block() {
    return thread_index() / 32 / kDqWays * kDqRowBlocks;
  }
};

// s += keys queries^T of the warp's own keys and queries, over kColumns.
template <class Config, int kColumns>
__device__ __forceinline__ void add_scores(unsigned keys, unsigned queries,
                                           typename GradientShape<Config>::Scores& s) {
  using Shape = GradientShape<Config>;
  using Element = typename Config::Element;
  const int lane = Shape::lane(), own = Shape::key_block();
  const auto key_reader = read_rows_first<Config::kTileN, kColumns>(keys, lane);
  const TileReader<Config::kTileM, kColumns> query_reader(
      queries, Shape::first_query() + (lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1);
  // A panel at a time: unrolled further, the compiler reads so far ahead that it spills.
#pragma unroll(kColumns % 64 == 0 ? 4 : kColumns / 16)
  for (int d = 0; d < kColumns / 16; ++d) {
    unsigned a[Shape::kRowBlocks][4];
#pragma unroll
    for (int b = 0; b < Shape::kRowBlocks; ++b) load_matrix(a[b], key_reader.at(own + b, d));
#pragma unroll
    for (int n = 0; n < Shape::kTiles; n += 2) {
      unsigned q[4];
      load_matrix(q, query_reader.at(n / 2, d));
#pragma unroll
      for (int b = 0; b < Shape::kRowBlocks; ++b) {
        multiply_add(s[b][n], a[b], q[0], q[1], Element{});
        multiply_add(s[b][n + 1], a[b], q[2], q[3], Element{});
      }
    }
  }
}

// Operands of the warp's keys and queries into a tile of kTileN keys by kTileM queries.
template <class Config>
__device__ __forceinline__ void exchange(const typename GradientShape<Config>::Operands& words,
                                         unsigned to) {
  using Shape = GradientShape<Config>;
  using Shaped = Tile<Config::kTileN, Config::kTileM>;
  const int lane = Shape::lane(), row = Shape::key_block() * 16 + lane / 4;
  const int first = Shape::first_query() / 8;  // a multiple of kTiles, which is a power of two
  constexpr int kPitch = Shaped::kPanels > 0 ? 128 : 64;
  to += lane % 4 * 4 + (Shaped::kPanels > 0
                            ? first / 8 * Config::kTileN * 128 + panel_offset(row, first % 8)
                            : half_panel_offset(row, first));
#pragma unroll
  for (int n = 0; n < Shape::kTiles; ++n) {
    const unsigned column = (to ^ (n % 8 * 16)) + n / 8 * Config::kTileN * 128;
#pragma unroll
    for (int i = 0; i < 2 * Shape::kRowBlocks; ++i) {
      store_shared(column + 8 * i * kPitch, words[i / 2][n / 2][n % 2 * 2 + i % 2]);
    }
  }
}

// sums += words queries: of all queries and the warp's columns, of a tile of kColumns. The words
// are the warp's own, or those that have been exchanged.
template <class Config, class Share, int kColumns, class Sums>
__device__ __forceinline__ void add_products(const typename GradientShape<Config>::Operands& kept,
                                             unsigned exchanged, unsigned queries, Sums& sums) {
  using Shape = GradientShape<Config>;
  using Element = typename Config::Element;
  const int lane = Shape::lane(), own = Shape::key_block();
  const auto reader = Share::shared_out(read_rows_first<Config::kTileM, kColumns>(queries, lane),
                                        Shape::width_warp());
  const auto word_reader = read_rows_first<Config::kTileN, Config::kTileM>(exchanged, lane);
#pragma unroll
  for (int j = 0; j < Shape::kSteps; ++j) {
    unsigned a[Shape::kRowBlocks][4];
#pragma unroll
    for (int b = 0; b < Shape::kRowBlocks; ++b) {
      if constexpr (Shape::kSplit) {
        load_matrix(a[b], word_reader.at(own + b, j));
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[b][i] = kept[b][j][i];
      }
    }
#pragma unroll
    for (int n = 0; n < Share::kBlocks; ++n) {
      unsigned values[4];
      load_matrix_transposed(values, reader.at(j, Share::block(n)));
#pragma unroll
      for (int b = 0; b < Shape::kRowBlocks; ++b) {
        multiply_add(sums[b][2 * n], a[b], values[0], values[1], Element{});
        multiply_add(sums[b][2 * n + 1], a[b], values[2], values[3], Element{});
      }
    }
  }
}

// dq += ds k of the warp's queries and columns, over all keys of the tile; ds lies transposed.
template <class Config>
__device__ __forceinline__ void add_dq(unsigned ds_tile, unsigned keys,
                                       typename GradientShape<Config>::DqSums& dq) {
  using Shape = GradientShape<Config>;
  using Share = typename Shape::DqShare;
  using Element = typename Config::Element;
  const int lane = Shape::lane(), first = Shape::dq_block();
  const auto key_reader = Share::shared_out(
      read_rows_first<Config::kTileN, Config::kWidth>(keys, lane), Shape::dq_way());
  auto ds = read_columns_first<Config::kTileN, Config::kTileM>(ds_tile, lane);
  // The blocks of a warp lie in one panel: 2^n of them, at a multiple of as many.
  ds.panel = (ds.panel + first / 4 * Config::kTileN * 128) ^ (first % 4 * 32);
  ds.half ^= first % 4 * 32;
#pragma unroll
  for (int j = 0; j < Config::kTileN / 16; ++j) {
    unsigned a[Shape::kDqRowBlocks][4];
#pragma unroll
    for (int b = 0; b < Shape::kDqRowBlocks; ++b) load_matrix_transposed(a[b], ds.at(j, b));
#pragma unroll
    for (int n = 0; n < Share::kBlocks; ++n) {
      unsigned values[4];
      load_matrix_transposed(values, key_reader.at(j, Share::block(n)));
#pragma unroll
      for (int b = 0; b < Shape::kDqRowBlocks; ++b) {
        multiply_add(dq[b][2 * n], a[b], values[0], values[1], Element{});
        multiply_add(dq[b][2 * n + 1], a[b], values[2], values[3], Element{});
      }
    }
  }
}

}  // namespace lathe
