// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies of boxes between tensors in global memory and shared memory, by the engine for tensor maps
// (sm_90). One thread asks; elements outside the tensor are read as zeros and never written.
#pragma once
#include "params/tensor_map.h"

namespace lathe {

// Brings the map to where the engine reads it, ahead of the first copy.
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// A box of a tensor of four dimensions, the fastest first. `barrier` gets its bytes.
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap& map, unsigned barrier,
                                         int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier)
      : "memory");
}
// The same of a tensor of five.
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap& map, unsigned barrier,
                                         int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
      "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier)
      : "memory");
}
// Brings bytes to L2, for a load that comes later: a multiple of 16, at such an address. Nobody
// waits for them. Architectures before sm_90 have no such instruction.
constexpr bool kPrefetchesBytes = __CUDA_ARCH__ >= 900;
__device__ __forceinline__ void prefetch_bytes(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// Brings a box to L2, for a copy that comes later. Nobody waits for it.
__device__ __forceinline__ void prefetch_box(const TensorMap& map, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
__device__ __forceinline__ void store_box(const TensorMap& map, unsigned from, int c0, int c1,
                                          int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::
          "l"(&map),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(from)
      : "memory");
}
// Closes the group of the thread's stores since the last one.
__device__ __forceinline__ void store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until the thread's stores have read shared memory.
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Makes what this thread wrote to shared memory visible to the engine and to wgmma; a barrier or an
// arrival follows.
__device__ __forceinline__ void fence_shared_writes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace lathe
