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
// reach both through shared memory; of float32, whose tiles leave no room for p, each has all.
#pragma once
#include "attention/backward/column_share.cuh"
#include "attention/operand.cuh"
#include "common/shared_memory.cuh"

namespace lathe {

template <class Config>
struct GradientShape {
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kWidthWarps = Config::kWidthWarps, kKeyWarps = kWarps / kWidthWarps;
  static constexpr int kPlanes = Operand<typename Config::Element>::kPlanes;
  static constexpr bool kSplit = kWidthWarps > 1, kExchange = kSplit && kPlanes == 1;
  static constexpr int kRowBlocks = Config::kTileN / (16 * kKeyWarps);  // of 16 keys, per warp
  static constexpr int kQueries = Config::kTileM / (kExchange ? kWidthWarps : 1);  // of its scores
  static constexpr int kTiles = kQueries / 8, kSteps = Config::kTileM / 16;
  using KeyShare = ColumnShare<Config::kWidth, kWidthWarps>;  // of dk
  using ValueShare = ColumnShare<Config::kValueWidth, kWidthWarps>;
  static_assert(kKeyWarps >= 1 && Config::kTileN == 16 * kKeyWarps * kRowBlocks, "16 keys a warp");
  static_assert(kQueries % 16 == 0, "whole blocks");
  static_assert(Config::kStages == 1 || Config::kStages == 2, "one stage of queries or two");

  // The warps of dq, columns by rows: as square as may be, for fewest loads to a product; among
  // equals with fewer rows a warp, whose addresses take time.
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
  using Operands = Accumulated<typename Config::Element, kTiles>[kRowBlocks];
  using DkAccumulators = float[kRowBlocks][2 * KeyShare::kBlocks][4];
  using DvAccumulators = float[kRowBlocks][2 * ValueShare::kBlocks][4];
  using DqAccumulators = float[kDqRowBlocks][2 * DqShare::kBlocks][4];

  static __device__ __forceinline__ int lane() { return thread_index() % 32; }
  // The warp's first block of keys, and its number among those that share them.
  static __device__ __forceinline__ int key_block() {
    return thread_index() / 32 % kKeyWarps * kRowBlocks;
  }
  static __device__ __forceinline__ int width_warp() {
    return kSplit ? thread_index() / 32 / kKeyWarps : 0;
  }
  static __device__ __forceinline__ int first_query() {
    return kExchange ? width_warp() * kQueries : 0;
  }
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
  const int lane = Shape::lane(), key_block = Shape::key_block();
  const auto key_reader = read_rows_first<Config::kTileN, kColumns>(keys, lane);
  const TileReader<Config::kTileM, kColumns> query_reader(
      queries, Shape::first_query() + (lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1);
  // A panel at a time: unrolled further, the compiler reads so far ahead that it spills.
#pragma unroll(Shape::kPlanes > 1 ? 1 : kColumns % 64 == 0 ? 4 : kColumns / 16)
  for (int d = 0; d < kColumns / 16; ++d) {
    Fragment<Element> a[Shape::kRowBlocks];
#pragma unroll
    for (int b = 0; b < Shape::kRowBlocks; ++b) load_fragment(a[b], key_reader, key_block + b, d);
#pragma unroll
    for (int n = 0; n < Shape::kTiles; n += 2) {
      Fragment<Element> q;
      load_fragment(q, query_reader, n / 2, d);
#pragma unroll
      for (int b = 0; b < Shape::kRowBlocks; ++b) multiply_add_pair(s[b][n], s[b][n + 1], a[b], q);
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
  constexpr int kPitch = Config::kTileM >= 64 ? 128 : 2 * Config::kTileM;
  to += lane % 4 * 4 + chunk_offset<Config::kTileN, Config::kTileM>(row, first);
#pragma unroll
  for (int n = 0; n < Shape::kTiles; ++n) {
    const unsigned column = (to ^ (n % 8 * 16)) + n / 8 * Config::kTileN * 128;
#pragma unroll
    for (int i = 0; i < 2 * Shape::kRowBlocks; ++i) {
      const auto fragment = words[i / 2].operand(n / 2);
#pragma unroll
      for (int plane = 0; plane < Shape::kPlanes; ++plane) {
        store_shared(column + 8 * i * kPitch + plane * Shaped::kBytes,
                     fragment.word[plane][n % 2 * 2 + i % 2]);
      }
    }
  }
}

// sums += words queries: of all queries and the warp's columns, of a tile of kColumns. The words
// are the warp's own, or those that have been exchanged.
template <class Config, class Share, int kColumns, class Accumulators>
__device__ __forceinline__ void add_products(const typename GradientShape<Config>::Operands& kept,
                                             unsigned exchanged, unsigned queries, int columns,
                                             Accumulators& sums) {
  using Shape = GradientShape<Config>;
  using Element = typename Config::Element;
  const int lane = Shape::lane(), key_block = Shape::key_block();
  const auto reader = Share::shared_out(read_rows_first<Config::kTileM, kColumns>(queries, lane),
                                        Shape::width_warp());
  const auto word_reader = read_rows_first<Config::kTileN, Config::kTileM>(exchanged, lane);
#pragma unroll
  for (int j = 0; j < Shape::kSteps; ++j) {
    Fragment<Element> a[Shape::kRowBlocks];
#pragma unroll
    for (int b = 0; b < Shape::kRowBlocks; ++b) {
      if constexpr (Shape::kExchange) {
        load_fragment(a[b], word_reader, key_block + b, j);
      } else {
        a[b] = kept[b].operand(j);
      }
    }
#pragma unroll
    for (int n = 0; n < Share::kBlocks; ++n) {
      if (Shape::kPlanes > 1 && uniform(Share::column(n, Shape::width_warp()) >= columns)) break;
      Fragment<Element> values;
      load_fragment_transposed(values, reader, j, Share::block(n));
#pragma unroll
      for (int b = 0; b < Shape::kRowBlocks; ++b) {
        multiply_add_pair(sums[b][2 * n], sums[b][2 * n + 1], a[b], values);
      }
    }
  }
}

// All keys of a tile: nothing is taken out of a fragment of them.
struct EveryKey {
  template <class Element>
  __device__ __forceinline__ void keep(Fragment<Element>&, int) const {}
};
// The keys first..last of a tile: others count as 0, whatever is there. 0 * NaN is NaN.
struct KeysBetween {
  int first, last;

  // The words of a transposed fragment: word 2i + h has the keys 16 step + 8h + 2t and one more, t
  // = lane % 4.
  template <class Element>
  __device__ __forceinline__ void keep(Fragment<Element>& keys, int step) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = 16 * step + 8 * half + thread_index() % 4 * 2;
      const unsigned kept = (first <= key && key <= last ? 0xffffu : 0u) |
                            (first <= key + 1 && key + 1 <= last ? 0xffff0000u : 0u);
#pragma unroll
      for (int plane = 0; plane < Operand<Element>::kPlanes; ++plane) {
        keys.word[plane][half] &= kept, keys.word[plane][2 + half] &= kept;
      }
    }
  }
};

// dq += ds k of the warp's queries and columns, over the keys of the tile; ds lies transposed.
template <class Config, class Keys = EveryKey>
__device__ __forceinline__ void add_dq(unsigned ds_tile, unsigned keys, int columns,
                                       typename GradientShape<Config>::DqAccumulators& dq,
                                       const Keys& kept = {}) {
  using Shape = GradientShape<Config>;
  using Share = typename Shape::DqShare;
  using Element = typename Config::Element;
  const int lane = Shape::lane(), first = Shape::dq_block();
  const auto key_reader = Share::shared_out(
      read_rows_first<Config::kTileN, Config::kWidth>(keys, lane), Shape::dq_way());
  auto ds = read_columns_first<Config::kTileN, Config::kTileM>(ds_tile, lane);
  // The blocks of a warp lie in one panel: 2^n of them, at a multiple of as many.
  if constexpr (Config::kTileM > 16) {
    ds.panel = (ds.panel + first / 4 * Config::kTileN * 128) ^ (first % 4 * 32);
    ds.half ^= first % 4 * 32;
  }
#pragma unroll
  for (int j = 0; j < Config::kTileN / 16; ++j) {
    Fragment<Element> a[Shape::kDqRowBlocks];
#pragma unroll
    for (int b = 0; b < Shape::kDqRowBlocks; ++b) load_fragment_transposed(a[b], ds, j, b);
#pragma unroll
    for (int n = 0; n < Share::kBlocks; ++n) {
      if (Shape::kPlanes > 1 && uniform(Share::column(n, Shape::dq_way()) >= columns)) break;
      Fragment<Element> values;
      load_fragment_transposed(values, key_reader, j, Share::block(n));
      kept.keep(values, j);
#pragma unroll
      for (int b = 0; b < Shape::kDqRowBlocks; ++b) {
        multiply_add_pair(dq[b][2 * n], dq[b][2 * n + 1], a[b], values);
      }
    }
  }
}

}  // namespace lathe
