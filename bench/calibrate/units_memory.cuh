// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Loads and stores: latencies of caches and memory, and what comes from them a cycle.
#pragma once
#include "units_measure.cuh"

namespace units {

constexpr size_t kMega = size_t{1} << 20;

__global__ void read_all(const char* from, size_t bytes, uint32_t* sink) {
  const size_t step = size_t{gridDim.x} * blockDim.x * 16;
  uint32_t sum = 0;
  size_t at = (size_t{blockIdx.x} * blockDim.x + threadIdx.x) * 16;
  for (; at + 3 * step < bytes; at += 4 * step) {
    uint4 x[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = *reinterpret_cast<const uint4*>(from + at + k * step);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += x[k].x ^ x[k].y ^ x[k].z ^ x[k].w;
  }
  for (; at < bytes; at += step) sum += *reinterpret_cast<const uint32_t*>(from + at);
  if (sum == 0x12345671) *sink = sum;
}

// Four places of 16 bytes a thread, as the test of the clock has it.
__global__ void copy_all(const char* from, char* to) {
  const size_t at = size_t{blockIdx.x} * 16384 + threadIdx.x * 16;
  uint4 x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = *reinterpret_cast<const uint4*>(from + at + 4096 * k);
#pragma unroll
  for (int k = 0; k < 4; ++k) *reinterpret_cast<uint4*>(to + at + 4096 * k) = x[k];
}

__global__ void write_all(char* to, uint32_t value) {
  const size_t at = size_t{blockIdx.x} * 16384 + threadIdx.x * 16;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    *reinterpret_cast<uint4*>(to + at + 4096 * k) = make_uint4(value, value, value, value);
  }
}

// Afterwards L2 holds nothing of the first range: four times its size was read from the other one.
inline void flush() {
  const size_t bytes = std::min(room.bytes, 256 * kMega);
  read_all<<<room.processors * 2, 1024>>>(room.to + room.bytes - bytes, bytes, room.sink);
  CHECKED(cudaGetLastError());
}

// A way through `lines` places of the first range: one after the other, or, with an odd factor and
// a power of two of places, each of them once in an order that no prefetch follows.
__global__ void lay_way(char* from, uint32_t lines, uint64_t stride, uint32_t factor) {
  for (uint32_t k = blockIdx.x * blockDim.x + threadIdx.x; k < lines; k += gridDim.x * blockDim.x) {
    const uint32_t next = factor == 1 ? (k + 1) % lines : (k * factor + 12345) & (lines - 1);
    *reinterpret_cast<char**>(from + k * stride) = from + next * stride;
  }
}

template <int kind>
__global__ void follow_way(unsigned long long* cycles, uint32_t* sink, const char* from, int skip,
                           int loads) {
  uint64_t at = reinterpret_cast<uint64_t>(from);
#pragma unroll 1
  for (int k = 0; k < skip; ++k) asm volatile("ld.global.u64 %0, [%0];" : "+l"(at));
  if (at == 7) *sink = 1;  // The clock starts when the last of them is here.
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int k = 0; k < loads; k += 16) {
#pragma unroll
    for (int u = 0; u < 16; ++u) {
      if constexpr (kind == 0) {
        asm volatile("ld.global.u64 %0, [%0];" : "+l"(at));
      } else {
        asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at));
      }
    }
  }
  if (at == 7) *sink = 1;  // The last load counts too.
  watch.stop(cycles);
}

// Cycles of each of `loads` loads, after `skip` others.
template <int kind>
double way(uint32_t lines, uint64_t stride, uint32_t factor, int skip, int loads, bool cold) {
  lay_way<<<64, 256>>>(room.from, lines, stride, factor);
  if (cold) flush();
  start({1, 1}, follow_way<kind>, room.cycles, room.sink, room.from, skip, loads);
  return read_cycles(1) / loads;
}

__global__ void remote_chain(unsigned long long* cycles, uint32_t* sink, int repetitions) {
  __shared__ uint32_t word;
  uint32_t at = remote(address(&word), cluster_rank() ^ 1);
  // The word leads to itself by the address that the other block has for it.
  asm volatile("st.shared::cluster.u32 [%0], %0;" ::"r"(at) : "memory");
  cluster_barrier();
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < 16; ++k) asm volatile("ld.shared::cluster.u32 %0, [%0];" : "+r"(at));
  }
  if (at == 7) *sink = 1;
  watch.stop(cycles);
  cluster_barrier();
}

// All blocks read the same range of `bytes`, 16 bytes a thread and eight loads under way; they
// start `apart` bytes from one another.
__global__ void __launch_bounds__(1024)
    read_range(unsigned long long* cycles, uint32_t* sink, int repetitions, const char* from,
               uint32_t bytes, uint32_t apart) {
  uint32_t sum = 0;
  uint32_t place = static_cast<uint32_t>(size_t{blockIdx.x} * apart % bytes);
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll 1
    for (uint32_t done = 0; done < bytes; done += 131072) {
      uint32_t x[8][4];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[k][0]), "=r"(x[k][1]), "=r"(x[k][2]), "=r"(x[k][3])
                     : "l"(from + place + 16384 * k + threadIdx.x * 16));
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) sum += x[k][0] ^ x[k][1] ^ x[k][2] ^ x[k][3];
      place += 131072;
      if (place >= bytes) place -= bytes;
    }
  }
  watch.stop(cycles);
  if (sum == 0x12345671) *sink = sum;
}

inline void range_row(int blocks, uint32_t mega, uint32_t apart, const std::string& which) {
  figure("l2", text(mega) + " MB read by " + which, "bytes a cycle and SM", [=] {
    const uint32_t bytes = room.tiny ? 131072 : mega << 20;
    const double cycles = per_repetition(
        [=](int n) {
          start({blocks, 1024}, read_range, room.cycles, room.sink, n, room.from, bytes, apart);
        },
        1, blocks);
    return bytes / cycles;
  });
}

// One block, whose threads each wait for `width` words before they ask for more.
template <int width>
__global__ void __launch_bounds__(1024)
    read_alone(unsigned long long* cycles, uint32_t* sink, int rounds, const char* from) {
  const char* at = from + threadIdx.x * width * 8;
  uint64_t sum = 0;
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
    uint64_t x, y = 0;
    if constexpr (width == 1) {
      asm volatile("ld.global.u64 %0, [%1];" : "=l"(x) : "l"(at));
    } else {
      asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(x), "=l"(y) : "l"(at));
    }
    sum += x + y;
    at += (x & 1) + 1024 * width * 8;  // The range holds zeros.
  }
  if (sum == 77) *sink = 1;
  watch.stop(cycles);
}

inline void bandwidth_rows() {
  const int blocks = static_cast<int>(room.bytes / 16384), launches = room.tiny ? 1 : 6;
  const auto row = [=](const char* what, double bytes, auto launch) {
    figure("dram", what, "GB/s", [=] {
      const double time = milliseconds([=] {
        for (int k = 0; k < launches; ++k) launch();
      });
      return bytes * launches / time * 1e-6;
    });
  };
  const double bytes = static_cast<double>(room.bytes);
  row("read", bytes,
      [] { read_all<<<room.processors * 2, 1024>>>(room.from, room.bytes, room.sink); });
  row("copy; bytes read and written", 2 * bytes,
      [=] { copy_all<<<blocks, 256>>>(room.from, room.to); });
  row("write", bytes, [=] { write_all<<<blocks, 256>>>(room.to, 0); });
}

inline void latency_rows() {
  figure("l1", "dependent ld.global; 16 lines", "cycles",
         [] { return way<0>(16, 4096, 1, 32, 1600, false); });
  const uint32_t lines = room.tiny ? 1024 : 4096;
  figure("l2", "dependent ld.global; 16 MB in steps of 4096", "cycles", [=] {
    return way<0>(lines, 4096, 1, static_cast<int>(lines), static_cast<int>(lines), false);
  });
  figure("l2", "dependent ld.global.cg; 4 MB in steps of 4096", "cycles",
         [=] { return way<1>(1024, 4096, 1, 1024, 1024, false); });
  figure("l2", "dependent ld.global.cg; 64 KB in steps of 128", "cycles",
         [=] { return way<1>(512, 128, 1, 512, 512, false); });
  figure("dram", "dependent ld.global; 64 lines in steps of 4096", "cycles",
         [] { return way<0>(64, 4096, 1, 0, 64, true); });
  figure("dram", "dependent ld.global; 64 lines; page known", "cycles",
         [] { return way<0>(256, 4096, 1, 64, 64, true); });
  const uint32_t far = static_cast<uint32_t>(room.bytes / 32768);
  figure("dram", "dependent ld.global; anywhere in 512 MB", "cycles",
         [=] { return way<0>(far, 32768, 5 + 4 * 1021, 0, room.tiny ? 64 : 2048, true); });
}

inline void measure_memory() {
  latency_rows();
  figure("dsmem", "dependent ld.shared::cluster", "cycles", [] {
    return per_repetition(
               [](int n) {
                 start({2, 1, 0, 2}, remote_chain, room.cycles, room.sink, n);
               },
               times(32)) /
           16;
  });
  bandwidth_rows();
  CHECKED(cudaMemset(room.from, 0, room.bytes));
  CHECKED(cudaMemset(room.to, 0, room.bytes));
  for (const uint32_t mega : {4u, 16u, 30u}) {
    range_row(room.processors, mega, 0, "all SMs in step");
    range_row(room.processors, mega, 131072, "all SMs; each elsewhere");
  }
  range_row(1, 4, 0, "one SM");
  figure("dram", "one block of 1024 threads; 8 bytes each at a time", "bytes a cycle", [] {
    flush();
    start({1, 1024}, read_alone<1>, room.cycles, room.sink, 24, room.from);
    return 24 * 8192 / read_cycles(1);
  });
  figure("dram", "one block of 1024 threads; 16 bytes each at a time", "bytes a cycle", [] {
    flush();
    start({1, 1024}, read_alone<2>, room.cycles, room.sink, 24, room.from);
    return 24 * 16384 / read_cycles(1);
  });
}

}  // namespace units
