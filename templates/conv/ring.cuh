// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The rows that a warp walks come to shared memory ahead of their use, in a ring: so many bytes are
// under way for each warp as memory at its full rate needs, and no register holds them. Each lane
// copies and reads its own channels alone, so that no barrier stands between a copy and its use.
//
// Rows come in groups of kConvGroup, which are unrolled where they lie inside one sequence. A walk
// fetches kGroups groups, then waits for the oldest one, uses it, and fetches the next one into its
// place.
#pragma once
#include "common/async_copy.cuh"
#include "common/types.cuh"

namespace lathe {

constexpr int kConvGroup = 4;  // rows

template <class Config>
struct ConvRing {
  static constexpr int kGroups = Config::kRing / kConvGroup;
  static constexpr int kRowBytes = 32 * Config::kVectorBytes;
  static constexpr int kGroupBytes = kConvGroup * kRowBytes;
  static constexpr int kBytes = kGroups * kGroupBytes;  // of one warp and one tensor
  // The rows before those that a warp walks, which lie beside its rings.
  static constexpr int kBefore = Config::kWidth - 1;
  static constexpr int kBeforeBytes = kBefore * kRowBytes;
  static_assert(kGroups >= 2 && Config::kRing % kConvGroup == 0, "two groups or more, and whole");
};

// Raw memory from shared memory, by the 32-bit address of this lane's channels.
__device__ __forceinline__ void ring_read(unsigned from, Words<16>& to) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void ring_read(unsigned from, Words<8>& to) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(to.word[0]), "=r"(to.word[1])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void ring_read(unsigned from, Words<4>& to) {
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to.word[0]) : "r"(from) : "memory");
}
__device__ __forceinline__ void ring_read(unsigned from, Words<2>& to) {
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(to.half) : "r"(from) : "memory");
}

// Single elements of 16 bits are less than an asynchronous copy takes: they go through a register.
template <int kBytes>
__device__ __forceinline__ void ring_copy(unsigned to, const void* from) {
  if constexpr (kBytes == 16) copy_async(to, from, true);
  if constexpr (kBytes == 8) copy_async_pair(to, from, true);
  if constexpr (kBytes == 4) copy_async_word(to, from, true);
  if constexpr (kBytes == 2) {
    Words<2> raw;
    load_global(from, raw);
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(raw.half) : "memory");
  }
}

// Stores where `wanted`, without a branch that would keep rows apart.
__device__ __forceinline__ void store_where(bool wanted, void* to, const Words<16>& from) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %5, 0;\n"
      " @p st.global.v4.u32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to),
      "r"(from.word[0]), "r"(from.word[1]), "r"(from.word[2]), "r"(from.word[3]),
      "r"(static_cast<int>(wanted))
      : "memory");
}
__device__ __forceinline__ void store_where(bool wanted, void* to, const Words<8>& from) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %3, 0;\n @p st.global.v2.u32 [%0], {%1, %2};\n}" ::"l"(
          to),
      "r"(from.word[0]), "r"(from.word[1]), "r"(static_cast<int>(wanted))
      : "memory");
}
__device__ __forceinline__ void store_where(bool wanted, void* to, const Words<4>& from) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %2, 0;\n @p st.global.u32 [%0], %1;\n}" ::"l"(to),
      "r"(from.word[0]), "r"(static_cast<int>(wanted))
      : "memory");
}
__device__ __forceinline__ void store_where(bool wanted, void* to, const Words<2>& from) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %2, 0;\n @p st.global.u16 [%0], %1;\n}" ::"l"(to),
      "h"(from.half), "r"(static_cast<int>(wanted))
      : "memory");
}

// One tensor's rows of a warp. `left` counts the rows that are still to be fetched.
template <class Config>
struct ConvStream {
  using Ring = ConvRing<Config>;
  const typename Config::Element* next;
  long long stride;  // of a row, in elements
  int left;
  unsigned shared;  // this lane's place in the first row of the ring

  // Fetches a group into the place `offset` bytes from the start of the ring.
  __device__ __forceinline__ void fetch(unsigned offset) {
    if (left >= kConvGroup) {
#pragma unroll
      for (int g = 0; g < kConvGroup; ++g) fetch_row(offset, g);
    } else {
#pragma unroll
      for (int g = 0; g < kConvGroup - 1; ++g) {
        if (g < left) fetch_row(offset, g);
      }
    }
    left -= kConvGroup;
  }
  __device__ __forceinline__ void fetch_row(unsigned offset, int g) {
    ring_copy<Config::kVectorBytes>(shared + offset + g * Ring::kRowBytes, next);
    next += stride;
  }
  // Row `row` of the group at `offset`.
  __device__ __forceinline__ Words<Config::kVectorBytes> read(unsigned offset, int row) const {
    Words<Config::kVectorBytes> raw;
    ring_read(shared + offset + row * Ring::kRowBytes, raw);
    return raw;
  }
};

// Brings the rows before the first one, as far as `count` of them are in memory: row j goes to
// place j of kBefore. They belong to the group that is closed next.
template <class Config>
__device__ __forceinline__ void fetch_before(unsigned shared, const typename Config::Element* first,
                                             long long stride, int count) {
  using Ring = ConvRing<Config>;
#pragma unroll
  for (int j = 0; j < Ring::kBefore; ++j) {
    const int back = Ring::kBefore - j;
    if (back <= count) {
      ring_copy<Config::kVectorBytes>(shared + j * Ring::kRowBytes, first - back * stride);
    }
  }
}

// The place of the group behind the one at `offset`.
template <class Config>
__device__ __forceinline__ unsigned ring_next(unsigned offset) {
  offset += ConvRing<Config>::kGroupBytes;
  return offset == ConvRing<Config>::kBytes ? 0 : offset;
}

}  // namespace lathe
