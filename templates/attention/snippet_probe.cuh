// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// snippet_probe: each function of one snippet, called once, so that the host can see what it is
// made of. Compiled and read, never launched. Its stores are spelt with the default .weak written
// out, which the compiler never does: every other store is the snippet's.
#pragma once
#include "attention/captures.cuh"
#include "params/attention.h"

namespace lathe {

template <class Config, bool kMaskMod>
struct ProbeOf {
  static __device__ __forceinline__ void run(const SnippetProbeParams& p, float& first,
                                             int& second) {
    first = Config::ScoreMod::apply(p.score, p.batch, p.head, p.q_idx, p.kv_idx, captures_of(p));
    if constexpr (Config::ScoreMod::kHasBwd) {
      second = bit_cast<int>(Config::ScoreMod::backward(first, p.score, p.batch, p.head, p.q_idx,
                                                        p.kv_idx, captures_of(p)));
    }
  }
};
template <class Config>
struct ProbeOf<Config, true> {
  static __device__ __forceinline__ void run(const SnippetProbeParams& p, float& first,
                                             int& second) {
    first = Config::MaskMod::keep(p.batch, p.head, p.q_idx, p.kv_idx, captures_of(p)) ? 1.0f : 0.0f;
    if constexpr (Config::MaskMod::kHasTile) {
      second = Config::MaskMod::tile(p.batch, p.head, p.q_idx, p.q_idx + 1, p.kv_idx, p.kv_idx + 1,
                                     captures_of(p));
    }
  }
};

template <class Config>
__device__ void snippet_probe(const SnippetProbeParams& p) {
  float first = 0.0f;
  int second = 0;
  ProbeOf<Config, HasMaskMod<Config>::kValue>::run(p, first, second);
  asm volatile("st.weak.global.f32 [%0], %1;" ::"l"(p.out), "f"(first) : "memory");
  asm volatile("st.weak.global.b32 [%0 + 4], %1;" ::"l"(p.out), "r"(second) : "memory");
}

}  // namespace lathe
