// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies between global and shared memory that go on by themselves: bulk, tensor and cp.async.
#pragma once
#include <chrono>

#include "units_memory.cuh"

namespace units {

constexpr int kSlots = 8, kBox = 16384;  // a box of 128 rows of 64 bf16
constexpr int kCopyShared = kSlots * kBox + 2 * kSlots * 8;
constexpr uint32_t kPlace = kSlots * kBox;  // what each block reads again and again

__device__ __forceinline__ void bulk(uint32_t to, const char* from, uint32_t bytes,
                                     uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void tensor(uint32_t to, const CUtensorMap* map, int column, int row,
                                       uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void tensor_to_both(uint32_t to, const CUtensorMap* map, int column,
                                               int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<uint16_t>(3))
      : "memory");
}

// The tensor has 2048 rows of 4096 bf16, which are 1024 boxes and 16 MB.
constexpr int kColumns = 4096, kRows = 2048;
__device__ __forceinline__ int column_of(uint32_t box) { return box % 64 * 64; }
__device__ __forceinline__ int row_of(uint32_t box) { return box / 64 % 16 * 128; }

inline CUtensorMap tensor_map(char* at, uint32_t box_rows) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {kColumns, kRows}, pitch[] = {kColumns * 2};
  const cuuint32_t box[] = {64, box_rows}, steps[] = {1, 1};
  const CUresult made =
      cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, at, sizes, pitch, box,
                             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (made != CUDA_SUCCESS) throw std::runtime_error("cuTensorMapEncodeTiled " + text(made));
  return map;
}

// Copies of 16 bytes, of which each brings the address of the next one.
__global__ void follow_copies(unsigned long long* cycles, uint32_t* sink, const char* from,
                              int skip, int copies) {
  __shared__ __align__(16) uint64_t words[3];
  const uint32_t to = address(words), barrier = address(words + 2);
  init(barrier, 1);
  init_visible();
  Watch watch;
#pragma unroll 1
  for (int k = 0; k < skip + copies; ++k) {
    if (k == skip) watch.start();
    expect(barrier, 16);
    bulk(to, from, 16, barrier);
    wait(barrier, k % 2);
    from = reinterpret_cast<const char*>(*static_cast<volatile uint64_t*>(words));
  }
  watch.stop(cycles);
  if (from == nullptr) *sink = 1;
}

inline double copy_way(uint32_t lines, int skip, int copies, bool cold) {
  lay_way<<<64, 256>>>(room.from, lines, 4096, 1);
  if (cold) flush();
  start({1, 1}, follow_copies, room.cycles, room.sink, room.from, skip, copies);
  return read_cycles(1) / copies;
}

// One thread starts `copies` of `bytes` and waits for all of them before the next round.
template <bool boxes>
__global__ void copies_in_rounds(unsigned long long* cycles, int repetitions, const char* from,
                                 uint32_t bytes, int copies,
                                 const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) char slots[];
  const uint32_t to = address(slots), barrier = to + kSlots * kBox;
  init(barrier, 1);
  init_visible();
  from += size_t{blockIdx.x} * kPlace;
  uint32_t at = 0, box = blockIdx.x * 7;
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
    expect(barrier, bytes * copies);
    for (int k = 0; k < copies; ++k) {
      if constexpr (boxes) {
        tensor(to + k * kBox, &map, column_of(box), row_of(box), barrier);
        ++box;
      } else {
        bulk(to + k * bytes, from + at, bytes, barrier);
        at = (at + bytes) & (kPlace - 1);
      }
    }
    wait(barrier, r % 2);
  }
  watch.stop(cycles);
}

inline double round_cycles(bool boxes, uint32_t bytes, int copies, int blocks) {
  const CUtensorMap map = tensor_map(room.from, 128);
  return per_repetition(
      [&](int n) {
        start({blocks, 1, kCopyShared}, boxes ? copies_in_rounds<true> : copies_in_rounds<false>,
              room.cycles, n, room.from, bytes, copies, map);
      },
      times(64), blocks);
}

// Eight copies of 16 KB are under way all the time: a slot is filled again as soon as it is full.
enum class Way { kBulk, kTensor, kMulticast };

template <Way way>
__global__ void copies_in_a_ring(unsigned long long* cycles, int repetitions, const char* from,
                                 const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) char slots[];
  const uint32_t to = address(slots), full = to + kSlots * kBox, empty = full + kSlots * 8;
  const uint32_t rank = way == Way::kMulticast ? cluster_rank() : 0;
  const uint32_t other = way == Way::kMulticast ? remote(empty, rank ^ 1) : 0;
  for (int k = 0; k < kSlots; ++k) {
    init(full + 8 * k, 1);
    init(empty + 8 * k, 2);
  }
  init_visible();
  if constexpr (way == Way::kMulticast) cluster_barrier();
  const auto fill = [&](int slot, uint32_t turn) {
    expect(full + 8 * slot, kBox);
    if constexpr (way == Way::kBulk) {
      bulk(to + slot * kBox, from + size_t{blockIdx.x} * kPlace + slot * kBox, kBox,
           full + 8 * slot);
    } else if constexpr (way == Way::kTensor) {
      const uint32_t box = blockIdx.x * 7 + turn * kSlots + slot;
      tensor(to + slot * kBox, &map, column_of(box), row_of(box), full + 8 * slot);
    } else {
      const uint32_t box = blockIdx.x / 2 * 15 + turn * kSlots + slot;
      tensor_to_both(to + slot * kBox + rank * (kBox / 2), &map, column_of(box),
                     row_of(box) + rank * 64, full + 8 * slot);
    }
  };
  Watch watch;
  watch.start();
  for (int slot = 0; slot < kSlots; ++slot) fill(slot, 0);
#pragma unroll 1
  for (int r = 1; r <= repetitions; ++r) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      wait(full + 8 * slot, (r - 1) % 2);
      if constexpr (way == Way::kMulticast) {
        // Both blocks write into the slot, so that both must have seen it full.
        arrive(empty + 8 * slot);
        arrive_remote(other + 8 * slot);
        wait_cluster(empty + 8 * slot, (r - 1) % 2);
      }
      fill(slot, r);
    }
  }
  for (int slot = 0; slot < kSlots; ++slot) wait(full + 8 * slot, repetitions % 2);
  watch.stop(cycles);
  if constexpr (way == Way::kMulticast) cluster_barrier();
}

template <Way way>
void ring_row(const char* what, int blocks) {
  figure("copy", what + ("; " + text(blocks)) + " blocks", "bytes a cycle and SM", [=] {
    const CUtensorMap map = tensor_map(room.from, way == Way::kMulticast ? 64 : 128);
    const double cycles = per_repetition(
        [&](int n) {
          start({blocks, 1, kCopyShared, way == Way::kMulticast ? 2 : 1}, copies_in_a_ring<way>,
                room.cycles, n, room.from, map);
        },
        times(64), blocks);
    return kSlots * kBox / cycles;
  });
}

// Stores of a box, each of which is waited for: until its bytes are read, or until they are
// written.
template <bool read>
__global__ void box_stores(unsigned long long* cycles, int repetitions,
                           const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) char slots[];
#pragma unroll 1
  for (int k = 0; k < kBox / 4; ++k) reinterpret_cast<uint32_t*>(slots)[k] = random_pair(k);
  asm volatile("fence.proxy.async;" ::: "memory");
  uint32_t box = blockIdx.x * 7;
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r, ++box) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];\n"
        " cp.async.bulk.commit_group;" ::"l"(&map),
        "r"(column_of(box)), "r"(row_of(box)), "r"(address(slots))
        : "memory");
    if constexpr (read) {
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    } else {
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
  }
  watch.stop(cycles);
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <bool read>
void store_row(const char* what, int blocks) {
  figure("copy", what + ("; " + text(blocks)) + " blocks", "cycles", [=] {
    const CUtensorMap map = tensor_map(room.to, 128);
    return per_repetition(
        [&](int n) {
          start({blocks, 1, kBox}, box_stores<read>, room.cycles, n, map);
        },
        times(64), blocks);
  });
}

// cp.async of 16 bytes a thread: `each` of them in a group, of which `left` are under way.
template <int each, int left>
__global__ void small_copies(unsigned long long* cycles, int repetitions, const char* from) {
  extern __shared__ __align__(1024) char slots[];
  const uint32_t bytes = blockDim.x * 16;
  const uint32_t to = address(slots) + threadIdx.x * 16;
  from += size_t{blockIdx.x} * kPlace + threadIdx.x * 16;
  uint32_t at = 0;
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < each; ++k) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + (at + k * bytes) % 65536),
                   "l"(from + at + k * bytes)
                   : "memory");
    }
    at = (at + each * bytes) & (kPlace - 1);
    asm volatile("cp.async.commit_group;\n cp.async.wait_group %0;" ::"n"(left) : "memory");
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  watch.stop(cycles);
}

template <int each, int left>
double small_cycles(int threads, int blocks) {
  return per_repetition(
      [=](int n) {
        start({blocks, threads, 131072}, small_copies<each, left>, room.cycles, n, room.from);
      },
      times(64), blocks);
}

inline double map_nanoseconds() {
  const int maps = room.tiny ? 4 : 10'000;
  const auto begin = std::chrono::steady_clock::now();
  cuuint64_t bits = 0;
  for (int k = 0; k < maps; ++k) {
    const CUtensorMap map = tensor_map(room.from + 1024 * k, 128);
    bits |= map.opaque[0];
  }
  if (bits == 0) throw std::runtime_error("a map is empty");
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  return time.count() / maps;
}

inline void measure_copies() {
  figure("copy", "cuTensorMapEncodeTiled on the host", "ns", [] { return map_nanoseconds(); });
  const int all = room.processors / 2 * 2;
  figure("copy", "cp.async.bulk of 16 bytes; chained; L2", "cycles",
         [] { return copy_way(8, 16, 160, false); });
  figure("copy", "cp.async.bulk of 16 bytes; chained; DRAM", "cycles",
         [] { return copy_way(100, 0, 100, true); });
  for (const int blocks : {1, all}) {
    const std::string of = "; " + text(blocks) + " blocks";
    for (const int kilo : {1, 2, 4, 8, 16, 32}) {
      figure("copy", "cp.async.bulk of " + text(kilo) + " KB; one at a time; L2" + of, "cycles",
             [=] { return round_cycles(false, kilo * 1024, 1, blocks); });
    }
    figure("copy", "cp.async.bulk; eight of 16 KB a round; L2" + of, "bytes a cycle and SM",
           [=] { return kSlots * kBox / round_cycles(false, kBox, kSlots, blocks); });
    ring_row<Way::kBulk>("cp.async.bulk; eight of 16 KB under way; L2", blocks);
    figure("copy", "tensor copy of 16 KB; one at a time; L2" + of, "cycles",
           [=] { return round_cycles(true, kBox, 1, blocks); });
    ring_row<Way::kTensor>("tensor copy; eight of 16 KB under way; L2", blocks);
    ring_row<Way::kMulticast>("tensor copy; multicast to 2; eight under way; L2",
                              blocks == 1 ? 2 : blocks);
    store_row<true>("tensor store of 16 KB; wait_group.read", blocks);
    store_row<false>("tensor store of 16 KB; wait_group", blocks);
    figure("copy", "cp.async; 8 of 16 bytes of 256 threads; two groups; L2" + of,
           "bytes a cycle and SM", [=] { return 256 * 128 / small_cycles<8, 1>(256, blocks); });
  }
  figure("copy", "cp.async of 16 bytes of 1 thread; L2", "cycles",
         [] { return small_cycles<1, 0>(1, 1); });
  figure("copy", "cp.async of 16 bytes of 32 threads; L2", "cycles",
         [] { return small_cycles<1, 0>(32, 1); });
}

}  // namespace units
