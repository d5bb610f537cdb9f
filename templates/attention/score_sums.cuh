// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Scores of 16 rows whose columns kGroups warps share: each has sums over its part of the columns,
// for all keys, and gets the sums over all columns, the same bits as the others.
#pragma once

namespace lathe {

// `memory` has kGroups * 64 * kTileN bytes for the warps that share rows; nobody uses them before
// the next barrier of the block. `barrier` is a named one of these warps alone.
template <int kGroups, int kTileN>
__device__ __forceinline__ void share_scores(unsigned memory, int group, int barrier,
                                             float (&s)[kTileN / 8][4]) {
  if constexpr (kGroups > 1) {
    const unsigned first = memory + threadIdx.x % 32 * 16;
#pragma unroll
    for (int n = 0; n < kTileN / 8; ++n) {
      const unsigned to = first + group * (16 * kTileN * 4) + n * 512;
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(s[n][0]), "f"(s[n][1]),
                   "f"(s[n][2]), "f"(s[n][3])
                   : "memory");
    }
    // The others' sums are there: of the warps with the same rows alone.
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(32 * kGroups) : "memory");
#pragma unroll
    for (int n = 0; n < kTileN / 8; ++n) {
#pragma unroll
      for (int other = 0; other < kGroups; ++other) {
        float part[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(part[0]), "=f"(part[1]), "=f"(part[2]), "=f"(part[3])
                     : "r"(first + other * (16 * kTileN * 4) + n * 512)
                     : "memory");
#pragma unroll
        for (int i = 0; i < 4; ++i) s[n][i] = other == 0 ? part[i] : __fadd_rn(s[n][i], part[i]);
      }
    }
  }
}

}  // namespace lathe
