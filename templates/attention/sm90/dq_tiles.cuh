// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The float32 sums of dq as the backward by warpgroups adds to them: a tile for each block of
// kTileM queries of a head, in the order of the accumulators of wgmma. All blocks of keys add to
// the same tiles at once, and what a warp adds by one instruction is 512 neighbouring bytes.
//
// A tile is parts of 64 queries by 64 columns, one of each consumer; a part has
// eight groups of 8 columns, each of which has four neighbouring floats of every thread. Of a width
// of 96 the last part has 32 columns, and no group of others.
#pragma once
#include "common/math.cuh"
#include "common/memory_sums.cuh"
#include "common/varlen.cuh"

namespace lathe {

template <class Config>
struct DqTile {
  static constexpr int kPanels = (Config::kWidth + 63) / 64;
  static constexpr int kParts = Config::kTileM / 64 * kPanels;
  static constexpr int kPartFloats = 64 * 64, kFloats = Config::kTileM * Config::kWidth;
  static constexpr int kGroupFloats = 128 * 4;
  static_assert(Config::kTileM == 64 || Config::kWidth % 64 == 0, "the last part alone is narrow");

  // Rows and columns of a part in its tile.
  static __device__ __forceinline__ int row(int part) { return part / kPanels * 64; }
  static __device__ __forceinline__ int column(int part) { return part % kPanels * 64; }
  // Returns whether a part has group n.
  static __device__ __forceinline__ bool has_group(int part, int n) {
    return Config::kWidth % 64 == 0 || 8 * n < Config::kWidth % 64 || part < kParts - 1;
  }
};

// Packed sequences have no common number of tiles. Tile t of sequence b is number
// floor(start_b / M) + b + t of its head: tiles of a sequence never meet those of the next one, and
// there are Tq / M + N of them, of which some are nobody's. Rows behind the last sequence have
// tiles too.
template <class Config>
__device__ __forceinline__ int first_dq_tile(const void* cu_seqlens_q, int sequence, int seq_q) {
  using Offset = typename Config::CuSeqlens;
  return offset_at<Offset>(cu_seqlens_q, sequence, seq_q) / Config::kTileM + sequence;
}

// The last of `count` sequences whose tiles begin at `tile` or before it.
template <class Config>
__device__ __forceinline__ int sequence_of_dq_tile(const void* cu_seqlens_q, int count, int seq_q,
                                                   int tile) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first_dq_tile<Config>(cu_seqlens_q, middle, seq_q) <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ __forceinline__ void put_four(float* to, const float* from) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(from[0]), "f"(from[1]),
               "f"(from[2]), "f"(from[3])
               : "memory");
}

}  // namespace lathe
