// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The inner loop of an attention kernel with two consumer warpgroups and no loads: S = Q K',
// P = exp2(S), O += P V, with tiles of 64 x 128 that lie in shared memory all the time. SCHEDULE
// chooses how the warpgroups share the tensor cores:
//   0  in step: both multiply, then both exponentiate
//   1  each as it comes
//   2  by turns: one multiplies while the other exponentiates
using u32 = unsigned int;
using u64 = unsigned long long;

namespace {

constexpr u32 kRows = 64, kKeys = 128, kWidth = 128;

#define SUMS_8(d, i)                                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_64(d)                                                                        \
  SUMS_8(d, 0), SUMS_8(d, 8), SUMS_8(d, 16), SUMS_8(d, 24), SUMS_8(d, 32), SUMS_8(d, 40), \
      SUMS_8(d, 48), SUMS_8(d, 56)
#define PLACES_64                                                                    \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

// K-major rows of 128 bytes, swizzled; MN-major panels of 64 columns for V.
__device__ u64 descriptor(u32 address) {
  return (u64)((address & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ u64 descriptor_of_v(u32 address) {
  return (u64)((address & 0x3FFFF) >> 4) | (u64)(kKeys * 128 >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

__device__ void scores(float (&s)[64], u64 q, u64 k, bool add) {
  asm volatile(
      "{\n .reg .pred add;\n setp.ne.u32 add, %66, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " PLACES_64
      ", %64, %65, add, 1, 1, 0, 0;\n}"
      : SUMS_64(s)
      : "l"(q), "l"(k), "r"((u32)add));
}
__device__ void sums(float (&o)[64], const u32* p, u64 v) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " PLACES_64
               ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
               : SUMS_64(o)
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v));
}
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void wait(float (&d)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
__device__ void tie(float (&d)[64]) {
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

__device__ u32 pack(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Barriers 1 and 2 say whose turn at the tensor cores it is.
__device__ void take_turn(u32 group) {
#if SCHEDULE == 2
  if (group == 0)
    asm volatile("bar.sync 1, 256;" ::: "memory");
  else
    asm volatile("bar.sync 2, 256;" ::: "memory");
#endif
}
__device__ void give_turn(u32 group) {
#if SCHEDULE == 2
  if (group == 0)
    asm volatile("bar.arrive 2, 256;" ::: "memory");
  else
    asm volatile("bar.arrive 1, 256;" ::: "memory");
#endif
}

__device__ void in_step() {
#if SCHEDULE == 0
  asm volatile("bar.sync 3, 256;" ::: "memory");
#endif
}

}  // namespace

extern "C" __global__ __launch_bounds__(256, 1) void k(float* out, u32 rounds, float scale) {
  extern __shared__ __align__(1024) unsigned char room[];
  const u32 start = (u32)__cvta_generic_to_shared(room);
  const u32 group = threadIdx.x / 128;
  const u32 q = start + group * kRows * kWidth * 2;
  const u32 keys = start + 2 * kRows * kWidth * 2, values = keys + kKeys * kWidth * 2;
  float o[64], s[64];
  u32 p[32];
  for (int i = 0; i < 64; ++i) o[i] = s[i] = 0;
  float total = 0;
  if (group == 1) give_turn(1);
  // O += P V of the round before and S = Q K' follow one another without a wait.
  for (u32 round = 0; round <= rounds; ++round) {
    take_turn(group);
    in_step();
    if (round > 0) {
      tie(o);
      fence();
#pragma unroll
      for (u32 step = 0; step < kKeys / 16; ++step) {
        sums(o, p + 4 * step, descriptor_of_v(values + step * 2048));
      }
      commit();
    }
    tie(s);
    fence();
#pragma unroll
    for (u32 step = 0; step < kWidth / 16; ++step) {
      const u32 column = step / 4 * kRows * 128 + step % 4 * 32;
      const u32 row = step / 4 * kKeys * 128 + step % 4 * 32;
      scores(s, descriptor(q + column), descriptor(keys + row), step > 0);
    }
    commit();
    give_turn(group);
    wait(o);
    tie(s);
    in_step();
#pragma unroll
    for (int i = 0; i < 64; i += 2) {
      const float x = exp2f(s[i] * scale), y = exp2f(s[i + 1] * scale);
      total += x + y;
      p[i / 2] = pack(x, y);
    }
  }
  if (group == 0) take_turn(0);  // the turn that was given last
  for (int i = 0; i < 64; ++i) total += o[i];
  out[threadIdx.x] = total;
}
