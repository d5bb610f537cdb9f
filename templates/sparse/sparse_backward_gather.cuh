// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_backward_gather: what the rows of a chunk contribute to the gradients of keys and values.
//
//   dk[key] += slot, dv[key] += slot      over the entries that name the key, row by row, and over
//                                         the tiles of heads, in order
//
// A warp has a key and head, a lane four columns of every 128. The sums continue where the chunk
// before has left them, so that they are those of all rows in their order, whatever the chunks and
// whoever comes first. Counts and cursor are left 0.
#pragma once
#include "common/types.cuh"
#include "params/sparse_attention.h"

namespace lathe {

struct SlotSums {
  const SparseBackwardGatherParams& p;
  const int *entries, count;  // of the key

  // Columns of the key's row of `sums`, `width` wide; they begin at `at` in a slot.
  __device__ __forceinline__ void add(float* sums, int width, int at) const {
    const long long slot_width = p.key_width + p.value_width;
    for (int column = static_cast<int>(threadIdx.x) % 32 * 4; column < width; column += 128) {
      const float* slots = static_cast<const float*>(p.slots) + at + column;
      float4* to = reinterpret_cast<float4*>(sums + column);
      float4 sum = *to;
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        long long slot = load_element(entries + i);
        for (int tile = 0; tile < p.head_tiles; ++tile, slot += p.entries) {
          Words<16> raw;
          float part[4];
          load_global(slots + slot * slot_width, raw);
          unpack<f32>(raw, part);
          sum.x = __fadd_rn(sum.x, part[0]), sum.y = __fadd_rn(sum.y, part[1]);
          sum.z = __fadd_rn(sum.z, part[2]), sum.w = __fadd_rn(sum.w, part[3]);
        }
      }
      *to = sum;
    }
  }
};

template <class Config>
__device__ void sparse_backward_gather(const SparseBackwardGatherParams& p) {
  const int lane = threadIdx.x % 32;
  const long long key =
      static_cast<long long>(blockIdx.x) * (Config::kThreads / 32) + threadIdx.x / 32;
  if (key == 0 && lane == 0) store_element(static_cast<int*>(p.cursor), 0);
  if (key >= p.keys) return;
  const int* range = static_cast<const int*>(p.ranges) + 2 * key;
  const int count = load_element(range + 1);
  if (count == 0) return;
  const SlotSums slots = {p, static_cast<const int*>(p.index) + load_element(range), count};
  if (p.dk != nullptr) slots.add(static_cast<float*>(p.dk) + key * p.key_width, p.key_width, 0);
  if (p.dv != nullptr && p.value_width > 0) {
    slots.add(static_cast<float*>(p.dv) + key * p.value_width, p.value_width, p.key_width);
  }
  int* counts = static_cast<int*>(p.counts) + key * p.chunk;
  for (int r = lane; r < p.rows; r += 32) store_element(counts + r, 0);
}

}  // namespace lathe
