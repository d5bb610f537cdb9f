// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies touch global memory with these functions: ranges are checked once at the
// issue, then read and written with their shadow bits. One byte per byte says whether it is
// defined.
#pragma once

#include <cstring>

#include "sim/exec/warp.h"

namespace sim {

inline void read_defined(const uint64_t* bits, uint64_t from, uint32_t bytes, uint8_t* out) {
  while (bytes) {
    const auto at = static_cast<uint32_t>(from % 64), n = 64 - at < bytes ? 64 - at : bytes;
    const uint64_t mask = (n == 64 ? ~0ull : (1ull << n) - 1) << at;
    const uint64_t word = __atomic_load_n(bits + from / 64, __ATOMIC_RELAXED);
    if ((word & mask) == mask) {
      std::memset(out, 1, n);
    } else {
      for (uint32_t k = 0; k < n; ++k) out[k] = static_cast<uint8_t>(word >> (at + k) & 1);
    }
    from += n;
    out += n;
    bytes -= n;
  }
}
// Packs up to 64 bytes, each 0 or 1, to bits.
inline uint64_t pack_flags(const uint8_t* flags, uint32_t count) {
  uint64_t bits = 0;
  uint32_t k = 0;
  for (; k + 8 <= count; k += 8) {
    uint64_t eight;
    std::memcpy(&eight, flags + k, 8);
    bits |= (eight * 0x0102040810204080ull >> 56) << k;
  }
  for (; k < count; ++k) bits |= static_cast<uint64_t>(flags[k] != 0) << k;
  return bits;
}
// Other host threads may set bits of the same words of global memory.
inline void write_defined(uint64_t* bits, uint64_t to, uint32_t bytes, const uint8_t* defined) {
  while (bytes) {
    const auto at = static_cast<uint32_t>(to % 64), n = 64 - at < bytes ? 64 - at : bytes;
    const uint64_t set = pack_flags(defined, n) << at;
    const uint64_t clear = ((n == 64 ? ~0ull : (1ull << n) - 1) << at) & ~set;
    uint64_t* word = bits + to / 64;
    const uint64_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (set & ~now) __atomic_fetch_or(word, set, __ATOMIC_RELAXED);
    if (clear & now) __atomic_fetch_and(word, ~clear, __ATOMIC_RELAXED);
    to += n;
    defined += n;
    bytes -= n;
  }
}

// Returns the memory behind [address, address + bytes), or null after a finding. With `store` the
// memory must be writable. Counts sectors.
Region* check_global(Warp& w, const Inst& i, unsigned lane, uint64_t address, uint32_t bytes,
                     bool store);

// Notes that L2 is asked for [address, address + bytes) ahead of a load. Returns false after a
// finding: no memory is there.
bool prefetch_global(Warp& w, const Inst& i, unsigned lane, uint64_t address, uint32_t bytes);

// Must be called after check_global.
inline void read_global(Warp& w, const Inst& i, uint64_t address, uint32_t bytes, uint8_t* out,
                        uint8_t* defined) {
  std::memcpy(out, reinterpret_cast<const uint8_t*>(address), bytes);
  const Region* r = find_region(w, i, address, address + bytes);
  if (r && r->defined) read_defined(r->defined, address - r->base, bytes, defined);
}

template <class Write>
void write_global(Warp& w, const Inst& i, uint64_t address, uint32_t bytes, const uint8_t* data,
                  const uint8_t* defined, Write write) {
  write(reinterpret_cast<uint8_t*>(address), data, bytes);
  const Region* r = find_region(w, i, address, address + bytes);
  if (r && r->defined) write_defined(r->defined, address - r->base, bytes, defined);
}

}  // namespace sim
