// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// score_weights (score_gradients.cuh) where every row and key has a position of its own.
#pragma once
#include "attention/backward/score_gradients.cuh"
#include "attention/positions.cuh"

namespace lathe {

template <class Config, bool kMasked, int kRowBlocks, int kTiles>
__device__ __forceinline__ void score_weights_by_position(
    float (&s)[kRowBlocks][kTiles][4],
    Accumulated<typename Config::Element, kTiles> (&probability)[kRowBlocks],
    const GradientUnits<Config>& units, const ScoreTile& tile,
    const AttentionBlockBackwardParams& p, unsigned lse2) {
  constexpr bool kScoreMod = HasScoreMod<Config>::kValue;
  constexpr bool kMaskMod = kMasked && HasMaskMod<Config>::kValue;
  constexpr bool kNear = Config::kAlibi || (kMasked && Config::kLocal) || kScoreMod || kMaskMod;
  constexpr bool kLast = kHasMods<Config>;  // which rows and keys mods are asked about
  const int rows = p.backward.seq_q, keys = p.backward.seq_k;
  const int low = lowest_difference(p.backward.window_left);
  const int high = highest_difference(p.backward.window_right);
  int k[2 * kRowBlocks] = {};
#pragma unroll
  for (int i = 0; kNear && i < 2 * kRowBlocks; ++i) {
    const int key = kLast ? minimum(tile.key + 8 * i, keys - 1) : tile.key + 8 * i;
    if (kLast || key < keys) k[i] = load_element(static_cast<const int*>(p.k_positions) + key);
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const FloatPair row_lse = load_shared_pair(lse2 + 32 * n);
    const int row = tile.query + tile.lane_query + 8 * n;
    int q[2] = {};
#pragma unroll
    for (int c = 0; kNear && c < 2; ++c) {
      const int clamped = kLast ? minimum(row + c, rows - 1) : row + c;
      if (kLast || clamped < rows)
        q[c] = load_element(static_cast<const int*>(p.q_positions) + clamped);
    }
#pragma unroll
    for (int i = 0; i < 2 * kRowBlocks; ++i) {
      const int b = i / 2, half = i % 2;
      float weight[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int ahead = k[i] - q[c];
        float factor = 1.0f;
        const float biased = biased_weight_score(s[b][n][2 * half + c], units, tile.slope,
                                                 static_cast<float>(ahead), factor);
        float x = biased;
        if constexpr (kScoreMod) {
          x = Config::ScoreMod::apply(x, tile.sequence, tile.head, q[c], k[i], units.captures);
        }
        weight[c] = ex2_flushed(__fmaf_rn(x, units.t, -(c == 0 ? row_lse.first : row_lse.second)));
        if constexpr (kMasked) {
          const bool near = !Config::kLocal || (low <= ahead && ahead <= high);
          bool kept = row + c < rows && tile.key + 8 * i < keys && near;
          if constexpr (kMaskMod) {
            kept =
                kept && Config::MaskMod::keep(tile.sequence, tile.head, q[c], k[i], units.captures);
          }
          weight[c] = kept ? weight[c] : 0.0f;
          if constexpr (kScoresBent<Config>) factor = kept ? factor : 0.0f;
        }
        float scored = weight[c];
        if constexpr (kScoreMod) {
          scored = Config::ScoreMod::backward(scored, biased, tile.sequence, tile.head, q[c], k[i],
                                              units.captures);
          if constexpr (kMasked) scored = weight[c] == 0.0f ? 0.0f : scored;
        }
        s[b][n][2 * half + c] = kScoresBent<Config> ? __fmul_rn(scored, factor) : scored;
      }
      probability[b].put(n, half, weight[0], weight[1]);
    }
  }
}

}  // namespace lathe
