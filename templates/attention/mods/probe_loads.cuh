// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This stands for capture_loads.cuh where a mod is compiled to be looked at: an element is a
// value from nowhere, of which the compiler knows nothing, not even that it is no NaN or the same
// as before. Every load that is left is the mod's own.
#pragma once
#include "attention/mods/captures.cuh"

namespace lathe {

__device__ __forceinline__ int any_value(int given) {
  int out;
  asm volatile("mov.b32 %0, %1;" : "=r"(out) : "r"(given));
  return out;
}
__device__ __forceinline__ long long any_value(long long given) {
  long long out;
  asm volatile("mov.b64 %0, %1;" : "=l"(out) : "l"(given));
  return out;
}
__device__ __forceinline__ float any_value(float given) {
  float out;
  asm volatile("mov.b32 %0, %1;" : "=f"(out) : "f"(given));
  return out;
}

struct CaptureLoads {
  template <class Element, class Value>
  static __device__ __forceinline__ Value load(const void*, int, long long i) {
    return any_value(static_cast<Value>(i));
  }
};

}  // namespace lathe
