// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A loop whose rounds multiply and then change the sums in one of two ways, as attention does for
// masked and for whole blocks. Both ways have products of the same shape.
using u32 = unsigned int;
using u64 = unsigned long long;

namespace {

#define SUMS_8(d, i)                                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ void multiply(float (&d)[16], u64 a, u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
      : SUMS_8(d, 0), SUMS_8(d, 8)
      : "l"(a), "l"(b));
}

template <bool kLong>
__device__ void round_of(float (&d)[16], u64 matrix, u32 round) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k = 0; k < 4; ++k) multiply(d, matrix + 2 * k, matrix + 512 + 2 * k);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    asm volatile("" : "+f"(d[i])::"memory");
    if (kLong) {
      d[i] = i < round ? sqrtf(d[i]) + 1.0f : d[i] * d[i];
    } else {
      d[i] *= 0.5f;
    }
  }
}

}  // namespace

extern "C" __global__ __launch_bounds__(128, 1) void k(float* out, u32 rounds) {
  extern __shared__ __align__(1024) unsigned char room[];
  const u32 start = (u32)__cvta_generic_to_shared(room);
  const u64 matrix = (u64)((start & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
  float d[16] = {};
#pragma unroll 1
  for (u32 round = 0; round < rounds; ++round) {
    if (round % 5 == 0 && round < 21) {
      round_of<true>(d, matrix, round);
    } else {
      round_of<false>(d, matrix, round);
    }
  }
  float total = 0;
  for (int i = 0; i < 16; ++i) total += d[i];
  out[threadIdx.x] = total;
}
