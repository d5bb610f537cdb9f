// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The backward of one score, between the products: from s = q k and dp = dout v, with lse2 and
// delta of params/attention_backward.h,
//
//   x = options(softmax_scale s), factor = their derivative: score_options.cuh
//   p = 2^(score_mod(x) log2 e - lse2), 0 where the pair is not kept
//   weight = score_mod_bwd(p, x) factor,  ds = weight (dp - delta)
//
// A gradient is linear in the one it comes from, so score_mod_bwd may be given p in the place of
// p (dp - delta): then x need not be kept across the product between.
//
// Accumulators are those of the transposed scores: a lane's rows are keys, its columns queries.
#pragma once
#include "attention/mods/captures.cuh"
#include "attention/query_blocks.cuh"
#include "attention/score_options.cuh"
#include "common/shared_memory.cuh"
#include "params/attention_backward.h"

namespace lathe {

// As ScoreUnits of the forward: what modifies scores does so in natural units; where nothing does,
// a score stays as it came and t carries the scale.
template <class Config>
struct GradientUnits {
  static constexpr bool kScoreMod = HasScoreMod<Config>::kValue;
  static constexpr bool kMods = kScoreMod || HasMaskMod<Config>::kValue;
  static constexpr bool kModified = kScoresModified<Config>;
  float scale, t;
  float tanh_scale, softcap;
  const AttentionCaptures captures;

  __device__ __forceinline__ explicit GradientUnits(const AttentionBackwardParams& p)
      : scale(p.softmax_scale),
        t(kModified ? kLog2E : p.softmax_scale * kLog2E),
        captures(captures_of(p)) {
    if constexpr (Config::kSoftcap) {
      softcap = p.softcap;
      tanh_scale = tanh_scale_of(p.softcap);
    }
  }
};

// A ScoreTile says where the accumulators of a warp lie in the sequence.
struct ScoreTile {
  int key;    // of the lane's first row; others 8 and 16 further on
  int query;  // of column 0, and of the lane's first column in it: + 2 (lane % 4)
  int lane_query;
  int offset;  // keys - rows
  float slope;
  int sequence, head;  // for mods
};

// The score that mods are given, and what the options' derivatives multiply its weight by.
template <class Config>
__device__ __forceinline__ float biased_weight_score(float x, const GradientUnits<Config>& units,
                                                     float slope, float distance, float& factor) {
  x = scaled_score<Config>(x, units, factor);
  return option_score<Config>(x, slope, distance, factor);
}

// Mods are asked about rows and keys of the sequence only, as in the forward.
struct LastPositions {
  int rows, keys;
  __device__ __forceinline__ int query_of(int row) const { return minimum(row, rows - 1); }
  __device__ __forceinline__ int key_of(int key) const { return minimum(key, keys - 1); }
};

// In a block that no mask cuts there is nothing else.
struct UnclampedPositions {
  __device__ __forceinline__ int query_of(int row) const { return row; }
  __device__ __forceinline__ int key_of(int key) const { return key; }
};

// lse2 of the lane's columns: values that have been read ahead, or where the first two lie.
template <int kTiles>
struct RowValues {
  FloatPair pair[kTiles];

  __device__ __forceinline__ explicit RowValues(unsigned at) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) pair[n] = load_shared_pair(at + 32 * n);
  }
};
template <int kTiles>
__device__ __forceinline__ FloatPair row_values(const RowValues<kTiles>& values, int n) {
  return values.pair[n];
}
__device__ __forceinline__ FloatPair row_values(unsigned at, int n) {
  return load_shared_pair(at + 32 * n);
}

// s becomes weight, and `probability` p in pairs of Element as operand A of the next product.
template <class Config, bool kMasked, class Window, int kRowBlocks, int kTiles, class Lse,
          class Positions>
__device__ __forceinline__ void score_weights(
    float (&s)[kRowBlocks][kTiles][4],
    Accumulated<typename Config::Element, kTiles> (&probability)[kRowBlocks],
    const GradientUnits<Config>& units, const ScoreTile& tile, const Window& window, int rows,
    const Lse& lse2, const Positions& positions) {
  using Element = typename Config::Element;
  using Units = GradientUnits<Config>;
  QueryColumns kept[kRowBlocks][2];
  if constexpr (kMasked) {
#pragma unroll
    for (int i = 0; i < 2 * kRowBlocks; ++i) {
      QueryColumns& columns = kept[i / 2][i % 2];
      columns =
          query_columns<Config::kLocal, Config::kTileM>(window, rows, tile.key + 8 * i, tile.query);
      columns.lowest -= tile.lane_query, columns.highest -= tile.lane_query;
    }
  }
  // ALiBi: columns ahead of the diagonal, of the lane's first key and query.
  const float ahead = static_cast<float>(tile.query + tile.lane_query + tile.offset - tile.key);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const FloatPair row_lse = row_values(lse2, n);
#pragma unroll
    for (int i = 0; i < 2 * kRowBlocks; ++i) {
      const int b = i / 2, half = i % 2;
      float p[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float factor = 1.0f;
        const float biased =
            biased_weight_score(s[b][n][2 * half + c], units, tile.slope,
                                ahead + static_cast<float>(8 * n + c - 8 * i), factor);
        float x = biased;
        const int query = positions.query_of(tile.query + tile.lane_query + 8 * n + c);
        const int key = positions.key_of(tile.key + 8 * i);
        if constexpr (Units::kScoreMod) {
          x = Config::ScoreMod::apply(x, tile.sequence, tile.head, query, key, units.captures);
        }
        p[c] = ex2_flushed(__fmaf_rn(x, units.t, -(c == 0 ? row_lse.first : row_lse.second)));
        if constexpr (kMasked) {
          p[c] = 8 * n + c <= kept[b][half].highest ? p[c] : 0.0f;
          if constexpr (Config::kLocal) p[c] = 8 * n + c >= kept[b][half].lowest ? p[c] : 0.0f;
          if constexpr (HasMaskMod<Config>::kValue) {
            p[c] = Config::MaskMod::keep(tile.sequence, tile.head, query, key, units.captures)
                       ? p[c]
                       : 0.0f;
          }
        }
        float weight = p[c];
        if constexpr (Units::kScoreMod) {
          weight = Config::ScoreMod::backward(weight, biased, tile.sequence, tile.head, query, key,
                                              units.captures);
          if constexpr (kMasked) weight = p[c] == 0.0f ? 0.0f : weight;
        }
        // Masked, p is 0 whatever the score was: so must be what it is multiplied by.
        if constexpr (kScoresBent<Config> && kMasked) factor = p[c] == 0.0f ? 0.0f : factor;
        if constexpr (kScoresBent<Config>) weight = __fmul_rn(weight, factor);
        s[b][n][2 * half + c] = weight;
      }
      probability[b].put(n, half, p[0], p[1]);
    }
  }
}

template <class Config, bool kMasked, class Window, int kRowBlocks, int kTiles, class Lse>
__device__ __forceinline__ void score_weights(
    float (&s)[kRowBlocks][kTiles][4],
    Accumulated<typename Config::Element, kTiles> (&probability)[kRowBlocks],
    const GradientUnits<Config>& units, const ScoreTile& tile, const Window& window, int rows,
    const Lse& lse2) {
  score_weights<Config, kMasked>(s, probability, units, tile, window, rows, lse2,
                                 LastPositions{rows, window.keys});
}

// weight, dp -> ds in pairs of Element. In a block that a mask cuts, whatever dp is there, a pair
// of no weight has no gradient.
template <class Config, bool kMasked, int kRowBlocks, int kTiles>
__device__ __forceinline__ void score_gradients(
    const float (&weight)[kRowBlocks][kTiles][4], const float (&dp)[kRowBlocks][kTiles][4],
    Accumulated<typename Config::Element, kTiles> (&ds)[kRowBlocks], unsigned delta) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const FloatPair row_delta = load_shared_pair(delta + 32 * n);
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float gradient[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float w = weight[b][n][2 * half + c];
          const float delta_c = c == 0 ? row_delta.first : row_delta.second;
          gradient[c] = __fmul_rn(w, __fsub_rn(dp[b][n][2 * half + c], delta_c));
          if constexpr (kMasked) gradient[c] = w == 0.0f ? 0.0f : gradient[c];
        }
        ds[b].put(n, half, gradient[0], gradient[1]);
      }
    }
  }
}

}  // namespace lathe
