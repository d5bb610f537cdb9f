// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds what the files of access share: shadow bits, the span of a warp's addresses,
// alignment.
#pragma once

#include "sim/check/race.h"
#include "sim/exec/isa/access.h"

namespace sim::SIM_ISA {

// These functions serve one space each; they have the arguments and the result of
// prepare_addresses().
bool prepare_global(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
                    Use use);
bool prepare_cluster(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use);
bool prepare_shared(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use);

namespace {

constexpr uint32_t kFull = 0xFFFFFFFFu;

inline RaceUse race_use(Use use) {
  return use == Use::load ? RaceUse::load : use == Use::store ? RaceUse::store : RaceUse::atomic;
}

inline bool fault(Warp& w, const Inst& i, Fault f, int lane, const Access& a, uint32_t size,
                  Space space, Use use) {
  report(w, i, f, static_cast<unsigned>(lane), a.address[lane], size, space, use != Use::load);
  return false;
}

// Shadow bits stand for one byte each.
inline bool range_defined(const uint64_t* bits, uint64_t from, uint64_t count) {
  while (count) {
    const uint64_t at = from & 63, n = 64 - at < count ? 64 - at : count;
    const uint64_t mask = (n == 64 ? ~0ull : (1ull << n) - 1) << at;
    if ((__atomic_load_n(bits + from / 64, __ATOMIC_RELAXED) & mask) != mask) return false;
    from += n;
    count -= n;
  }
  return true;
}
// Returns which lanes of `exec` read bytes that nobody wrote. Accesses are aligned and have at most
// 32 bytes, so that each lies in one word; `base` is a multiple of 64.
inline uint32_t lanes_undefined(const uint64_t* bits, const uint64_t* address, uint64_t base,
                                uint32_t exec, uint32_t size) {
  const uint64_t mask = (1ull << size) - 1;
  uint32_t missing = 0;
  for (uint32_t l = 0; l < 32; ++l) {
    const uint64_t at = (exec >> l & 1u) ? address[l] - base : 0;
    const uint64_t word = __atomic_load_n(bits + at / 64, __ATOMIC_RELAXED);
    missing |= static_cast<uint32_t>((~(word >> (at & 63)) & mask) != 0) << l;
  }
  return missing & exec;
}
// Serves only memory that one host thread owns.
inline void define_private(uint64_t* bits, uint64_t from, uint64_t count) {
  while (count) {
    const uint64_t at = from & 63, n = 64 - at < count ? 64 - at : count;
    bits[from / 64] |= (n == 64 ? ~0ull : (1ull << n) - 1) << at;
    from += n;
    count -= n;
  }
}

// Marks the bytes of the lanes `exec` as defined; each lane's bytes lie within one word. Mostly the
// bits are set already.
inline void define_lanes(uint64_t* bits, const uint64_t* address, uint64_t base, uint32_t exec,
                         uint32_t size, bool shared_by_threads) {
  const uint64_t ones = (1ull << size) - 1;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const uint64_t at = address[__builtin_ctz(rest)] - base, mask = ones << (at & 63);
    uint64_t* word = bits + at / 64;
    if ((__atomic_load_n(word, __ATOMIC_RELAXED) & mask) == mask) continue;
    if (shared_by_threads)
      __atomic_fetch_or(word, mask, __ATOMIC_RELAXED);
    else
      *word |= mask;
  }
}

struct Bounds {
  uint64_t low, high;  // of the first bytes
};

// Inactive lanes repeat an active one; then everything else may loop over all 32.
inline Bounds spread(Access& a, uint32_t exec, uint32_t size) {
  const int first = __builtin_ctz(exec);
  const uint64_t some = a.address[first];
  if (exec != kFull) {
    for (int l = 0; l < 32; ++l) a.address[l] = (exec >> l & 1) ? a.address[l] : some;
  }
  Bounds b{some, some};
  uint64_t gap = 0;
  const uint64_t start = a.address[0];
  for (int l = 0; l < 32; ++l) {
    gap |= a.address[l] ^ (start + static_cast<uint64_t>(l) * size);
  }
  a.dense = gap == 0 && exec == kFull;
  if (a.dense) return {start, start + 31ull * size};
  for (int l = 0; l < 32; ++l) {
    const uint64_t x = a.address[l];
    b.low = x < b.low ? x : b.low;
    b.high = x > b.high ? x : b.high;
  }
  return b;
}

inline bool aligned(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
                    Use use) {
  uint64_t all = 0;
  for (int l = 0; l < 32; ++l) all |= a.address[l];
  if (!(all & (size - 1))) return true;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    if (a.address[l] & (size - 1)) return fault(w, i, Fault::misaligned, l, a, size, space, use);
  }
  return true;
}

}  // namespace
}  // namespace sim::SIM_ISA
