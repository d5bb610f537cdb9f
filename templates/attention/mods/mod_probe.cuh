// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// mod_probe: each function of one mod, called once, so that the host can see what it is
// made of. Compiled and read, never launched. Of the arguments the compiler knows nothing, and of
// two calls not that they have any in common. The stores of the results are marked: every other
// store is the mod's.
#pragma once
#include "attention/mods/captures.cuh"
#include "attention/mods/probe_loads.cuh"
#include "params/attention.h"

namespace lathe {

template <class Config, bool kMaskMod>
struct ProbeOf {
  static __device__ __forceinline__ void run(const ModProbeParams& p, float& first, int& second) {
    using Mod = typename Config::ScoreMod;
    first = Mod::apply(any_value(p.score), any_value(p.batch), any_value(p.head),
                       any_value(p.q_idx), any_value(p.kv_idx), captures_of(p));
    if constexpr (Mod::kHasBwd) {
      second = bit_cast<int>(Mod::backward(
          any_value(p.score), any_value(p.score), any_value(p.batch), any_value(p.head),
          any_value(p.q_idx), any_value(p.kv_idx), captures_of(p)));
    }
  }
};
template <class Config>
struct ProbeOf<Config, true> {
  static __device__ __forceinline__ void run(const ModProbeParams& p, float& first, int& second) {
    using Mod = typename Config::MaskMod;
    first = Mod::keep(any_value(p.batch), any_value(p.head), any_value(p.q_idx),
                      any_value(p.kv_idx), captures_of(p))
                ? 1.0f
                : 0.0f;
    if constexpr (Mod::kHasTile) {
      second =
          Mod::tile(any_value(p.batch), any_value(p.head), any_value(p.q_idx), any_value(p.q_idx),
                    any_value(p.kv_idx), any_value(p.kv_idx), captures_of(p));
    }
  }
};

template <class Config>
__device__ void mod_probe(const ModProbeParams& p) {
  float first = 0.0f;
  int second = 0;
  ProbeOf<Config, Config::kMasks>::run(p, first, second);
  asm volatile("/*lathe*/ st.weak.global.f32 [%0], %1;" ::"l"(p.out), "f"(first) : "memory");
  asm volatile("/*lathe*/ st.weak.global.b32 [%0 + 4], %1;" ::"l"(p.out), "r"(second) : "memory");
}

}  // namespace lathe
