// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_backward_ranges: where the entries of a chunk of rows that name a key are listed.
//
//   begin[key] = a range of sum_r counts[key, r] places, of whatever number
//   counts[key, r] becomes begin[key] + sum_{r' < r} counts[key, r']: where row r's entries begin
//
// A warp has a key and head. Which range it gets depends on which warp comes first; what is done
// with the entries in it does not.
#pragma once
#include "common/types.cuh"
#include "params/sparse_attention.h"

namespace lathe {

template <class Config>
__device__ void sparse_backward_ranges(const SparseBackwardGatherParams& p) {
  const int lane = threadIdx.x % 32;
  const long long key =
      static_cast<long long>(blockIdx.x) * (Config::kThreads / 32) + threadIdx.x / 32;
  if (key >= p.keys) return;
  int* counts = static_cast<int*>(p.counts) + key * p.chunk;
  int total = 0;
  for (int r = lane; r < p.rows; r += 32) total += counts[r];
  total = static_cast<int>(__reduce_add_sync(0xffffffffu, total));
  int begin = 0;
  if (total > 0) {
    if (lane == 0) begin = atomicAdd(static_cast<int*>(p.cursor), total);
    begin = __shfl_sync(0xffffffffu, begin, 0);
    int before = begin;  // of the first row of the next 32
    for (int first = 0; first < p.rows; first += 32) {
      const int lane_count = first + lane < p.rows ? counts[first + lane] : 0;
      int sum = lane_count;  // with that of all rows before
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += other;
      }
      if (first + lane < p.rows) counts[first + lane] = before + sum - lane_count;
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
  }
  if (lane < 2)
    store_element(static_cast<int*>(p.ranges) + 2 * key + lane, lane == 0 ? begin : total);
}

}  // namespace lathe
