// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Scores of 16 heads whose columns several warps share: each has sums over its part of the columns
// of all keys, and takes the sums over all columns of its part of the keys.
#pragma once
#include "common/shared_memory.cuh"

namespace lathe {

// kGroups warps, kTiles tiles of 8 keys. A warp's part is some tiles, or half of one: the heads g
// of it, or those 8 further on.
template <int kGroups, int kTiles>
struct ScoreShares {
  static constexpr int kShare = 4 * kTiles / kGroups;  // floats of a lane
  static constexpr int kPart = 32 * 4 * kShare;        // bytes that a warp has for another
  static constexpr int kBytes = kGroups * kGroups * kPart;
  static constexpr int kWide = kShare >= 4 ? 4 : 2;  // floats of an access
  static_assert(kShare == 2 || kShare % 4 == 0, "a half of a tile of scores, or whole ones");

  // Returns the address of float i of the part of warp `to`, as warp `from` has it.
  static __device__ __forceinline__ unsigned at(unsigned memory, int lane, int from, int to,
                                                int i) {
    return memory + (from * kGroups + to) * kPart + lane * (4 * kWide) + i * 128;
  }
  static __device__ __forceinline__ void put(unsigned memory, int lane, int group,
                                             const float (&s)[kTiles][4]) {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; i += kWide) {
      const unsigned to = at(memory, lane, group, i / kShare, i % kShare);
      const float(&four)[4] = s[i / 4];
      if constexpr (kWide == 4) {
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(four[0]),
                     "f"(four[1]), "f"(four[2]), "f"(four[3])
                     : "memory");
      } else {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(four[i % 4]),
                     "f"(four[i % 4 + 1])
                     : "memory");
      }
    }
  }
  // Added up in the order of the warps.
  static __device__ __forceinline__ void sum(unsigned memory, int lane, int group,
                                             float (&share)[kShare]) {
#pragma unroll
    for (int i = 0; i < kShare; i += kWide) {
#pragma unroll
      for (int other = 0; other < kGroups; ++other) {
        const unsigned from = at(memory, lane, other, group, i);
        float part[4];
        if constexpr (kWide == 4) {
          asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(part[0]), "=f"(part[1]), "=f"(part[2]), "=f"(part[3])
                       : "r"(from)
                       : "memory");
        } else {
          const FloatPair pair = load_shared_pair(from);
          part[0] = pair.first, part[1] = pair.second;
        }
#pragma unroll
        for (int c = 0; c < kWide; ++c) {
          share[i + c] = other == 0 ? part[c] : __fadd_rn(share[i + c], part[c]);
        }
      }
    }
  }
};

}  // namespace lathe
