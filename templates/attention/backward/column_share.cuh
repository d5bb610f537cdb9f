// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The columns of a tile, shared out among kWays warps in blocks of 16: of every panel of 64 (and of
// a last one of 32) each warp has the same part. Its offset in a panel is then an exclusive or of
// the address it reads at, and which panel is a constant, whatever the width.
#pragma once
#include "attention/tile.cuh"

namespace lathe {

template <int kWidth, int kWays>
struct ColumnShare {
  static constexpr int kColumns = kWidth, kPanels = kWidth / 64;
  static constexpr bool kHalf = kWidth % 64 != 0;
  static_assert(kWays == 1 || kWays == 2 || (kWays == 4 && !kHalf), "whole blocks of 16 for each");
  static constexpr int kPerPanel = 4 / kWays;
  static constexpr int kBlocks = kWidth / 16 / kWays;

  // Block n of the first warp, as TileReader::at counts them.
  static __device__ __forceinline__ constexpr int block(int n) {
    return n < kPanels * kPerPanel ? n / kPerPanel * 4 + n % kPerPanel
                                   : 4 * kPanels + (n - kPanels * kPerPanel);
  }
  // How much further on that of warp `way` lies, and its first column.
  static __device__ __forceinline__ int shift(int n, int way) {
    return way * (n < kPanels * kPerPanel ? 64 / kWays : 32 / kWays);
  }
  static __device__ __forceinline__ int column(int n, int way) {
    return block(n) * 16 + shift(n, way);
  }
  template <int kRows>
  static __device__ __forceinline__ TileReader<kRows, kWidth> shared_out(
      TileReader<kRows, kWidth> reader, int way) {
    reader.panel ^= way * (128 / kWays);
    reader.half ^= way * (64 / kWays);
    return reader;
  }
};

}  // namespace lathe
