// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The matrix instructions of a warpgroup (sm_90a): d += A B with 64 rows, 16 columns of A a step. d
// lies as the accumulators of mma.sync do: warp w has rows 16 w to 16 w + 15, and d[4 n + c] is
// element c of its tile of 8 columns n (common/mma.cuh). A fragment of A is that of mma.sync too.
//
// Products run beside the warps that ask for them. From wgmma_fence() to the wait that covers a
// product nobody may touch d or A's registers. The compiler does not know, so
// wgmma_fence_operands(d) follows the wait.
#pragma once
#include "common/types.cuh"

namespace lathe {

// Stands before the first product that uses registers which somebody has written.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending groups are under way.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
template <int kCount>
__device__ __forceinline__ void wgmma_fence_operands(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The same of a fragment of A that is made before the fence.
__device__ __forceinline__ void wgmma_fence_operands(unsigned (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

// A tile lies in panels of 64 columns, rows of 128 bytes, with chunks in the order of the 128-byte
// swizzle: so a tensor map with that swizzle writes it, and attention/tile.cuh too. A step of 16
// columns begins 32 bytes further on, one of 16 rows 2048. Bits 32 to 45 of a descriptor are the
// distance of groups of eight rows, 1024 bytes. The low half has the address: what is further on in
// the same tile is an addition away, as no tile ends behind the addresses of shared memory.
struct WgmmaTile {
  unsigned low;

  __device__ __forceinline__ unsigned long long at(unsigned bytes) const {
    return static_cast<unsigned long long>(64u | 1u << 30) << 32 | (low + (bytes >> 4));
  }
};
__device__ __forceinline__ WgmmaTile wgmma_columns(unsigned address) {
  return {(address >> 4 & 0x3fff) | 1u << 16};
}
// The same tile turned: rows become columns. kPanelBytes are from a panel to the next.
template <int kPanelBytes>
__device__ __forceinline__ WgmmaTile wgmma_rows(unsigned address) {
  return {(address >> 4 & 0x3fff) | static_cast<unsigned>(kPanelBytes >> 4) << 16};
}

// The registers of d as operands, and their names in the instruction, by their number.
#define LATHE_WGMMA_8(d, i)                                                                   \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define LATHE_WGMMA_D_8(d) LATHE_WGMMA_8(d, 0)
#define LATHE_WGMMA_D_16(d) LATHE_WGMMA_8(d, 0), LATHE_WGMMA_8(d, 8)
#define LATHE_WGMMA_D_32(d) LATHE_WGMMA_D_16(d), LATHE_WGMMA_8(d, 16), LATHE_WGMMA_8(d, 24)
#define LATHE_WGMMA_D_40(d) LATHE_WGMMA_D_32(d), LATHE_WGMMA_8(d, 32)
#define LATHE_WGMMA_D_48(d) LATHE_WGMMA_D_40(d), LATHE_WGMMA_8(d, 40)
#define LATHE_WGMMA_D_56(d) LATHE_WGMMA_D_48(d), LATHE_WGMMA_8(d, 48)
#define LATHE_WGMMA_D_64(d) LATHE_WGMMA_D_56(d), LATHE_WGMMA_8(d, 56)
#define LATHE_WGMMA_D_80(d) LATHE_WGMMA_D_64(d), LATHE_WGMMA_8(d, 64), LATHE_WGMMA_8(d, 72)
#define LATHE_WGMMA_D_88(d) LATHE_WGMMA_D_80(d), LATHE_WGMMA_8(d, 80)
#define LATHE_WGMMA_D_96(d) LATHE_WGMMA_D_88(d), LATHE_WGMMA_8(d, 88)
#define LATHE_WGMMA_D_128(d)                                                               \
  LATHE_WGMMA_D_96(d), LATHE_WGMMA_8(d, 96), LATHE_WGMMA_8(d, 104), LATHE_WGMMA_8(d, 112), \
      LATHE_WGMMA_8(d, 120)
#define LATHE_WGMMA_N_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LATHE_WGMMA_N_16 \
  LATHE_WGMMA_N_8        \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define LATHE_WGMMA_N_32                     \
  LATHE_WGMMA_N_16                           \
  ", %16, %17, %18, %19, %20, %21, %22, %23" \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define LATHE_WGMMA_N_40 \
  LATHE_WGMMA_N_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39"
#define LATHE_WGMMA_N_48 \
  LATHE_WGMMA_N_40       \
  ", %40, %41, %42, %43, %44, %45, %46, %47"
#define LATHE_WGMMA_N_56 \
  LATHE_WGMMA_N_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55"
#define LATHE_WGMMA_N_64 \
  LATHE_WGMMA_N_56       \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define LATHE_WGMMA_N_80                     \
  LATHE_WGMMA_N_64                           \
  ", %64, %65, %66, %67, %68, %69, %70, %71" \
  ", %72, %73, %74, %75, %76, %77, %78, %79"
#define LATHE_WGMMA_N_88 \
  LATHE_WGMMA_N_80       \
  ", %80, %81, %82, %83, %84, %85, %86, %87"
#define LATHE_WGMMA_N_96 \
  LATHE_WGMMA_N_88       \
  ", %88, %89, %90, %91, %92, %93, %94, %95"
#define LATHE_WGMMA_N_128                            \
  LATHE_WGMMA_N_96                                   \
  ", %96, %97, %98, %99, %100, %101, %102, %103"     \
  ", %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119" \
  ", %120, %121, %122, %123, %124, %125, %126, %127"

// d += A B, or d = A B where `add` is 0. B is 16 rows of kColumns columns as it is multiplied; in
// shared memory kTurned says that its rows are those of the tile (wgmma_rows), else that they are
// its columns. A is in shared memory, by columns, or a fragment in registers; run_turned takes an A
// whose columns are the rows of its tile (wgmma_rows).
template <int kColumns, bool kTurned, class Element>
struct Wgmma;

#define LATHE_WGMMA_OF(columns, count, element, type, r0, r1, r2, r3, r4, r5, r6)                  \
  template <bool kTurned>                                                                          \
  struct Wgmma<columns, kTurned, element> {                                                        \
    static __device__ __forceinline__ void run(float (&d)[count], unsigned long long a,            \
                                               unsigned long long b, int add) {                    \
      asm volatile("{\n .reg .pred add;\n setp.ne.b32 add, %" #r2                                  \
                   ", 0;\n wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type    \
                   " {" LATHE_WGMMA_N_##count "}, %" #r0 ", %" #r1 ", add, 1, 1, 0, %" #r3 ";\n}"  \
                   : LATHE_WGMMA_D_##count(d)                                                      \
                   : "l"(a), "l"(b), "r"(add), "n"(kTurned ? 1 : 0));                              \
    }                                                                                              \
    static __device__ __forceinline__ void run_turned(float (&d)[count], unsigned long long a,     \
                                                      unsigned long long b, int add) {             \
      asm volatile("{\n .reg .pred add;\n setp.ne.b32 add, %" #r2                                  \
                   ", 0;\n wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type    \
                   " {" LATHE_WGMMA_N_##count "}, %" #r0 ", %" #r1 ", add, 1, 1, 1, %" #r3 ";\n}"  \
                   : LATHE_WGMMA_D_##count(d)                                                      \
                   : "l"(a), "l"(b), "r"(add), "n"(kTurned ? 1 : 0));                              \
    }                                                                                              \
    static __device__ __forceinline__ void run(float (&d)[count], const unsigned (&a)[4],          \
                                               unsigned long long b, int add) {                    \
      asm volatile("{\n .reg .pred add;\n setp.ne.b32 add, %" #r5                                  \
                   ", 0;\n wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type    \
                   " {" LATHE_WGMMA_N_##count "}, {%" #r0 ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4 \
                                              ", add, 1, 1, %" #r6 ";\n}"                          \
                   : LATHE_WGMMA_D_##count(d)                                                      \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),                 \
                     "n"(kTurned ? 1 : 0));                                                        \
    }                                                                                              \
  };
#define LATHE_WGMMA(columns, count, r0, r1, r2, r3, r4, r5, r6)          \
  LATHE_WGMMA_OF(columns, count, f16, "f16", r0, r1, r2, r3, r4, r5, r6) \
  LATHE_WGMMA_OF(columns, count, bf16, "bf16", r0, r1, r2, r3, r4, r5, r6)

LATHE_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, 14)
LATHE_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22)
LATHE_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
LATHE_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46)
LATHE_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54)
LATHE_WGMMA(112, 56, 56, 57, 58, 59, 60, 61, 62)
LATHE_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
LATHE_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86)
LATHE_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94)
LATHE_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102)
LATHE_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134)

#undef LATHE_WGMMA
#undef LATHE_WGMMA_OF
#undef LATHE_WGMMA_8
#undef LATHE_WGMMA_D_8
#undef LATHE_WGMMA_N_8
#undef LATHE_WGMMA_D_16
#undef LATHE_WGMMA_N_16
#undef LATHE_WGMMA_D_32
#undef LATHE_WGMMA_N_32
#undef LATHE_WGMMA_D_40
#undef LATHE_WGMMA_N_40
#undef LATHE_WGMMA_D_48
#undef LATHE_WGMMA_N_48
#undef LATHE_WGMMA_D_56
#undef LATHE_WGMMA_N_56
#undef LATHE_WGMMA_D_64
#undef LATHE_WGMMA_N_64
#undef LATHE_WGMMA_D_80
#undef LATHE_WGMMA_N_80
#undef LATHE_WGMMA_D_88
#undef LATHE_WGMMA_N_88
#undef LATHE_WGMMA_D_96
#undef LATHE_WGMMA_N_96
#undef LATHE_WGMMA_D_128
#undef LATHE_WGMMA_N_128

// d = A B^T as a group of its own: 64 rows of A, of a tile of kARows, by the rows of B, of a tile
// of kBRows, both kColumns wide.
template <class Element, int kColumns, int kARows, int kBRows, int kCount>
__device__ __forceinline__ void start_rows_by_rows(WgmmaTile a, WgmmaTile b, float (&d)[kCount]) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kColumns / 16; ++step) {
    const unsigned panel = step / 4, inside = step % 4 * 32;
    Wgmma<2 * kCount, false, Element>::run(d, a.at(panel * kARows * 128 + inside),
                                           b.at(panel * kBRows * 128 + inside), step > 0);
  }
  wgmma_commit();
}

}  // namespace lathe
