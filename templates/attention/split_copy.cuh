// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows of float32 in global memory into the three planes of a tile. An asynchronous copy cannot
// split, so these loads wait for memory; the threads write where and when the copies would.
#pragma once
#include "attention/operand.cuh"

namespace lathe {

__device__ __forceinline__ void store_shared(unsigned to, unsigned first, unsigned second) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second) : "memory");
}

// Four neighbouring values; `to` is their address in the first plane.
template <int kPlaneBytes>
__device__ __forceinline__ void store_planes(unsigned to, const Words<16>& raw) {
  unsigned left[3], right[3];
  split_any_pair(bit_cast<float>(raw.word[0]), bit_cast<float>(raw.word[1]), left);
  split_any_pair(bit_cast<float>(raw.word[2]), bit_cast<float>(raw.word[3]), right);
#pragma unroll
  for (int i = 0; i < 3; ++i) store_shared(to + i * kPlaneBytes, left[i], right[i]);
}

// A panel of kColumns (64 or 32) whose first column is `column`, four values a thread and turn: a
// half-warp writes 128 bytes side by side. A few loads are under way before the first is split.
template <int kRows, int kColumns, int kPlaneBytes, int kThreads, int kAlignment, class OffsetOf>
__device__ __forceinline__ void split_panel(unsigned panel, const float* base, int rows, int column,
                                            int columns, const OffsetOf& offset_of) {
  constexpr int kPieces = kColumns / 4, kStep = kThreads / kPieces;
  constexpr int kTurns = ceil_div(kRows, kStep), kAhead = kTurns < 4 ? kTurns : 4;
  const int thread = thread_index(), piece = thread % kPieces, first = thread / kPieces;
  const float* const from = base + column + piece * 4;
  const bool wanted = column + piece * 4 < columns;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; turn += kAhead) {
    Words<16> raw[kAhead] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int row = first + (turn + i) * kStep;
      if (wanted && row < rows && row < kRows) {
        load_aligned<kAlignment>(from + offset_of(row), raw[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int row = first + (turn + i) * kStep, half = piece % 2 * 8;
      if (row >= kRows) continue;
      store_planes<kPlaneBytes>(
          panel + half +
              (kColumns == 64 ? panel_offset(row, piece / 2) : half_panel_offset(row, piece / 2)),
          raw[i]);
    }
  }
}

template <int kRows, int kWidth, int kThreads, int kAlignment = 16, class OffsetOf>
__device__ __forceinline__ void copy_tile(unsigned tile, const float* base, int rows, int columns,
                                          const OffsetOf& offset_of) {
  using Shape = Tile<kRows, kWidth>;
#pragma unroll 1
  for (int panel = 0; panel < Shape::kPanels; ++panel) {
    split_panel<kRows, 64, Shape::kBytes, kThreads, kAlignment>(
        tile + panel * kRows * 128, base, rows, panel * 64, columns, offset_of);
  }
  if constexpr (Shape::kHalf) {
    split_panel<kRows, 32, Shape::kBytes, kThreads, kAlignment>(
        tile + Shape::kHalfAt, base, rows, Shape::kPanels * 64, columns, offset_of);
  }
}

}  // namespace lathe
