// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The caller's mask_mod around its text, as score_mod.cuh does it for score_mod.
#pragma once
#include "attention/snippet_functions.cuh"

namespace lathe {
namespace snippet {
using Captures = ::lathe::Captures<::lathe::Constants>;
}  // namespace snippet
}  // namespace lathe

namespace snippet_mask_mod {
using namespace lathe::snippet;
#include "snippet/mask_mod.cuh"
}  // namespace snippet_mask_mod

namespace lathe {

template <class I>
__device__ auto mask_mod_type(I i) -> decltype(snippet_mask_mod::mask_mod(i, i, i, i));
template <class I, class C>
__device__ auto mask_mod_type(I i, const C& captures)
    -> decltype(snippet_mask_mod::mask_mod(i, i, i, i, captures));
template <class I>
__device__ auto mask_tile_type(I i) -> decltype(snippet_mask_mod::mask_tile(i, i, i, i, i, i));
template <class I, class C>
__device__ auto mask_tile_type(I i, const C& captures)
    -> decltype(snippet_mask_mod::mask_tile(i, i, i, i, i, i, captures));
template <class... Given>
__device__ void mask_mod_type(Given...);
template <class... Given>
__device__ void mask_tile_type(Given...);

struct MaskMod {
  using I = Exactly<int>;
  using C = snippet::Captures;
  static constexpr bool kPlain = Same<decltype(mask_mod_type(I())), bool>::kValue;
  static constexpr bool kCaptures = Same<decltype(mask_mod_type(I(), *(C*)0)), bool>::kValue;
  static constexpr bool kPlainTile = Same<decltype(mask_tile_type(I())), int>::kValue;
  static constexpr bool kCapturesTile = Same<decltype(mask_tile_type(I(), *(C*)0)), int>::kValue;
  static constexpr bool kHasTile = kPlainTile || kCapturesTile;
  static_assert(kPlain || kCaptures,
                "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx), or the same "
                "with a last parameter const Captures& captures");
  static_assert(kHasTile || Same<decltype(mask_tile_type(I())), Absent>::kValue,
                "mask_tile, if at all, as __device__ int mask_tile(int batch, int head, int q0, int "
                "q1, int k0, int k1), or the same with a last parameter const Captures& captures");

  // Whether query q keeps key k.
  template <class Int>
  static __device__ __forceinline__ bool keep(Int batch, Int head, Int q, Int k,
                                              const AttentionCaptures& given) {
    if constexpr (kCaptures) {
      return snippet_mask_mod::mask_mod(batch, head, q, k, C(given));
    } else {
      return snippet_mask_mod::mask_mod(batch, head, q, k);
    }
  }
  // Of the queries q0 to q1 - 1 and the keys k0 to k1 - 1: 0 keeps none, 1 some, 2 all.
  template <class Int>
  static __device__ __forceinline__ int tile(Int batch, Int head, Int q0, Int q1, Int k0, Int k1,
                                             const AttentionCaptures& given) {
    if constexpr (kCapturesTile) {
      return snippet_mask_mod::mask_tile(batch, head, q0, q1, k0, k1, C(given));
    } else {
      return snippet_mask_mod::mask_tile(batch, head, q0, q1, k0, k1);
    }
  }
};

}  // namespace lathe
