// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The caller's score_mod around its text, which is no file of ours but comes with the spec: its
// namespace, what it must define, and how kernels call it. Included by emitted units only, behind
// the constants.
#pragma once
#include "attention/snippet_functions.cuh"

namespace lathe {
namespace snippet {
using Captures = ::lathe::Captures<::lathe::Constants>;
}  // namespace snippet
}  // namespace lathe

namespace snippet_score_mod {
using namespace lathe::snippet;
#include "snippet/score_mod.cuh"
}  // namespace snippet_score_mod

namespace lathe {

// Each function, called with and without the captures.
template <class F, class I>
__device__ auto score_mod_type(F score, I i) -> decltype(snippet_score_mod::score_mod(score, i, i, i, i));
template <class F, class I, class C>
__device__ auto score_mod_type(F score, I i, const C& captures)
    -> decltype(snippet_score_mod::score_mod(score, i, i, i, i, captures));
template <class F, class I>
__device__ auto score_mod_bwd_type(F score, I i)
    -> decltype(snippet_score_mod::score_mod_bwd(score, score, i, i, i, i));
template <class F, class I, class C>
__device__ auto score_mod_bwd_type(F score, I i, const C& captures)
    -> decltype(snippet_score_mod::score_mod_bwd(score, score, i, i, i, i, captures));
template <class... Given>
__device__ void score_mod_type(Given...);
template <class... Given>
__device__ void score_mod_bwd_type(Given...);

struct ScoreMod {
  using F = Exactly<float>;
  using I = Exactly<int>;
  using C = snippet::Captures;
  static constexpr bool kPlain = Same<decltype(score_mod_type(F(), I())), float>::kValue;
  static constexpr bool kCaptures =
      Same<decltype(score_mod_type(F(), I(), *(C*)0)), float>::kValue;
  static constexpr bool kPlainBwd = Same<decltype(score_mod_bwd_type(F(), I())), float>::kValue;
  static constexpr bool kCapturesBwd =
      Same<decltype(score_mod_bwd_type(F(), I(), *(C*)0)), float>::kValue;
  static constexpr bool kHasBwd = kPlainBwd || kCapturesBwd;
  static_assert(kPlain || kCaptures,
                "__device__ float score_mod(float score, int batch, int head, int q_idx, int "
                "kv_idx), or the same with a last parameter const Captures& captures");
  static_assert(kHasBwd || Same<decltype(score_mod_bwd_type(F(), I())), Absent>::kValue,
                "score_mod_bwd, if at all, as __device__ float score_mod_bwd(float dscore, float "
                "score, int batch, int head, int q_idx, int kv_idx), or the same with a last "
                "parameter const Captures& captures");

  // x4 of x3, the score after softcap and ALiBi.
  template <class Float, class Int>
  static __device__ __forceinline__ float apply(Float score, Int batch, Int head, Int q, Int k,
                                                const AttentionCaptures& given) {
    if constexpr (kCaptures) {
      return snippet_score_mod::score_mod(score, batch, head, q, k, C(given));
    } else {
      return snippet_score_mod::score_mod(score, batch, head, q, k);
    }
  }
  // The gradient of x3 from that of x4.
  template <class Float, class Int>
  static __device__ __forceinline__ float backward(Float dscore, Float score, Int batch, Int head,
                                                   Int q, Int k, const AttentionCaptures& given) {
    if constexpr (kCapturesBwd) {
      return snippet_score_mod::score_mod_bwd(dscore, score, batch, head, q, k, C(given));
    } else {
      return snippet_score_mod::score_mod_bwd(dscore, score, batch, head, q, k);
    }
  }
};

}  // namespace lathe
