// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The two float32 that attention's backward needs of each query: lse2 and delta.
#pragma once
#include "attention/tile.cuh"
#include "common/async_copy.cuh"

namespace lathe {

// Copies lse2 and behind it delta of kRows rows to shared memory. Both tensors have the first row
// at `first`; rows from `rows` on get 0, which nothing uses.
template <int kRows, int kThreads>
__device__ __forceinline__ void copy_row_values(unsigned to, const void* lse2, const void* delta,
                                                long long first, int rows) {
#pragma unroll
  for (int from = 0; from < 2 * kRows; from += kThreads) {
    const int word = from + thread_index();
    if (2 * kRows % kThreads == 0 || uniform(word < 2 * kRows)) {
      const float* values = static_cast<const float*>(word < kRows ? lse2 : delta);
      const int row = word % kRows;
      copy_async_word(to + 4 * word, values + first + row, row < rows);
    }
  }
}

}  // namespace lathe
