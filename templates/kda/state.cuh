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

  // `at` is the state of a sequence and head; the warp's values begin at `value`. Body(address,
  // word) for each word that exists, two neighbouring keys at a time.
  template <bool kVFirst, class Body>
  __device__ __forceinline__ void each_pair(int value, int key_dim, int value_dim,
                                            const Body& body) {
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int lane_value = value + g + 8 * h, key = 8 * n + 2 * t;
        if (lane_value < value_dim && key < key_dim) {
          const long long at = kVFirst ? static_cast<long long>(lane_value) * key_dim + key
                                       : static_cast<long long>(key) * value_dim + lane_value;
          body(at, s[n][2 * h], s[n][2 * h + 1]);
        }
      }
    }
  }
  template <bool kVFirst = Config::kStateVFirst>
  __device__ __forceinline__ void load(const float* from, int value, int key_dim, int value_dim) {
    clear();
    each_pair<kVFirst>(value, key_dim, value_dim, [&](long long at, float& x, float& y) {
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
    each_pair<kVFirst>(value, key_dim, value_dim, [&](long long at, float& x, float& y) {
      if constexpr (kVFirst) {
        store_global(to + at, Words<8>{{bit_cast<unsigned>(x), bit_cast<unsigned>(y)}});
      } else {
        store_element(to + at, x), store_element(to + at + value_dim, y);
      }
    });
  }

  // The first operand of a product over keys 16 j .. + 15.
  __device__ __forceinline__ Fragment<typename Config::Element> operand(int j) const {
    return fragment_of<typename Config::Element>(s[2 * j], s[2 * j + 1]);
  }
};

}  // namespace lathe
