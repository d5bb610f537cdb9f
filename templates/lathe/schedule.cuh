// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The order in which persistent blocks take the tiles of a matrix. Tiles that run at one time are
// near each other, so that they read the same rows and columns from L2: bands of kBand rows of
// tiles, each of which is walked column by column.
//
//   const lathe::TileOrder<4> tiles{lathe::ceil_div(p.T, 8), lathe::ceil_div(p.D, 32)};
//   for (long long i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
//     const lathe::TilePlace tile = tiles.at(i);
//     const int column = 32 * tile.column + threadIdx.x;
//     for (int row = 8 * tile.row; row < 8 * tile.row + 8; ++row) {
//       if (row < p.T && column < p.D) p.y[row * p.D + column] = 2.0f * p.x[row * p.D + column];
//     }
//   }
#pragma once

#include "lathe/math.cuh"

namespace lathe {

struct TilePlace {
  int row, column;
};

template <int kBand>
struct TileOrder {
  long long rows, columns;  // of tiles

  __device__ __forceinline__ long long count() const { return rows * columns; }
  // `index` is at least 0 and less than count().
  __device__ __forceinline__ TilePlace at(long long index) const {
    const long long of_band = kBand * columns;
    const long long band = index / of_band, left = rows - band * kBand;
    const long long height = left < kBand ? left : kBand, rest = index - band * of_band;
    return {static_cast<int>(band * kBand + rest % height), static_cast<int>(rest / height)};
  }
};

}  // namespace lathe
