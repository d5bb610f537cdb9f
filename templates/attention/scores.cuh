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

// The tile rows of a lane: block b, half h is row 16 b + 8 h + lane / 4 of its warp.
template <class Config>
struct LaneRows {
  static constexpr int kRowBlocks = Config::kTileM / (Config::kThreads / 2);
  int query[kRowBlocks][2], head[kRowBlocks][2];

  __device__ __forceinline__ LaneRows(const AttentionTile& tile, int thread) {
    const int warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = tile.first + (warp * kRowBlocks + b) * 16 + half * 8 + lane / 4;
        query[b][half] = Config::kPackGqa ? row / tile.group : row;
        head[b][half] = Config::kPackGqa ? tile.head * tile.group + row % tile.group : tile.head;
      }
    }
  }
};

// Scores -> the units of softmax_step, where a weight is 2^(y t).
template <class Config>
struct ScoreUnits {
  static constexpr int kRowBlocks = LaneRows<Config>::kRowBlocks;
  float t;
  float tanh_scale;            // of softcap
  float slope[kRowBlocks][2];  // of ALiBi, over t

  __device__ __forceinline__ ScoreUnits(const AttentionForwardParams& p, const AttentionTile& tile,
                                        const LaneRows<Config>& rows) {
    t = (Config::kSoftcap ? p.softcap : p.softmax_scale) * kLog2E;
    tanh_scale = Config::kSoftcap ? 2.0f * kLog2E * (p.softmax_scale / p.softcap) : 0.0f;
    if constexpr (Config::kAlibi) {
      const float* slopes =
          static_cast<const float*>(p.alibi_slopes) + tile.sequence * p.alibi_batch_stride;
      const float unit = Config::kSoftcap ? p.softcap : p.softmax_scale;
      const float shared_slope = load_element(slopes + rows.head[0][0]) / unit;
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          slope[b][half] =
              Config::kPackGqa ? load_element(slopes + rows.head[b][half]) / unit : shared_slope;
        }
      }
    }
  }
};

enum class AttentionMask { none, left, both };

// Softcap, ALiBi and mask of the block of keys that begins at `key`.
template <class Config, AttentionMask kMask, int kRowBlocks, int kTiles>
__device__ __forceinline__ void modify_scores(float (&s)[kRowBlocks][kTiles][4],
                                              const ScoreUnits<Config>& units,
                                              const AttentionTile& tile, const KeyWindow& window,
                                              int key) {
  constexpr bool kLocalMask = Config::kLocal && kMask != AttentionMask::none;
  const int thread = thread_index(), column = thread % 4 * 2;
  const LaneRows<Config> rows(tile, thread);
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = rows.query[b][half];
      int highest = 0, lowest = 0;
      float distance = 0.0f;
      if constexpr (kMask == AttentionMask::both) {
        highest = (Config::kLocal ? highest_column<Config::kTileN>(window, row, key)
                                  : minimum(window.keys - 1 - key, Config::kTileN)) -
                  column;
      }
      if constexpr (kLocalMask) {
        lowest = lowest_column<Config::kTileN>(window, row, key) - column;
      }
      if constexpr (Config::kAlibi)
        distance = static_cast<float>(row + (tile.keys - tile.rows) - key - column);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float y = s[b][n][2 * half + c];
          if constexpr (Config::kSoftcap) y = tanh_scaled(y, units.tanh_scale);
          if constexpr (Config::kAlibi) {
            y = __fmaf_rn(-units.slope[b][half], fabsf(distance - static_cast<float>(8 * n + c)),
                          y);
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
