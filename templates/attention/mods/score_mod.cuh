// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The caller's score_mod around its text, which is no file of ours but comes with the spec: its
// namespace, what it must define, and how kernels call it. Included by emitted units only, behind
// the constants.
#pragma once
#include "attention/mods/mod_functions.cuh"

namespace caller_score_mod {
using namespace lathe::mod;
#include "caller/score_mod.cuh"
}  // namespace caller_score_mod

namespace lathe {

// The type that a call gives: the function's type, Absent without the function, void if none of it
// fits. 0 prefers the first of two. The arguments are packs because one function's arity alone is
// an error at once, not a call that does not fit.
template <class... Given>
__device__ auto score_mod_of(int, Given... given)
    -> decltype(caller_score_mod::score_mod(given...));
template <class... Given>
__device__ void score_mod_of(long, Given...);
template <class... Given>
__device__ auto score_mod_bwd_of(int, Given... given)
    -> decltype(caller_score_mod::score_mod_bwd(given...));
template <class... Given>
__device__ void score_mod_bwd_of(long, Given...);

struct ScoreMod {
  using F = mod::Exactly<float>;
  using I = mod::Exactly<int>;
  using C = mod::Captures;
  using Plain = decltype(score_mod_of(0, F(), I(), I(), I(), I()));
  using Full = decltype(score_mod_of(0, F(), I(), I(), I(), I(), *(C*)0));
  using PlainBwd = decltype(score_mod_bwd_of(0, F(), F(), I(), I(), I(), I()));
  using FullBwd = decltype(score_mod_bwd_of(0, F(), F(), I(), I(), I(), I(), *(C*)0));
  static constexpr bool kPlain = Same<Plain, float>::kValue, kCaptures = Same<Full, float>::kValue;
  static constexpr bool kPlainBwd = Same<PlainBwd, float>::kValue;
  static constexpr bool kCapturesBwd = Same<FullBwd, float>::kValue;
  static constexpr bool kHasBwd = kPlainBwd || kCapturesBwd;
  static_assert(
      kPlain || kCaptures,
      "must define __device__ float score_mod(float score, int batch, int head, int q_idx, int "
      "kv_idx), or the same with a last parameter const Captures& captures");
  static_assert(
      kHasBwd || Same<PlainBwd, mod::Absent>::kValue,
      "must define score_mod_bwd, if at all, as __device__ float score_mod_bwd(float dscore, float "
      "score, int batch, int head, int q_idx, int kv_idx), or the same with a last "
      "parameter const Captures& captures");

  // x4 of x3, the score after softcap and ALiBi.
  static __device__ __forceinline__ float apply(float score, int batch, int head, int q, int k,
                                                const AttentionCaptures& given) {
    return call<kCaptures>(captures(given), score, batch, given.first_head + head, q, k);
  }
  // The gradient of x3 from that of x4.
  static __device__ __forceinline__ float backward(float dscore, float score, int batch, int head,
                                                   int q, int k, const AttentionCaptures& given) {
    return call_bwd<kCapturesBwd, kPlainBwd>(captures(given), dscore, score, batch,
                                             given.first_head + head, q, k);
  }

 private:
  static __device__ __forceinline__ C captures(const AttentionCaptures& given) {
    return C(given.array, given.count, given.scalar);
  }
  template <bool kWithCaptures, class... Given>
  static __device__ __forceinline__ float call(const C& captures, Given... given) {
    if constexpr (kWithCaptures) {
      return caller_score_mod::score_mod(given..., captures);
    } else {
      return caller_score_mod::score_mod(given...);
    }
  }
  template <bool kWithCaptures, bool kWithout, class... Given>
  static __device__ __forceinline__ float call_bwd(const C& captures, Given... given) {
    if constexpr (kWithCaptures) {
      return caller_score_mod::score_mod_bwd(given..., captures);
    } else if constexpr (kWithout) {
      return caller_score_mod::score_mod_bwd(given...);
    } else {
      return 0.0f;  // never asked
    }
  }
};

}  // namespace lathe
