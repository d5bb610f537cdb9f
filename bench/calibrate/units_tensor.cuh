// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Latencies and rates of the tensor cores: mma.sync and wgmma.
#pragma once
#include "units_measure.cuh"

namespace units {

template <bool tf32>
__device__ __forceinline__ void product(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  if constexpr (tf32) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

template <bool tf32, int chains>
__global__ void products_in_turns(unsigned long long* cycles, uint32_t* sink, int repetitions) {
  float d[chains][4] = {};
  uint32_t a[4], b[2];
  for (int k = 0; k < 4; ++k) a[k] = random_pair(threadIdx.x * 8 + k);
  for (int k = 0; k < 2; ++k) b[k] = random_pair(threadIdx.x * 8 + 4 + k);
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < 16; ++k) {
#pragma unroll
      for (int c = 0; c < chains; ++c) product<tf32>(d[c], a, b);
    }
  }
  watch.stop(cycles);
  float sum = 0;
  for (int c = 0; c < chains; ++c) sum += d[c][0] + d[c][1] + d[c][2] + d[c][3];
  if (sum == 77.125f) *sink = 1;
}

template <bool tf32, int chains>
void mma(int warps) {
  const std::string what =
      text(chains) + " accumulators; " + text(warps) + (warps == 1 ? " warp" : " warps");
  figure(tf32 ? "mma.m16n8k8.tf32" : "mma.m16n8k16.bf16", what, "cycles an mma of a part", [=] {
    const double each = per_repetition(
        [=](int n) {
          start({1, 32 * warps}, products_in_turns<tf32, chains>, room.cycles, room.sink, n);
        },
        times(32));
    return each / (16.0 * chains * std::max(1, warps / 4));
  });
}

template <bool tf32>
void mma_all() {
  mma<tf32, 1>(1);  // the dependent latency
  for (const int warps : {4, 8, 16}) {
    mma<tf32, 1>(warps);
    mma<tf32, 2>(warps);
    mma<tf32, 3>(warps);
    mma<tf32, 4>(warps);
    mma<tf32, 5>(warps);
    mma<tf32, 6>(warps);
    mma<tf32, 8>(warps);
  }
}

// Names of the registers of an accumulator, four to a leaf of a tree of letters, and a statement
// for each leaf. The registers are the kernel's own in PTX: operands of asm end at thirty.
#define UNITS_L4(p) p "0, " p "1, " p "2, " p "3"
#define UNITS_L8(p) UNITS_L4(p "a") ", " UNITS_L4(p "b")
#define UNITS_L16(p) UNITS_L8(p "c") ", " UNITS_L8(p "d")
#define UNITS_L32(p) UNITS_L16(p "e") ", " UNITS_L16(p "f")
#define UNITS_L48(p) UNITS_L32(p "g") ", " UNITS_L16(p "h")
#define UNITS_L64(p) UNITS_L32(p "i") ", " UNITS_L32(p "j")
#define UNITS_L96(p) UNITS_L64(p "k") ", " UNITS_L32(p "l")
#define UNITS_L128(p) UNITS_L64(p "m") ", " UNITS_L64(p "n")
#define UNITS_EACH4(f, p) f(p)
#define UNITS_EACH8(f, p) f(p "a") f(p "b")
#define UNITS_EACH16(f, p) UNITS_EACH8(f, p "c") UNITS_EACH8(f, p "d")
#define UNITS_EACH32(f, p) UNITS_EACH16(f, p "e") UNITS_EACH16(f, p "f")
#define UNITS_EACH48(f, p) UNITS_EACH32(f, p "g") UNITS_EACH16(f, p "h")
#define UNITS_EACH64(f, p) UNITS_EACH32(f, p "i") UNITS_EACH32(f, p "j")
#define UNITS_EACH96(f, p) UNITS_EACH64(f, p "k") UNITS_EACH32(f, p "l")
#define UNITS_EACH128(f, p) UNITS_EACH64(f, p "m") UNITS_EACH64(f, p "n")
#define UNITS_ZERO(p)                                                      \
  "mov.f32 " p "0, 0f00000000;\n mov.f32 " p "1, 0f00000000;\n mov.f32 " p \
  "2, 0f00000000;\n mov.f32 " p "3, 0f00000000;\n"
#define UNITS_STORE(p) "st.volatile.global.v4.f32 [%0], {" UNITS_L4(p) "};\n"

template <int n, int accumulator>
struct Wgmma;

#define UNITS_WGMMA(n, half, index, name)                                                          \
  template <>                                                                                      \
  struct Wgmma<n, index> {                                                                         \
    static __device__ __forceinline__ void declare() {                                             \
      asm volatile(".reg .f32 " UNITS_L##half(name) ";\n" UNITS_EACH##half(UNITS_ZERO, name));     \
    }                                                                                              \
    static __device__ __forceinline__ void shared(uint64_t a, uint64_t b) {                        \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n                                          \
                   "k16.f32.bf16.bf16 {" UNITS_L##half(name) "}, %0, %1, 1, 1, 1, 0, 0;" ::"l"(a), \
                   "l"(b)                                                                          \
                   : "memory");                                                                    \
    }                                                                                              \
    static __device__ __forceinline__ void registers(const uint32_t (&a)[4], uint64_t b) {         \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" UNITS_L##half(     \
                       name) "}, {%0, %1, %2, %3}, %4, 1, 1, 1, 0;" ::"r"(a[0]),                   \
                   "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                         \
                   : "memory");                                                                    \
    }                                                                                              \
    static __device__ __forceinline__ void store(uint32_t* sink) {                                 \
      asm volatile(UNITS_EACH##half(UNITS_STORE, name)::"l"(sink) : "memory");                     \
    }                                                                                              \
  };
UNITS_WGMMA(8, 4, 0, "x")
UNITS_WGMMA(16, 8, 0, "x")
UNITS_WGMMA(32, 16, 0, "x")
UNITS_WGMMA(64, 32, 0, "x")
UNITS_WGMMA(96, 48, 0, "x")
UNITS_WGMMA(128, 64, 0, "x")
UNITS_WGMMA(192, 96, 0, "x")
UNITS_WGMMA(256, 128, 0, "x")
UNITS_WGMMA(8, 4, 1, "y")
UNITS_WGMMA(64, 32, 1, "y")
UNITS_WGMMA(128, 64, 1, "y")
#undef UNITS_WGMMA

__device__ __forceinline__ void fence_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int left>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// Tiles of 64 columns lie in rows of 128 bytes, which are swizzled; groups of eight rows follow one
// another. A step along k is 32 bytes of a row.
constexpr uint64_t kSwizzled = (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (1 << 16);
constexpr int kTileA = 64 * 128, kTileB = 256 * 128;
constexpr int kProductShared = 3 * 2 * kTileA + 2 * kTileB;

// Batches of `count` products, with one batch under way while the next one starts (`left` 1) or
// each waited for (`left` 0). Where there are several warpgroups, each has rows of A of its own,
// and all share B. One alone has descriptors that the compiler knows to be the same in all threads.
template <int n, bool from_registers, int accumulators, int count, int left, bool several>
__global__ void __launch_bounds__(384)
    products_of_groups(unsigned long long* cycles, uint32_t* sink, int repetitions) {
  extern __shared__ __align__(1024) uint32_t tiles[];
  for (int k = threadIdx.x; k < kProductShared / 4; k += blockDim.x) tiles[k] = random_pair(k);
  asm volatile("fence.proxy.async;" ::: "memory");
  const uint32_t group = several ? threadIdx.x / 128 : 0;
  const uint32_t at_a = address(tiles) + group * 2 * kTileA;
  const uint32_t at_b = address(tiles) + 3 * 2 * kTileA;
  const uint64_t a = kSwizzled | ((at_a & 0x3FFFF) >> 4), b = kSwizzled | ((at_b & 0x3FFFF) >> 4);
  uint32_t row[4];
  for (int k = 0; k < 4; ++k) row[k] = random_pair(threadIdx.x * 4 + k);
  Wgmma<n, 0>::declare();
  if constexpr (accumulators == 2) Wgmma<n, 1>::declare();
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
    fence_products();
#pragma unroll
    for (int k = 0; k < count; ++k) {
      const uint64_t tile_a = a + 2 * (k % 4) + (k / 4 % 2) * (kTileA >> 4);
      const uint64_t tile_b = b + 2 * (k % 4) + (k / 4 % 2) * (kTileB >> 4);
      if constexpr (accumulators == 2) {
        if (k % 2 == 0) {
          if constexpr (from_registers) Wgmma<n, 0>::registers(row, tile_b);
          if constexpr (!from_registers) Wgmma<n, 0>::shared(tile_a, tile_b);
        } else {
          if constexpr (from_registers) Wgmma<n, 1>::registers(row, tile_b);
          if constexpr (!from_registers) Wgmma<n, 1>::shared(tile_a, tile_b);
        }
      } else {
        if constexpr (from_registers) Wgmma<n, 0>::registers(row, tile_b);
        if constexpr (!from_registers) Wgmma<n, 0>::shared(tile_a, tile_b);
      }
    }
    commit_products();
    wait_products<left>();
  }
  wait_products<0>();
  watch.stop(cycles);
  if (repetitions < 0) {
    Wgmma<n, 0>::store(sink);
    if constexpr (accumulators == 2) Wgmma<n, 1>::store(sink);
  }
}

template <int n, bool from_registers, int accumulators, int count, int left, bool several = false>
double wgmma_cycles(int groups) {  // of a batch
  return per_repetition(
      [=](int r) {
        start({1, 128 * groups, kProductShared},
              products_of_groups<n, from_registers, accumulators, count, left, several>,
              room.cycles, room.sink, r);
      },
      times(64));
}

template <int n, bool from_registers>
std::string wgmma_name() {
  return "n " + text(n) + (from_registers ? "; A in registers" : "; A in shared memory");
}

template <int n, bool from_registers, int accumulators = 1, bool several = false>
void wgmma_run(int groups = 1) {
  std::string what = wgmma_name<n, from_registers>() + "; long run";
  if (accumulators == 2) what += "; two accumulators in turns";
  if (groups > 1) what += "; " + text(groups) + " warpgroups";
  figure("wgmma", what, "cycles a wgmma of the SM", [=] {
    return wgmma_cycles<n, from_registers, accumulators, 8, 1, several>(groups) / (8.0 * groups);
  });
}

template <int n, bool from_registers, int count>
void wgmma_wait() {
  const std::string what = wgmma_name<n, from_registers>() + "; fence to wait 0 of " + text(count);
  figure("wgmma", what, "cycles", [] { return wgmma_cycles<n, from_registers, 1, count, 0>(1); });
}

template <int n, bool from_registers>
void wgmma_waits() {
  wgmma_wait<n, from_registers, 1>();
  wgmma_wait<n, from_registers, 2>();
  wgmma_wait<n, from_registers, 4>();
  wgmma_wait<n, from_registers, 8>();
}

template <bool from_registers>
void wgmma_all() {
  wgmma_run<8, from_registers>();
  wgmma_run<16, from_registers>();
  wgmma_run<32, from_registers>();
  wgmma_run<64, from_registers>();
  wgmma_run<96, from_registers>();
  wgmma_run<128, from_registers>();
  wgmma_run<192, from_registers>();
  wgmma_run<256, from_registers>();
  wgmma_run<8, from_registers, 2>();
  wgmma_run<64, from_registers, 2>();
  wgmma_run<128, from_registers, 2>();
  constexpr bool several = true;
  for (const int groups : {2, 3}) {
    wgmma_run<8, from_registers, 1, several>(groups);
    wgmma_run<64, from_registers, 1, several>(groups);
    wgmma_run<128, from_registers, 1, several>(groups);
    // Three groups with 256 columns have 168 registers a thread, of which sums take 128.
    wgmma_run<256, from_registers, 1, several>(groups);
  }
  wgmma_waits<8, from_registers>();
  wgmma_waits<64, from_registers>();
  wgmma_waits<128, from_registers>();
  wgmma_waits<256, from_registers>();
}

inline void measure_tensor() {
  mma_all<false>();
  mma_all<true>();
  wgmma_all<false>();
  wgmma_all<true>();
}

}  // namespace units
