// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels that exchange rows between ranks share this: a thread owns kVector channels of one
// row of the batch and walks the W - 1 rows of a message. Messages are a few kilobytes; these
// kernels cost a launch.
#pragma once
#include "conv/window.cuh"
#include "params/conv.h"

namespace lathe {

// A thread works on some channels of a row of the batch.
struct ConvHaloTile {
  int row;      // of the batch
  int channel;  // first channel of this thread
};

template <class Config>
__device__ __forceinline__ ConvHaloTile conv_halo_tile(int channels) {
  constexpr int kVector = Config::kVectorBytes / sizeof(typename Config::Element);
  const unsigned blocks = (channels - 1u) / (kVector * Config::kThreads) + 1u;  // of one row
  const unsigned row = blockIdx.x / blocks;
  return {static_cast<int>(row),
          static_cast<int>((blockIdx.x - row * blocks) * Config::kThreads + threadIdx.x) * kVector};
}

// Offset of row h of message m, [count, W - 1, B, D], at channel 0.
template <class Config>
__device__ __forceinline__ long long conv_message_row(int m, int h, int row, int batch,
                                                      int channels) {
  return ((static_cast<long long>(m) * (Config::kWidth - 1) + h) * batch + row) * channels;
}

}  // namespace lathe
