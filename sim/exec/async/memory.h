// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Global memory as asynchronous copies touch it: ranges checked once at the issue, then read and
// written with their shadow bits. One byte per byte says whether it is defined.
#pragma once

#include <cstring>

#include "sim/exec/warp.h"

namespace sim {

inline void read_defined(const uint64_t* bits, uint64_t from, uint32_t bytes, uint8_t* out) {
  for (uint32_t k = 0; k < bytes; ++k) {
    out[k] = static_cast<uint8_t>(bits[(from + k) / 64] >> ((from + k) % 64) & 1);
  }
}
// Other host threads may set bits of the same words of global memory.
inline void write_defined(uint64_t* bits, uint64_t to, uint32_t bytes, const uint8_t* defined) {
  for (uint32_t k = 0; k < bytes; ++k) {
    const uint64_t one = 1ull << ((to + k) % 64);
    uint64_t* word = bits + (to + k) / 64;
    if (((__atomic_load_n(word, __ATOMIC_RELAXED) & one) != 0) == (defined[k] != 0)) continue;
    if (defined[k])
      __atomic_fetch_or(word, one, __ATOMIC_RELAXED);
    else
      __atomic_fetch_and(word, ~one, __ATOMIC_RELAXED);
  }
}

// The memory behind [address, address + bytes), or null after a finding. `store`: it must be
// writable. Counts sectors.
Region* check_global(Warp& w, const Inst& i, unsigned lane, uint64_t address, uint32_t bytes,
                     bool store);

// After check_global.
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
