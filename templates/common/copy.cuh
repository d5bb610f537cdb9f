// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Contiguous copies between global and shared memory, so that tensors with a short innermost
// dimension ([D, W]) cost no more than their bytes.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"

namespace lathe {

// Pitch in floats of a shared [rows][channels] tile that is filled from [channels][rows]: lanes
// that hold neighbouring elements fall into different banks, and rows stay 16-byte aligned.
__host__ __device__ constexpr int tap_pitch(int rows, int channels) {
  return channels + ceil_div(32 / rows, 4) * 4;
}

// shared[row][channel] = float(global[channel][row]), 0 from `channels` on, by `threads` threads.
template <int kRows, int kChannels, class Element>
__device__ __forceinline__ void stage_by_tap(float* shared, const Element* global, int channels,
                                             int thread, int threads) {
  constexpr int kPitch = tap_pitch(kRows, kChannels);
  const int count = minimum(channels, kChannels) * kRows;
#pragma unroll 4
  for (int i = thread; i < kChannels * kRows; i += threads) {
    const float value = i < count ? to_float(load_element(global + i)) : 0.0f;
    shared[(i % kRows) * kPitch + i / kRows] = value;
  }
}

// The kCount channels from `channel` on of one row of such a tile.
template <int kCount>
__device__ __forceinline__ void read_tap(const float* row, int channel, float (&value)[kCount]) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + channel + i);
      value[i] = four.x, value[i + 1] = four.y, value[i + 2] = four.z, value[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) value[i] = row[channel + i];
  }
}

// Exact copies by the 32 lanes of one warp; 16 bytes at a time where the address allows. `shared`
// is aligned to 16 bytes. The caller puts __syncwarp around them. Plain loads: the memory may be
// one that this grid also writes.
template <class Element>
__device__ __forceinline__ void copy_in(Element* shared, const Element* global, int count,
                                        int lane) {
  constexpr int kPer = 16 / sizeof(Element);
  const bool wide = (reinterpret_cast<unsigned long long>(global) & 15) == 0;
  const int vectors = wide ? count / kPer : 0;
  for (int i = lane; i < vectors; i += 32) {
    reinterpret_cast<Words<16>*>(shared)[i] = reinterpret_cast<const Words<16>*>(global)[i];
  }
  for (int i = vectors * kPer + lane; i < count; i += 32) shared[i] = global[i];
}
template <class Element>
__device__ __forceinline__ void copy_out(Element* global, const Element* shared, int count,
                                         int lane) {
  constexpr int kPer = 16 / sizeof(Element);
  const bool wide = (reinterpret_cast<unsigned long long>(global) & 15) == 0;
  const int vectors = wide ? count / kPer : 0;
  for (int i = lane; i < vectors; i += 32) {
    store_global(global + i * kPer, reinterpret_cast<const Words<16>*>(shared)[i]);
  }
  for (int i = vectors * kPer + lane; i < count; i += 32) store_element(global + i, shared[i]);
}

}  // namespace lathe
