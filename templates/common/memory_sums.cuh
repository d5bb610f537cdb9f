// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// *to += value in memory that many blocks add to, in no order. Vectors of 8 and 16 bytes are added
// at once where the machine has that, so that the lanes of a row make whole sectors.
#pragma once

namespace lathe {

// The first NVRTC of CUDA 12 writes PTX 8.0, which has no vectors of red.
constexpr bool kVectorSums =
    __CUDA_ARCH__ >= 900 && !(__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ == 0);

__device__ __forceinline__ void add_float(float* to, float value) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}
template <int kAlignment = 8>
__device__ __forceinline__ void add_pair(float* to, float first, float second) {
  if constexpr (kVectorSums && kAlignment >= 8) {
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(first), "f"(second)
                 : "memory");
  } else {
    add_float(to, first), add_float(to + 1, second);
  }
}
__device__ __forceinline__ void add_four(float* to, const float* from) {
  if constexpr (kVectorSums) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(from[0]),
                 "f"(from[1]), "f"(from[2]), "f"(from[3])
                 : "memory");
  } else {
    add_pair(to, from[0], from[1]), add_pair(to + 2, from[2], from[3]);
  }
}

}  // namespace lathe
