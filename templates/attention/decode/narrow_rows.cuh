// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows of a cache in 8 bits: they come to shared memory as they are, half as many bytes, and become
// a tile of 16-bit elements when their block's turn has come. Config::kNarrow says how they are
// scaled: by one number for all rows of a head, by one for each row, or inside rows of bytes.
#pragma once
#include "attention/mods/mods.cuh"
#include "attention/tile.cuh"
#include "common/narrow.cuh"
#include "common/shared_memory.cuh"
#include "params/attention.h"

namespace lathe {

enum NarrowRows { kWideRows = 0, kHeadScales = 1, kRowScales = 2, kByteRows = 3 };

template <class Config, class = void>
struct NarrowOf {
  static constexpr int kValue = kWideRows;
};
template <class Config>
struct NarrowOf<Config, typename Exists<decltype(Config::kNarrow)>::Type> {
  static constexpr int kValue = Config::kNarrow;
};

// A row of bytes: codes, the scale of each 128 of them, and bfloat16.
struct ByteRow {
  static constexpr int kCodes = 512, kScaled = 128, kScalesAt = 512, kWideAt = 528, kWide = 64;
  static constexpr int kBytes = 656, kChunks = kBytes / 16;
};

// The bytes of a tile's rows as they are in the cache. Codes lie in panels as the tile's columns
// do, 64 bytes of a row, in a last one 32, so that neighbouring lanes fall into different banks
// here and there; rows of bytes lie one after another.
template <class Config, int kRows, int kWidth>
struct RawTile {
  static constexpr bool kRowsOfBytes = NarrowOf<Config>::kValue == kByteRows;
  static constexpr int kBytes = kRowsOfBytes ? kRows * ByteRow::kBytes : kRows * kWidth;
  static constexpr int kFull = Tile<kRows, kWidth>::kPanels * kRows * 4;  // chunks of whole panels

  // Row and column of chunk i: 16 codes.
  static __device__ __forceinline__ int row(int i) {
    return i < kFull ? i / 4 % kRows : (i - kFull) / 2;
  }
  static __device__ __forceinline__ int column(int i) {
    return i < kFull ? i / (4 * kRows) * 64 + i % 4 * 16
                     : Tile<kRows, kWidth>::kPanels * 64 + (i - kFull) % 2 * 16;
  }
};

template <class Config, int kRows, int kWidth, class RowOf>
__device__ __forceinline__ void copy_raw(unsigned to, const unsigned char* base, int columns,
                                         const RowOf& row_of) {
  using Raw = RawTile<Config, kRows, kWidth>;
  constexpr int kChunks = Raw::kRowsOfBytes ? ByteRow::kChunks : kWidth / 16;
#pragma unroll 1
  for (int i = thread_index(); i < kRows * kChunks; i += Config::kThreads) {
    const TileRow row = row_of(Raw::kRowsOfBytes ? i / kChunks : Raw::row(i));
    const int column = Raw::kRowsOfBytes ? i % kChunks * 16 : Raw::column(i);
    copy_aligned<kAlignmentOf<Config, unsigned char>>(
        to + i * 16, base + row.offset + column,
        row.there && (Raw::kRowsOfBytes || column < columns));
  }
}

// Sixteen codes become the two chunks of 16 bytes at `column` of a row. `other_first`: which of the
// two is stored first, so that lanes of two panels fall into different banks.
template <int kRows, int kWidth, class Element>
__device__ __forceinline__ void store_widened(unsigned tile, int row, int column,
                                              const unsigned (&codes)[4], float scale,
                                              bool other_first) {
  using Shape = Tile<kRows, kWidth>;
  unsigned chunk[2][4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    float value[4];
    widen_e4m3(codes[w], scale, value);
    chunk[w / 2][w % 2 * 2] = pack_pair(value[0], value[1], Element{});
    chunk[w / 2][w % 2 * 2 + 1] = pack_pair(value[2], value[3], Element{});
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool second = (i == 1) != other_first;
    const int at = column / 8 + (second ? 1 : 0), panel = at / 8;
    const int offset = panel < Shape::kPanels ? panel * kRows * 128 + panel_offset(row, at % 8)
                                              : Shape::kHalfAt + half_panel_offset(row, at % 8);
    unsigned word[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) word[w] = second ? chunk[1][w] : chunk[0][w];
    store_shared_words(tile + offset, word);
  }
}

// Raw rows become a tile. scale_of(r): the scale of row r. By all threads.
template <class Config, int kRows, int kWidth, class ScaleOf>
__device__ __forceinline__ void widen_rows(unsigned tile, unsigned raw, const ScaleOf& scale_of) {
  using Element = typename Config::Element;
  using Raw = RawTile<Config, kRows, kWidth>;
  if constexpr (Raw::kRowsOfBytes) {
    constexpr int kCodeChunks = ByteRow::kCodes / 16, kWideChunks = ByteRow::kWide / 8;
#pragma unroll 1
    for (int i = threadIdx.x; i < kRows * kCodeChunks; i += Config::kThreads) {
      const int row = i / kCodeChunks, c = i % kCodeChunks;
      const unsigned from = raw + row * ByteRow::kBytes;
      const float scale = bit_cast<float>(
          load_shared_word(from + ByteRow::kScalesAt + c * 16 / ByteRow::kScaled * 4));
      unsigned codes[4];
      load_shared_words(from + c * 16, codes);
      store_widened<kRows, kWidth, Element>(tile, row, c * 16, codes, scale, c / 4 % 2 != 0);
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < kRows * kWideChunks; i += Config::kThreads) {
      const int row = i / kWideChunks, c = i % kWideChunks;
      unsigned wide[4], chunk[4];
      load_shared_words(raw + row * ByteRow::kBytes + ByteRow::kWideAt + c * 16, wide);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        float first, second;
        unpack_pair(wide[w], bf16{}, first, second);
        chunk[w] = pack_pair(first, second, Element{});
      }
      const int panel = ByteRow::kCodes / 64;
      store_shared_words(tile + panel * kRows * 128 + panel_offset(row, c), chunk);
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < kRows * kWidth / 16; i += Config::kThreads) {
      const int row = Raw::row(i);
      unsigned codes[4];
      load_shared_words(raw + i * 16, codes);
      store_widened<kRows, kWidth, Element>(tile, row, Raw::column(i), codes, scale_of(row), false);
    }
  }
}

// The scale of a head's keys or values.
__device__ __forceinline__ float head_scale(const void* scales, int stride, int head) {
  return load_element(static_cast<const float*>(scales) + head * stride);
}

}  // namespace lathe
