// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The caller's mask_mod around its text, as score_mod.cuh does it for score_mod.
#pragma once
#include "attention/mods/mod_functions.cuh"

namespace caller_mask_mod {
using namespace lathe::mod;
#include "caller/mask_mod.cuh"
}  // namespace caller_mask_mod

namespace lathe {

template <class... Given>
__device__ auto mask_mod_of(int, Given... given) -> decltype(caller_mask_mod::mask_mod(given...));
template <class... Given>
__device__ void mask_mod_of(long, Given...);
template <class... Given>
__device__ auto mask_tile_of(int, Given... given) -> decltype(caller_mask_mod::mask_tile(given...));
template <class... Given>
__device__ void mask_tile_of(long, Given...);

struct MaskMod {
  using I = mod::Exactly<int>;
  using C = mod::Captures;
  using Plain = decltype(mask_mod_of(0, I(), I(), I(), I()));
  using Full = decltype(mask_mod_of(0, I(), I(), I(), I(), *(C*)0));
  using PlainTile = decltype(mask_tile_of(0, I(), I(), I(), I(), I(), I()));
  using FullTile = decltype(mask_tile_of(0, I(), I(), I(), I(), I(), I(), *(C*)0));
  static constexpr bool kPlain = Same<Plain, bool>::kValue, kCaptures = Same<Full, bool>::kValue;
  static constexpr bool kPlainTile = Same<PlainTile, int>::kValue;
  static constexpr bool kCapturesTile = Same<FullTile, int>::kValue;
  static constexpr bool kHasTile = kPlainTile || kCapturesTile;
  static_assert(kPlain || kCaptures,
                "must define __device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx), "
                "or the same "
                "with a last parameter const Captures& captures");
  static_assert(kHasTile || Same<PlainTile, mod::Absent>::kValue,
                "must define mask_tile, if at all, as __device__ int mask_tile(int batch, int "
                "head, int q0, int "
                "q1, int k0, int k1), or the same with a last parameter const Captures& captures");

  // Returns whether query q keeps key k.
  static __device__ __forceinline__ bool keep(int batch, int head, int q, int k,
                                              const AttentionCaptures& given) {
    return call<kCaptures>(captures(given), batch, given.first_head + head, q, k);
  }
  // Returns how many pairs of the queries q0 to q1 - 1 and the keys k0 to k1 - 1 are kept: 0 none,
  // 1 some, 2 all.
  static __device__ __forceinline__ int tile(int batch, int head, int q0, int q1, int k0, int k1,
                                             const AttentionCaptures& given) {
    return call_tile<kCapturesTile, kPlainTile>(captures(given), batch, given.first_head + head, q0,
                                                q1, k0, k1);
  }

 private:
  static __device__ __forceinline__ C captures(const AttentionCaptures& given) {
    return C(given.array, given.count, given.scalar);
  }
  template <bool kWithCaptures, class... Given>
  static __device__ __forceinline__ bool call(const C& captures, Given... given) {
    if constexpr (kWithCaptures) {
      return caller_mask_mod::mask_mod(given..., captures);
    } else {
      return caller_mask_mod::mask_mod(given...);
    }
  }
  template <bool kWithCaptures, bool kWithout, class... Given>
  static __device__ __forceinline__ int call_tile(const C& captures, Given... given) {
    if constexpr (kWithCaptures) {
      return caller_mask_mod::mask_tile(given..., captures);
    } else if constexpr (kWithout) {
      return caller_mask_mod::mask_tile(given...);
    } else {
      return 1;  // never asked
    }
  }
};

}  // namespace lathe
