// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_positions: the least and the greatest position of each block of rows or keys, by which
// a block step tells what is masked whole, in part or not at all.
//
//   ranges[b] = (min, max) of positions[b run .. (b + 1) run)
//
// A warp takes one block.
#pragma once
#include "attention/positions.cuh"
#include "params/attention.h"

namespace lathe {

template <class Config>
__device__ void attention_positions(const AttentionPositionsParams& p) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const long long block =
      static_cast<long long>(blockIdx.x) * (Config::kThreads / 32) + threadIdx.x / 32;
  const long long first = block * p.run;
  if (first >= p.count) return;
  const int count = p.count - first < p.run ? static_cast<int>(p.count - first) : p.run;
  const PositionRange range = position_range(static_cast<const int*>(p.positions) + first, count);
  if (lane > 1) return;
  store_element(static_cast<int*>(p.ranges) + 2 * block + lane, lane ? range.most : range.least);
}

}  // namespace lathe
