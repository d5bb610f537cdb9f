// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A warp's part of a KDA state, 16 of the values by all keys, transposed and in registers as
// accumulators of mma.sync: word 0, 1 of tile n are (value g; keys 8n + 2t, + 1), words 2, 3 those
// of value g + 8. So it is at once the sum of one product and, rounded, the first operand of the
// next one, and never leaves the registers between a sequence's first token and its last.
#pragma once
#include "kda/block.cuh"

namespace lathe {

template <class Config>
struct KdaState {
  static constexpr int kTiles = Config::kWidth / 8;
  float s[kTiles][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
    }
  }

  // The same numbers under another Config.
  template <class Other>
  __device__ __forceinline__ void take(const KdaState<Other>& other) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = other.s[n][i];
    }
  }

  // The warp's rows of the unit matrix.
  __device__ __forceinline__ void identity(int value) {
    const int lane = static_cast<int>(threadIdx.x % 32), from = value + lane / 4 - lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[n][i] = from + i / 2 * 8 == 8 * n + i % 2 ? 1.0f : 0.0f;
      }
    }
  }

  // The warp's values begin at `value`. Body(offset, words) for each pair of neighbouring keys that
  // exists; rows of the state of a sequence and head lie `row` elements apart.
  template <bool kVFirst, class Stride, class Body>
  __device__ __forceinline__ void each_pair(int value, int key_dim, int value_dim, Stride row,
                                            const Body& body) {
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int lane_value = value + g + 8 * h, key = 8 * n + 2 * t;
        if (lane_value < value_dim && key < key_dim) {
          const long long at = kVFirst ? static_cast<long long>(lane_value) * row + key
                                       : static_cast<long long>(key) * row + lane_value;
          body(at, s[n][2 * h], s[n][2 * h + 1]);
        }
      }
    }
  }
  template <bool kVFirst = Config::kStateVFirst>
  __device__ __forceinline__ void load(const float* from, int value, int key_dim, int value_dim) {
    clear();
    const int row = kVFirst ? key_dim : value_dim;
    each_pair<kVFirst>(value, key_dim, value_dim, row, [&](long long at, float& x, float& y) {
      if constexpr (kVFirst) {
        Words<8> raw;
        load_global(from + at, raw);
        x = bit_cast<float>(raw.word[0]), y = bit_cast<float>(raw.word[1]);
      } else {
        x = load_element(from + at), y = load_element(from + at + value_dim);
      }
    });
  }
  template <bool kVFirst = Config::kStateVFirst>
  __device__ __forceinline__ void store(float* to, int value, int key_dim, int value_dim) {
    const int row = kVFirst ? key_dim : value_dim;
    each_pair<kVFirst>(value, key_dim, value_dim, row, [&](long long at, float& x, float& y) {
      if constexpr (kVFirst) {
        store_global(to + at, Words<8>{{bit_cast<unsigned>(x), bit_cast<unsigned>(y)}});
      } else {
        store_element(to + at, x), store_element(to + at + value_dim, y);
      }
    });
  }

  // The same of a pool's state, by plain loads: the grid writes the pool that it reads.
  template <class Element>
  __device__ __forceinline__ void load_pooled(const Element* from, int value, int key_dim,
                                              int value_dim, long long row) {
    constexpr bool kVFirst = Config::kStateVFirst;
    clear();
    each_pair<kVFirst>(value, key_dim, value_dim, row, [&](long long at, float& x, float& y) {
      if constexpr (!kVFirst) {
        x = to_float(from[at]), y = to_float(from[at + row]);
      } else if constexpr (sizeof(Element) == 4) {
        const float2 pair = *reinterpret_cast<const float2*>(from + at);
        x = pair.x, y = pair.y;
      } else {
        unpack_pair(*reinterpret_cast<const unsigned*>(from + at), Element{}, x, y);
      }
    });
  }
  template <class Element>
  __device__ __forceinline__ void store_pooled(Element* to, int value, int key_dim, int value_dim,
                                               long long row) {
    constexpr bool kVFirst = Config::kStateVFirst;
    each_pair<kVFirst>(value, key_dim, value_dim, row, [&](long long at, float& x, float& y) {
      if constexpr (!kVFirst) {
        store_element(to + at, from_float<Element>(x));
        store_element(to + at + row, from_float<Element>(y));
      } else if constexpr (sizeof(Element) == 4) {
        store_global(to + at, Words<8>{{bit_cast<unsigned>(x), bit_cast<unsigned>(y)}});
      } else {
        store_global(to + at, Words<4>{{pack_pair(x, y, Element{})}});
      }
    });
  }

  // The first operand of a product over keys 16 j .. + 15.
  __device__ __forceinline__ Fragment<typename Config::Element> operand(int j) const {
    return fragment_of<typename Config::Element>(s[2 * j], s[2 * j + 1]);
  }
};

}  // namespace lathe
