// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// repeat_offsets: offsets of the pieces of one row of a batch become offsets of all rows' pieces,
// so that kernels of packed sequences run over a batch whose rows are cut alike.
#pragma once
#include "common/types.cuh"
#include "params/rows.h"

namespace lathe {

template <class Config>
__device__ void repeat_offsets(const RepeatOffsetsParams& p) {
  const int all = p.batch * p.pieces;
  const int item = static_cast<int>(blockIdx.x * Config::kThreads + threadIdx.x);
  if (item > all) return;
  const int row = item < all ? item / p.pieces : p.batch;
  const int offset =
      item < all ? load_element(static_cast<const int*>(p.offsets) + item % p.pieces) : 0;
  store_element(static_cast<int*>(p.to) + item, row * p.tokens + offset);
}

}  // namespace lathe
