// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which rows and keys a block of attention works on, and what becomes of a score between the two
// products: softcap, ALiBi and mask.
#pragma once
#include "attention/mask.cuh"
#include "attention/softmax.cuh"
#include "attention/tile.cuh"
#include "common/varlen.cuh"
#include "params/attention.h"

namespace lathe {

// What a block works on.
struct AttentionTile {
  int sequence, head;    // the key head with kPackGqa, otherwise the query head
  int kv_head, group;    // query heads of a key head
  int start_q, start_k;  // of a packed sequence, otherwise 0
  int rows, keys;        // of the sequence
  int written;           // rows of `out` that its tiles must write: padding behind the last one
  int first;             // tile row 0 in the sequence, counted in tile rows
};

template <class Config>
__device__ __forceinline__ AttentionTile attention_tile(const AttentionForwardParams& p) {
  AttentionTile tile;
  tile.group = p.heads / p.kv_heads;
  const int heads = Config::kPackGqa ? p.kv_heads : p.heads;
  const unsigned other = blockIdx.x / p.tiles;
  tile.first = (p.tiles - 1 - static_cast<int>(blockIdx.x % p.tiles)) * Config::kTileM;
  tile.head = static_cast<int>(other % heads);
  tile.sequence = static_cast<int>(other / heads);
  tile.kv_head = Config::kPackGqa ? tile.head : tile.head / tile.group;
  tile.start_q = tile.start_k = 0;
  tile.rows = tile.written = p.seq_q, tile.keys = p.seq_k;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::CuSeqlens;
    const int b = tile.sequence;
    const bool any = b < p.sequences;  // without sequences every row is padding
    tile.start_q = any ? offset_at<Offset>(p.cu_seqlens_q, b, p.seq_q) : 0;
    tile.start_k = any ? offset_at<Offset>(p.cu_seqlens_k, b, p.seq_k) : 0;
    const int end_q = any ? offset_at<Offset>(p.cu_seqlens_q, b + 1, p.seq_q) : 0;
    const int end_k = any ? offset_at<Offset>(p.cu_seqlens_k, b + 1, p.seq_k) : 0;
    tile.rows = maximum(end_q - tile.start_q, 0);
    tile.keys = maximum(end_k - tile.start_k, 0);
    tile.written = b + 1 >= p.sequences ? p.seq_q - tile.start_q : tile.rows;
  }
  return tile;
}

// The rows of a warp: place 16 b + 8 h + lane / 4 is the lane's row of block b, half h. With packed
// heads a lane keeps query and head of row `lane` alone and gives them to who asks: registers are
// what the kernel is short of, and nothing is divided twice.
template <class Config>
struct WarpRows {
  static constexpr int kRows = Config::kTileM / (Config::kThreads / 32);
  static_assert(kRows == 16 || kRows == 32, "a lane for every row");
  int own_query, own_head;

  __device__ __forceinline__ explicit WarpRows(const AttentionTile& tile) {
    if constexpr (Config::kPackGqa) {
      const unsigned thread = thread_index(), group = tile.group;
      const unsigned row = tile.first + thread / 32 * kRows + thread % kRows;
      own_query = row / group;
      own_head = tile.head * group + row % group;
    }
  }
  static __device__ __forceinline__ int place(int block, int half, int thread) {
    return 16 * block + 8 * half + thread % 32 / 4;
  }
  __device__ __forceinline__ int query(const AttentionTile& tile, int place, int thread) const {
    if constexpr (Config::kPackGqa) return __shfl_sync(0xffffffffu, own_query, place);
    return tile.first + thread / 32 * kRows + place;
  }
  __device__ __forceinline__ int head(const AttentionTile& tile, int place) const {
    if constexpr (Config::kPackGqa) return __shfl_sync(0xffffffffu, own_head, place);
    return tile.head;
  }
};

// Scores -> the units of softmax_step, where a weight is 2^(y t).
template <class Config>
struct ScoreUnits {
  float t;
  float tanh_scale;  // of softcap
  float own_slope;   // of ALiBi: of the head, or of the lane's own row as WarpRows has them

  __device__ __forceinline__ ScoreUnits(const AttentionForwardParams& p, const AttentionTile& tile,
                                        const WarpRows<Config>& rows) {
    t = (Config::kSoftcap ? p.softcap : p.softmax_scale) * kLog2E;
    if constexpr (Config::kSoftcap) tanh_scale = 2.0f * kLog2E * (p.softmax_scale / p.softcap);
    if constexpr (Config::kAlibi) {
      const float* slopes =
          static_cast<const float*>(p.alibi_slopes) + tile.sequence * p.alibi_batch_stride;
      const int head = Config::kPackGqa ? rows.own_head : tile.head;
      own_slope = load_element(slopes + head) / (Config::kSoftcap ? p.softcap : p.softmax_scale);
    }
  }
  __device__ __forceinline__ float slope(int place) const {
    return Config::kPackGqa ? __shfl_sync(0xffffffffu, own_slope, place) : own_slope;
  }
};

enum class AttentionMask { none, left, both };

// Softcap, ALiBi and mask of the block of keys that begins at `key`.
template <class Config, AttentionMask kMask, int kRowBlocks, int kTiles>
__device__ __forceinline__ void modify_scores(float (&s)[kRowBlocks][kTiles][4],
                                              const ScoreUnits<Config>& units,
                                              const WarpRows<Config>& rows,
                                              const AttentionTile& tile, const KeyWindow& window,
                                              int key) {
  constexpr bool kLocalMask = Config::kLocal && kMask != AttentionMask::none;
  const int thread = thread_index(), column = thread % 4 * 2;
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = rows.place(b, half, thread);
      const int row = rows.query(tile, place, thread);
      int highest = 0, lowest = 0;
      float distance = 0.0f, slope = 0.0f;
      if constexpr (kMask == AttentionMask::both) {
        highest = (Config::kLocal ? highest_column<Config::kTileN>(window, row, key)
                                  : minimum(window.keys - 1 - key, Config::kTileN)) -
                  column;
      }
      if constexpr (kLocalMask) {
        lowest = lowest_column<Config::kTileN>(window, row, key) - column;
      }
      if constexpr (Config::kAlibi) {
        distance = static_cast<float>(row + (tile.keys - tile.rows) - key - column);
        slope = units.slope(place);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float y = s[b][n][2 * half + c];
          if constexpr (Config::kSoftcap) y = tanh_scaled(y, units.tanh_scale);
          if constexpr (Config::kAlibi) {
            y = __fmaf_rn(-slope, fabsf(distance - static_cast<float>(8 * n + c)), y);
          }
          if constexpr (kMask == AttentionMask::both) {
            y = 8 * n + c <= highest ? y : minus_infinity();
          }
          if constexpr (kLocalMask) {
            y = 8 * n + c >= lowest ? y : minus_infinity();
          }
          s[b][n][2 * half + c] = y;
        }
      }
    }
  }
}

}  // namespace lathe
