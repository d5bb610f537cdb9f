// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The sums of attention's backward go to memory: a part of dq is added to an accumulator in memory,
// dk and dv are stored.
#pragma once
#include "attention/backward/column_share.cuh"
#include "common/aligned.cuh"
#include "common/memory_sums.cuh"

namespace lathe {

template <int kAlignment = 16>
__device__ __forceinline__ void load_pair(const float* from, float& first, float& second) {
  if constexpr (kAlignment < 8) {
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(first) : "l"(from) : "memory");
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(second) : "l"(from + 1) : "memory");
    return;
  }
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];"
               : "=f"(first), "=f"(second)
               : "l"(from)
               : "memory");
}
template <int kAlignment = 16>
__device__ __forceinline__ void store_pair(float* to, float first, float second) {
  const float pair[2] = {first, second};
  store_aligned<kAlignment>(to, pack<f32, 8>(pair));
}

// The lane's rows in blocks of 16 rows of sums, and where its pairs of columns lie in memory: rows
// 8 half + lane / 4 of each block, the first block from `row` on, below `rows`; columns below
// `columns`. Other sums stay as they are.
template <class Share, int kAlignment = 16>
struct SumTile {
  float* to;
  long long row_stride;
  int row, rows, columns, way;

  // body(address, block, n, half) for each tile n of 8 columns and half of a block's rows that is
  // inside. Tiles at an edge alone pay for the tests, which ptxas makes branches of.
  template <int kRowBlocks, class Body>
  __device__ __forceinline__ void each(const Body& body) const {
    if (uniform(row + 16 * kRowBlocks <= rows && columns == Share::kColumns)) {
      each_of<kRowBlocks, true>(body);
    } else {
      each_of<kRowBlocks, false>(body);
    }
  }
  template <int kRowBlocks, bool kWhole, class Body>
  __device__ __forceinline__ void each_of(const Body& body) const {
    const int lane = thread_index() % 32, lane_column = lane % 4 * 2;
    int lane_row = row + lane / 4;
    float* at = to + lane_row * row_stride + lane_column;
#pragma unroll
    for (int i = 0; i < 2 * kRowBlocks; ++i) {
#pragma unroll
      for (int n = 0; n < 2 * Share::kBlocks; ++n) {
        // The constant part last, for an address of one register pair and constants.
        const int first = Share::block(n / 2) * 16 + n % 2 * 8, mine = Share::shift(n / 2, way);
        if (kWhole || (lane_row < rows && lane_column + mine < columns - first)) {
          body(at + mine + first, i / 2, n, i % 2);
        }
      }
      at += 8 * row_stride, lane_row += 8;
    }
  }
  template <int kRowBlocks, int kTiles>
  __device__ __forceinline__ void load(float (&sums)[kRowBlocks][kTiles][4]) const {
    each<kRowBlocks>([&](const float* at, int b, int n, int half) {
      load_pair<kAlignment>(at, sums[b][n][2 * half], sums[b][n][2 * half + 1]);
    });
  }
  template <int kRowBlocks, int kTiles>
  __device__ __forceinline__ void store(const float (&sums)[kRowBlocks][kTiles][4]) const {
    each<kRowBlocks>([&](float* at, int b, int n, int half) {
      store_pair<kAlignment>(at, sums[b][n][2 * half], sums[b][n][2 * half + 1]);
    });
  }
  template <int kRowBlocks, int kTiles>
  __device__ __forceinline__ void add(const float (&sums)[kRowBlocks][kTiles][4]) const {
    each<kRowBlocks>([&](float* at, int b, int n, int half) {
      add_pair<kAlignment>(at, sums[b][n][2 * half], sums[b][n][2 * half + 1]);
    });
  }
};

// The same rows, times `scale`, into memory: zeros from row `inside` on, nothing from `rows` on.
template <class Share, int kAlignment = 16, int kTiles>
__device__ __forceinline__ void store_rows(const float (&sums)[kTiles][4], int way, float scale,
                                           float* to, long long row_stride, int row, int inside,
                                           int rows, int columns) {
  const int lane = thread_index() % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int lane_row = row + 8 * half + lane / 4;
    float* at = to + lane_row * row_stride;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int column = Share::column(n / 2, way) + n % 2 * 8 + lane % 4 * 2;
      if (lane_row < rows && column < columns) {
        const float pair[2] = {lane_row < inside ? sums[n][2 * half] * scale : 0.0f,
                               lane_row < inside ? sums[n][2 * half + 1] * scale : 0.0f};
        store_aligned<kAlignment>(at + column, pack<f32, 8>(pair));
      }
    }
  }
}
template <class Share, int kAlignment = 16, class Element, int kTiles>
__device__ __forceinline__ void store_rows(const float (&sums)[kTiles][4], int way, float scale,
                                           Element* to, long long row_stride, int row, int inside,
                                           int rows, int columns) {
  const int lane = thread_index() % 32, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int lane_row = row + 8 * half + lane / 4;
    Element* at = to + lane_row * row_stride;
#pragma unroll
    for (int n = 0; n < kTiles; n += 4) {
      unsigned word[4] = {};
#pragma unroll
      for (int i = 0; i < 4 && n + i < kTiles; ++i) {
        if (lane_row < inside) {
          word[i] = pack_pair(sums[n + i][2 * half] * scale, sums[n + i][2 * half + 1] * scale,
                              Element{});
        }
      }
      const Words<16> eight = turn_in_quad(word);
      const int column = Share::column(n / 2 + t / 2, way) + t % 2 * 8;
      if (lane_row < rows && n + t < kTiles && column < columns) {
        store_aligned<kAlignment>(at + column, eight);
      }
    }
  }
}

}  // namespace lathe
