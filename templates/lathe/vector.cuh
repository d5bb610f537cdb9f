// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Vector access to global memory: neighbouring elements in one access, as float32 in registers.
//
//   const long long i = 8 * (64LL * blockIdx.x + threadIdx.x);
//   if (i >= p.N) return;  // N is a multiple of 8
//   float value[8];
//   lathe::load(p.x + i, value);
//   for (float& each : value) each *= 2.0f;
//   lathe::store(p.y + i, value);
//
// kCount elements are 2, 4, 8, 16 or 32 bytes, and their address is a multiple of that size (16 for
// 32 bytes).
#pragma once

#include "common/types.cuh"

namespace lathe {

// Elements of one access of 16 bytes.
template <class Element>
constexpr int kVector = 16 / static_cast<int>(sizeof(Element));

// Reads elements that no thread of the grid writes, and widens them.
template <class Element, int kCount>
__device__ __forceinline__ void load(const Element* from, float (&value)[kCount]) {
  Words<kCount* static_cast<int>(sizeof(Element))> raw;
  load_global(from, raw);
  unpack<Element>(raw, value);
}

// Rounds each value to nearest even, and writes them.
template <class Element, int kCount>
__device__ __forceinline__ void store(Element* to, const float (&value)[kCount]) {
  store_global(to, pack<Element, kCount* static_cast<int>(sizeof(Element))>(value));
}

}  // namespace lathe
