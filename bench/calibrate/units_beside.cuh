// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Loads of shared memory while copies write to it: whether the two take turns.
#pragma once
#include "units_copies.cuh"

namespace units {

enum class Beside { kNothing, kSmall, kBulk };
constexpr int kLoadedBytes = 16384, kCopiedBytes = 65536, kLoadsOfRound = 64, kBesideThreads = 256;

// Eight warps load 256 KB of shared memory a round, of which each pass brings 128 bytes, and 64 KB
// are written to another part of it meanwhile. If writes take passes from loads, a round is a
// quarter longer than without them.
template <Beside beside>
__global__ void loads_beside(unsigned long long* cycles, uint32_t* sink, int repetitions,
                             const char* from) {
  extern __shared__ __align__(1024) char room_of_block[];
  const uint32_t loaded = address(room_of_block) + threadIdx.x % 32 * 16;
  const uint32_t copied = address(room_of_block) + kLoadedBytes;
  const uint32_t barrier = copied + kCopiedBytes;
  if (threadIdx.x == 0) init(barrier, 1);
  if (threadIdx.x == 0) init_visible();
  __syncthreads();
  uint32_t sum = 0;
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
    if constexpr (beside == Beside::kBulk) {
      if (threadIdx.x == 0) {
        if (r > 0) wait(barrier, (r - 1) % 2);
        expect(barrier, kCopiedBytes);
        for (int k = 0; k < kCopiedBytes / kBox; ++k)
          bulk(copied + k * kBox, from + k * kBox, kBox, barrier);
      }
    }
#pragma unroll
    for (int k = 0; k < kLoadsOfRound; ++k) {
      if constexpr (beside == Beside::kSmall) {
        if (k % 4 == 0) {
          const uint32_t at = (k / 4 * kBesideThreads + threadIdx.x) * 16;
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(copied + at),
                       "l"(from + at)
                       : "memory");
        }
      }
      uint32_t x[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                   : "r"(loaded + k * 512 % kLoadedBytes));
      sum ^= x[0] ^ x[1] ^ x[2] ^ x[3];
    }
    if constexpr (beside == Beside::kSmall)
      asm volatile("cp.async.commit_group;\n cp.async.wait_group 1;" ::: "memory");
  }
  if constexpr (beside == Beside::kSmall) asm volatile("cp.async.wait_group 0;" ::: "memory");
  if constexpr (beside == Beside::kBulk) {
    if (threadIdx.x == 0) wait(barrier, (repetitions - 1) % 2);
  }
  watch.stop(cycles);
  if (sum == 0x12345671) *sink = sum;
}

template <Beside beside>
void beside_row(const char* what) {
  figure("shared", what, "bytes loaded a cycle and SM", [] {
    const double cycles = per_repetition(
        [](int n) {
          start({1, kBesideThreads, kLoadedBytes + kCopiedBytes + 16}, loads_beside<beside>,
                room.cycles, room.sink, n, room.from);
        },
        times(64));
    return kBesideThreads / 32 * kLoadsOfRound * 512 / cycles;
  });
}

inline void measure_beside() {
  beside_row<Beside::kNothing>("ldmatrix.x4 of eight warps");
  beside_row<Beside::kSmall>("ldmatrix.x4 of eight warps; cp.async writes a quarter as much");
  beside_row<Beside::kBulk>("ldmatrix.x4 of eight warps; bulk copies write a quarter as much");
}

}  // namespace units
