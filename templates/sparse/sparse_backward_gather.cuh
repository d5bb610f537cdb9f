// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_backward_gather: what the rows of a chunk contribute to the gradients of keys and values.
//
//   dk[key] += slot, dv[key] += slot      over the entries that name the key, row by row, and over
//                                         the tiles of heads, in order
//
// A warp has 128 columns of a key and head, a lane four of them. The sums continue where the chunk
// before has left them, so that they are those of all rows in their order, whatever the chunks and
// whoever comes first. Counts and cursor are left 0.
//
// With kExact the sums are exact ones, so that they depend on no order, and ranks add theirs up.
#pragma once
#include "common/exact_sum.cuh"
#include "common/math.cuh"
#include "common/types.cuh"
#include "params/sparse_attention.h"

namespace lathe {

template <class Config, class = void>
struct GathersExactly {
  static constexpr bool kValue = false;
};
template <class Config>
struct GathersExactly<Config, decltype(static_cast<void>(Config::kExact))> {
  static constexpr bool kValue = true;
};

// The sums of a lane's four columns, where they lie in memory.
struct FloatSums {
  float4 sum;

  __device__ __forceinline__ void load(const void* sums, long long at) {
    sum = *reinterpret_cast<const float4*>(static_cast<const float*>(sums) + at);
  }
  __device__ __forceinline__ void store(void* sums, long long at) const {
    *reinterpret_cast<float4*>(static_cast<float*>(sums) + at) = sum;
  }
  __device__ __forceinline__ void add(const float (&part)[4]) {
    sum.x = __fadd_rn(sum.x, part[0]), sum.y = __fadd_rn(sum.y, part[1]);
    sum.z = __fadd_rn(sum.z, part[2]), sum.w = __fadd_rn(sum.w, part[3]);
  }
};
struct ExactSums {
  ExactSum sum[4];

  __device__ __forceinline__ void load(const void* sums, long long at) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = static_cast<const ExactSum*>(sums)[at + i];
  }
  __device__ __forceinline__ void store(void* sums, long long at) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) static_cast<ExactSum*>(sums)[at + i] = sum[i];
  }
  __device__ __forceinline__ void add(const float (&part)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i].add(part[i]);
  }
};

// The slots of a key in the order in which they are added, some of them on their way at once.
struct KeySlots {
  static constexpr int kAhead = 4;
  const float* slots;  // column of the lane
  const int* entries;
  int count;            // of entries
  int tiles, per_tile;  // of heads, and slots from one to the next
  long long width;

  template <class Sums>
  __device__ __forceinline__ void add_to(Sums& sums) const {
    const int lane = threadIdx.x % 32;
    for (int first = 0; first < count; first += 32) {
      const int here = minimum(count - first, 32);
      const int lane_entry = lane < here ? load_element(entries + first + lane) : 0;
      int entry = 0, tile = 0;
      while (entry < here) {
        Words<16> raw[kAhead];
        bool there[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          there[i] = entry < here;
          const long long slot = __shfl_sync(0xffffffffu, lane_entry, minimum(entry, here - 1));
          load_global(slots + (slot + (there[i] ? tile : 0) * per_tile) * width, raw[i]);
          ++tile;
          if (tile == tiles) tile = 0, ++entry;
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          if (!there[i]) break;
          float part[4];
          unpack<f32>(raw[i], part);
          sums.add(part);
        }
      }
    }
  }
};

template <class Config>
__device__ void sparse_backward_gather(const SparseBackwardGatherParams& p) {
  const int lane = threadIdx.x % 32, width = p.key_width + p.value_width;
  const int parts = ceil_div(width, 128);
  const long long item =
      static_cast<long long>(blockIdx.x) * (Config::kThreads / 32) + threadIdx.x / 32;
  const long long key = item / parts;
  const int part = static_cast<int>(item - key * parts);
  if (item == 0 && lane == 0) store_element(static_cast<int*>(p.cursor), 0);
  if (key >= p.keys) return;
  const int* range = static_cast<const int*>(p.ranges) + 2 * key;
  const int count = load_element(range + 1);
  if (count == 0) return;
  // Columns of dk, and behind them those of dv, as far as they are wanted. A lane without any reads
  // what a neighbour reads.
  const int low = p.dk != nullptr ? 0 : p.key_width, high = p.dv != nullptr ? width : p.key_width;
  const int lane_column = 128 * part + 4 * lane,
            column = minimum(maximum(lane_column, low), high - 4);
  const bool wanted = lane_column == column;
  const bool of_key = column < p.key_width;
  void* const sums = of_key ? p.dk : p.dv;
  const long long at =
      of_key ? key * p.key_width + column : key * p.value_width + column - p.key_width;
  const KeySlots slots = {static_cast<const float*>(p.slots) + column,
                          static_cast<const int*>(p.index) + load_element(range),
                          count,
                          p.head_tiles,
                          p.entries,
                          width};
  typename Choose<GathersExactly<Config>::kValue, ExactSums, FloatSums>::Type sum = {};
  if (wanted) sum.load(sums, at);
  if (__any_sync(0xffffffffu, wanted)) slots.add_to(sum);
  if (wanted) sum.store(sums, at);
  if (part == 0) {
    int* counts = static_cast<int*>(p.counts) + key * p.chunk;
    for (int r = lane; r < p.rows; r += 32) store_element(counts + r, 0);
  }
}

}  // namespace lathe
