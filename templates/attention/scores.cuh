// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A score goes through these steps between the two products: options (score_options.cuh), score_mod
// and masks.
#pragma once
#include "attention/mods/captures.cuh"
#include "attention/query_tile.cuh"
#include "attention/score_options.cuh"
#include "attention/visits.cuh"

namespace lathe {

// Scores -> the units of softmax_step, where a weight is 2^(y t). What modifies scores does so in
// natural units, y = softmax_scale s and t = log2 e, whatever else modifies them; where nothing
// does, y is the raw score and the scale is in t.
template <class Config>
struct ScoreUnits {
  static constexpr bool kModified = kScoresModified<Config>;
  float t;
  float scale, softcap, tanh_scale;
  float lane_slope;  // of ALiBi: of the head, or of the lane's own row as WarpRows has them
  const AttentionCaptures captures;  // of mods

  template <class Rows>
  __device__ __forceinline__ ScoreUnits(const AttentionForwardParams& p, const QueryTile& tile,
                                        const Rows& rows)
      : captures(captures_of(p)) {
    t = kModified ? kLog2E : p.softmax_scale * kLog2E;
    if constexpr (kModified) scale = p.softmax_scale;
    if constexpr (Config::kSoftcap) {
      softcap = p.softcap;
      tanh_scale = tanh_scale_of(p.softcap);
    }
    if constexpr (Config::kAlibi) {
      const float* slopes =
          static_cast<const float*>(p.alibi_slopes) + tile.sequence * p.alibi_batch_stride;
      lane_slope = load_element(slopes + (Config::kPackGqa ? rows.lane_head : tile.head));
    }
  }
  __device__ __forceinline__ float slope(int warp_row) const {
    return Config::kPackGqa ? __shfl_sync(0xffffffffu, lane_slope, warp_row) : lane_slope;
  }
};

// Mods are asked about rows and keys of the sequence only: outside, about its last ones, and
// the answer goes to no result.
struct SequencePositions {
  const QueryTile& tile;
  __device__ __forceinline__ int query_of(int row) const { return minimum(row, tile.rows - 1); }
  __device__ __forceinline__ int key_of(int key) const { return minimum(key, tile.keys - 1); }
};

// How far a row's token is ahead of a key, and how many positions a key is behind the one before
// it. Positions of another kind have functions of their own.
template <class Positions>
__device__ __forceinline__ int distance_of(const Positions&, const QueryTile& tile, int row,
                                           int key) {
  return row + (tile.keys - tile.rows) - key;
}
template <class Positions>
__device__ __forceinline__ int key_step(const Positions&) {
  return 1;
}

// All of it for the block of keys that begins at `key`. Rows: WarpRows or the like. A window is a
// sequence's, or that of one visit, and so are the positions that mods are asked about.
template <class Config, AttentionMask kMask, class Window, int kRowBlocks, int kTiles, class Rows,
          class Positions>
__device__ __forceinline__ void modify_scores(float (&s)[kRowBlocks][kTiles][4],
                                              const ScoreUnits<Config>& units, const Rows& rows,
                                              const QueryTile& tile, const Window& window, int key,
                                              const Positions& positions) {
  constexpr bool kLocalMask = Config::kLocal && kMask != AttentionMask::none;
  constexpr bool kScoreMod = HasScoreMod<Config>::kValue;
  constexpr bool kMaskMod = HasMaskMod<Config>::kValue && kMask == AttentionMask::both;
  const int thread = thread_index(), column = thread % 4 * 2;
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int warp_row = rows.warp_row(b, half, thread);
      const int row = rows.query(tile, warp_row, thread);
      int highest = 0, lowest = 0;
      float distance = 0.0f, slope = 0.0f;
      const int query = positions.query_of(row), head = rows.head(tile, warp_row);
      if constexpr (kMask == AttentionMask::both) {
        highest = (Config::kLocal ? highest_column<Config::kTileN>(window, row, key)
                                  : minimum(window.keys - 1 - key, Config::kTileN)) -
                  column;
      }
      if constexpr (kLocalMask) {
        lowest = lowest_column<Config::kTileN>(window, row, key) - column;
      }
      if constexpr (Config::kAlibi) {
        distance = static_cast<float>(distance_of(positions, tile, row, key + column));
        slope = units.slope(warp_row);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float factor = 1.0f;  // of gradients
          float y = scaled_score<Config>(s[b][n][2 * half + c], units, factor);
          const int at = positions.key_of(key + column + 8 * n + c);  // for mods
          y = option_score<Config>(
              y, slope, distance - static_cast<float>(key_step(positions) * (8 * n + c)), factor);
          if constexpr (kScoreMod) {
            y = Config::ScoreMod::apply(y, tile.sequence, head, query, at, units.captures);
          }
          if constexpr (kMaskMod) {
            y = Config::MaskMod::keep(tile.sequence, head, query, at, units.captures)
                    ? y
                    : minus_infinity();
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
template <class Config, AttentionMask kMask, class Window, int kRowBlocks, int kTiles, class Rows>
__device__ __forceinline__ void modify_scores(float (&s)[kRowBlocks][kTiles][4],
                                              const ScoreUnits<Config>& units, const Rows& rows,
                                              const QueryTile& tile, const Window& window,
                                              int key) {
  modify_scores<Config, kMask>(s, units, rows, tile, window, key, SequencePositions{tile});
}

}  // namespace lathe
