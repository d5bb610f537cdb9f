// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Additions to global memory: what the whole device adds a second, in L2 and beyond it.
#pragma once
#include "units_memory.cuh"

namespace units {

template <int width>
__global__ void add_all(char* to, size_t bytes, int passes) {
  const size_t step = size_t{gridDim.x} * blockDim.x * 4 * width;
  const size_t first = (size_t{blockIdx.x} * blockDim.x + threadIdx.x) * 4 * width;
  for (int pass = 0; pass < passes; ++pass) {
#pragma unroll 4
    for (size_t at = first; at < bytes; at += step) {
      if constexpr (width == 4) {
        asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(to + at), "f"(0.5f)
                     : "memory");
      } else if constexpr (width == 2) {
        asm volatile("red.global.add.v2.f32 [%0], {%1, %1};" ::"l"(to + at), "f"(0.5f) : "memory");
      } else {
        asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to + at), "f"(0.5f) : "memory");
      }
    }
  }
}

constexpr uint32_t kAdded = 16384;  // bytes of one bulk reduction

__global__ void add_bulk(char* to, size_t bytes, int passes) {
  extern __shared__ __align__(1024) float values[];
  for (uint32_t k = threadIdx.x; k < kAdded / 4; k += blockDim.x) values[k] = 0.5f;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t at = size_t{blockIdx.x} * kAdded; at < bytes; at += size_t{gridDim.x} * kAdded) {
      asm volatile(
          "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
          " cp.async.bulk.commit_group;\n cp.async.bulk.wait_group.read 4;" ::"l"(to + at),
          "r"(address(values)), "r"(kAdded)
          : "memory");
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

inline void measure_reductions() {
  for (const size_t mega : {size_t{32}, size_t{512}}) {
    const size_t bytes = std::min(mega * kMega, room.bytes) / (room.tiny ? 32 : 1);
    const int passes = room.tiny ? 1 : static_cast<int>(1024 / mega);
    const auto row = [=](const char* what, auto launch) {
      figure("reduction", what + ("; " + std::to_string(mega)) + " MB", "GB/s added", [=] {
        return static_cast<double>(bytes) * passes / milliseconds([=] { launch(); }) * 1e-6;
      });
    };
    row("red.global.add.f32",
        [=] { add_all<1><<<room.processors * 8, 256>>>(room.to, bytes, passes); });
    row("red.global.add.v2.f32",
        [=] { add_all<2><<<room.processors * 8, 256>>>(room.to, bytes, passes); });
    row("red.global.add.v4.f32",
        [=] { add_all<4><<<room.processors * 8, 256>>>(room.to, bytes, passes); });
    row("cp.reduce.async.bulk.add.f32; 16 KB",
        [=] { add_bulk<<<room.processors * 4, 128, kAdded>>>(room.to, bytes, passes); });
  }
}

}  // namespace units
