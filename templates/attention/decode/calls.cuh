// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a call of decoding may have beside its pages, each of it in kernels that are made for it
// alone: rows of sequences of any length (Config::kRagged), keys of a sequence of which a rank has
// some, or that begin behind padding (Config::kSpread), queries and new keys that a rotary
// embedding turns (Config::kRotary).
#pragma once
#include "attention/mask.cuh"
#include "attention/mods/mods.cuh"
#include "attention/query_tile.cuh"
#include "attention/scores.cuh"
#include "attention/visits.cuh"

namespace lathe {

template <class Config, class = void>
struct IsRagged {
  static constexpr bool kValue = false;
};
template <class Config>
struct IsRagged<Config, typename Exists<decltype(Config::kRagged)>::Type> {
  static constexpr bool kValue = true;
};
template <class Config, class = void>
struct IsSpread {
  static constexpr bool kValue = false;
};
template <class Config>
struct IsSpread<Config, typename Exists<decltype(Config::kSpread)>::Type> {
  static constexpr bool kValue = true;
};
template <class Config, class = void>
struct IsRotary {
  static constexpr bool kValue = false;
};
template <class Config>
struct IsRotary<Config, typename Exists<decltype(Config::kRotary)>::Type> {
  static constexpr bool kValue = true;
};

// The kernel's constants as the pieces that it shares with attention_forward want them.
template <class Config>
struct DecodeConfig : Config {
  static constexpr bool kPacked = IsRagged<Config>::kValue, kPackGqa = true, kListed = false;
};

// Row i keeps key j iff low <= j * stride + offset - i <= high and first <= j < keys.
struct SpreadWindow {
  int keys, low, high;
  int first, stride, offset;
};
// Position / stride, which is at most `most` if the position is beyond all that there are.
__device__ __forceinline__ long long spread_key(long long position, int stride) {
  constexpr long long kMost = 0x7fffffff;
  return static_cast<unsigned>(position > kMost ? kMost : position) / static_cast<unsigned>(stride);
}
__device__ __forceinline__ long long first_key(const SpreadWindow& window, int row) {
  const long long position =
      static_cast<long long>(row) + window.low - window.offset + window.stride - 1;
  const long long key = position < 0 ? 0 : spread_key(position, window.stride);
  return key < window.first ? window.first : key;
}
__device__ __forceinline__ long long last_key(const SpreadWindow& window, int row) {
  const long long position = static_cast<long long>(row) + window.high - window.offset;
  const long long key = position < 0 ? -1 : spread_key(position, window.stride);
  return key > window.keys - 1 ? window.keys - 1 : key;
}

// Positions of keys among those of all ranks.
struct SpreadPositions {
  const QueryTile& tile;
  int ahead;  // of row 0, before the first key of the sequence
  int stride, offset;

  __device__ __forceinline__ int query_of(int row) const { return minimum(row, tile.rows - 1); }
  __device__ __forceinline__ int key_of(int key) const {
    return minimum(key, tile.keys - 1) * stride + offset;
  }
};
__device__ __forceinline__ int distance_of(const SpreadPositions& positions, const QueryTile&,
                                           int row, int key) {
  return row + positions.ahead - (key * positions.stride + positions.offset);
}
__device__ __forceinline__ int key_step(const SpreadPositions& positions) {
  return positions.stride;
}

// The positions of a tile's rows and keys. Row i of a sequence stands at row + ahead.
template <class Config>
struct DecodeView {
  using Pieces = DecodeConfig<Config>;
  static constexpr bool kSpread = IsSpread<Config>::kValue;
  using Window = typename Choose<kSpread, SpreadWindow, KeyWindow>::Type;
  using Walk = Visits<Pieces, Window>;

  const AttentionDecodeParams& decode;
  const QueryTile& tile;

  __device__ __forceinline__ int ahead() const {
    const int* total = static_cast<const int*>(decode.total_seqlens);
    return (total == nullptr ? tile.keys : load_element(total + tile.sequence)) - tile.rows;
  }
  // The first key that counts. What lies before it is read as zeros, as what is behind the last key
  // is: it may be no number, and then a weight of 0 would not drop it.
  __device__ __forceinline__ int first() const {
    const int* pad = static_cast<const int*>(decode.leftpad);
    return !kSpread || pad == nullptr ? 0 : maximum(load_element(pad + tile.sequence), 0);
  }
  __device__ __forceinline__ Walk visits() const {
    const AttentionForwardParams& p = decode.forward;
    if constexpr (kSpread) {
      const KeyWindow all = key_window(0, ahead(), p.window_left, p.window_right);
      return Walk({tile.keys, all.low, all.high, first(), decode.key_stride, decode.key_offset}, p,
                  tile);
    } else {
      return Walk(p, tile);
    }
  }
  __device__ __forceinline__ auto positions() const {
    if constexpr (kSpread) {
      return SpreadPositions{tile, ahead(), decode.key_stride, decode.key_offset};
    } else {
      return SequencePositions{tile};
    }
  }
};

}  // namespace lathe
