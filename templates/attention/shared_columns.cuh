// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Products of 16 rows that are too wide for one warp: kGroups warps share the columns, blocks of 16
// in turn. In q k^T each has sums over its columns, for all keys, and gets the sums over all of
// them, the same bits as the others; in the second product each has its columns of the values.
#pragma once
#include "attention/operand.cuh"

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

template <class Element, int kTileM, int kTileN, int kGroups>
struct SharedColumns {
  const int lane, group;

  // `q_rows`: the first of the warp's 16 rows in a tile of kTileM.
  template <int kWidth>
  __device__ __forceinline__ void multiply_keys(unsigned q_rows, unsigned k_tile,
                                                float (&s)[kTileN / 8][4]) const {
    const TileReader<kTileM, kWidth> q_reader(q_rows, lane & 15, (lane >> 4) + 2 * group);
    const TileReader<kTileN, kWidth> k_reader(k_tile, (lane & 7) + (lane >> 4) * 8,
                                              ((lane >> 3) & 1) + 2 * group);
#pragma unroll
    for (int d = 0; d < kWidth / 16 / kGroups; ++d) {
      Fragment<Element> q;
      load_fragment(q, q_reader, 0, d * kGroups);
#pragma unroll
      for (int n = 0; n < kTileN / 8; n += 2) {
        Fragment<Element> keys;
        load_fragment(keys, k_reader, n / 2, d * kGroups);
        multiply_add_pair(s[n], s[n + 1], q, keys);
      }
    }
  }
  // `kWidth` is that of the tile's rows, which may be wider than the values.
  template <int kWidth, class P, int kOutTiles>
  __device__ __forceinline__ void multiply_values(unsigned v_tile, const P& p_words,
                                                  float (&o)[kOutTiles][4]) const {
    const TileReader<kTileN, kWidth> reader(v_tile, lane & 15, (lane >> 4) + 2 * group);
#pragma unroll
    for (int j = 0; j < kTileN / 16; ++j) {
      const Fragment<Element> w = p_words.operand(j);
#pragma unroll
      for (int n = 0; n < kOutTiles; n += 2) {
        Fragment<Element> values;
        load_fragment_transposed(values, reader, j, n / 2 * kGroups);
        multiply_add_pair(o[n], o[n + 1], w, values);
      }
    }
  }
};

}  // namespace lathe
