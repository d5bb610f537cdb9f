// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies of boxes between a tensor with a map and shared memory (sm_90). One thread asks for a box
// by the coordinates of its first element, the last dim first; a barrier gets its bytes. What lies
// outside of the tensor is read as zeros and never written.
//
//   // x.map and y.map = { box = "32 8" }
//   __shared__ __align__(128) float tile[8][32];
//   __shared__ unsigned long long barrier;
//   const unsigned at = lathe::shared_address(tile), full = lathe::shared_address(&barrier);
//   const int column = 32 * blockIdx.x, row = 8 * blockIdx.y;
//   if (threadIdx.x == 0) lathe::mbarrier_init(full, 1), lathe::fence_mbarrier_init();
//   __syncthreads();
//   if (threadIdx.x == 0) {
//     lathe::mbarrier_arrive_expect(full, sizeof(tile));
//     lathe::copy_box(at, p.x_map, full, column, row);
//   }
//   lathe::mbarrier_wait(full, 0);  // everybody who reads the tile
//   for (int i = 0; i < 8; ++i) tile[i][threadIdx.x] *= 2.0f;
//   lathe::fence_shared_writes();   // everybody who wrote
//   __syncthreads();
//   if (threadIdx.x == 0) {
//     lathe::store_box(p.y_map, at, column, row);
//     lathe::store_commit(), lathe::store_wait_read();  // before the tile changes or goes
//   }
#pragma once

#include "common/mbarrier.cuh"
#include "common/mma.cuh"
#include "common/tma.cuh"

namespace lathe {

// Boxes of tensors of one, two and three dimensions; common/tma.cuh has those of four and five.
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap& map, unsigned barrier,
                                         int c0) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2}], [%3];" ::"r"(to),
      "l"(&map), "r"(c0), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap& map, unsigned barrier,
                                         int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(c0), "r"(c1), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap& map, unsigned barrier,
                                         int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier)
      : "memory");
}
// A box for several blocks of the cluster, bit r of `blocks` for the one of rank r: the same place
// of shared memory, and the same barrier, in each.
__device__ __forceinline__ void copy_box_to_blocks(unsigned short blocks, unsigned to,
                                                   const TensorMap& map, unsigned barrier, int c0,
                                                   int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(c0), "r"(c1), "r"(barrier), "h"(blocks)
      : "memory");
}
__device__ __forceinline__ void store_box(const TensorMap& map, unsigned from, int c0) {
  asm volatile(
      "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%1}], [%2];" ::"l"(&map),
      "r"(c0), "r"(from)
      : "memory");
}
__device__ __forceinline__ void store_box(const TensorMap& map, unsigned from, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
          &map),
      "r"(c0), "r"(c1), "r"(from)
      : "memory");
}
__device__ __forceinline__ void store_box(const TensorMap& map, unsigned from, int c0, int c1,
                                          int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
          &map),
      "r"(c0), "r"(c1), "r"(c2), "r"(from)
      : "memory");
}
__device__ __forceinline__ void store_box(const TensorMap& map, unsigned from, int c0, int c1,
                                          int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], "
      "[%6];" ::"l"(&map),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(from)
      : "memory");
}

}  // namespace lathe
