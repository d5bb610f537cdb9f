// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions apply options to a score s = q k, before mods and masks, in every kernel and both
// ways:
//
//   x = softmax_scale s;  y = tanh(x / softcap), x = softcap y;  x -= slope |distance|
#pragma once
#include "attention/mods/mods.cuh"
#include "attention/softmax.cuh"

namespace lathe {

// Whether scores leave the units in which they came, and whether the derivative of x by
// softmax_scale s is not 1 everywhere.
template <class Config>
constexpr bool kScoresModified = Config::kSoftcap || Config::kAlibi || HasScoreMod<Config>::kValue;
template <class Config>
constexpr bool kScoresBent = Config::kSoftcap;

// The options in two halves: by the score alone, and by where its pair lies. Both multiply `factor`
// by their derivatives. Units have scale, softcap and tanh_scale.
template <class Config, class Units>
__device__ __forceinline__ float scaled_score(float x, const Units& units, float& factor) {
  if constexpr (kScoresModified<Config>) x = __fmul_rn(x, units.scale);
  if constexpr (Config::kSoftcap) {
    const float y = tanh_of<typename Config::Element>(x, units.softcap, units.tanh_scale);
    x = __fmul_rn(units.softcap, y);
    factor = __fmaf_rn(-y, y, 1.0f);
  }
  return x;
}
template <class Config>
__device__ __forceinline__ float option_score(float x, float slope, float distance, float& factor) {
  if constexpr (Config::kAlibi) x = biased_score(x, slope, distance);
  return x;
}

}  // namespace lathe
