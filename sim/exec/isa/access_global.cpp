// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles global and constant memory: regions, shadow bits, sectors.
#include "sim/exec/isa/access_parts.h"

namespace sim::SIM_ISA {
namespace {

// Several host threads may set bits of one word.
void define_range(uint64_t* bits, uint64_t from, uint64_t count) {
  while (count) {
    const uint64_t at = from & 63, n = 64 - at < count ? 64 - at : count;
    const uint64_t mask = (n == 64 ? ~0ull : (1ull << n) - 1) << at;
    uint64_t* word = bits + from / 64;
    if ((__atomic_load_n(word, __ATOMIC_RELAXED) & mask) != mask) {
      if (n == 64)
        __atomic_store_n(word, ~0ull, __ATOMIC_RELAXED);
      else
        __atomic_fetch_or(word, mask, __ATOMIC_RELAXED);
    }
    from += n;
    count -= n;
  }
}

// Lanes whose sectors never fall: counted, and their bits set a word at a time. 0: they do fall.
uint32_t count_rising(const Access& a, uint32_t exec, const Region* r, uint64_t* touched) {
  const uint64_t first = r ? r->base >> 5 : 0;
  uint64_t previous = a.address[__builtin_ctz(exec)] >> 5;
  uint64_t word = (previous - first) / 64, bits = 0;
  uint32_t count = 1, falls = 0;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const uint64_t sector = a.address[__builtin_ctz(rest)] >> 5, bit = sector - first;
    falls |= sector < previous;
    count += sector != previous;
    previous = sector;
    if (bit / 64 != word) {
      if (touched) touched[word] |= bits;
      word = bit / 64;
      bits = 0;
    }
    bits |= 1ull << (bit % 64);
  }
  if (touched) touched[word] |= bits;
  return falls ? 0 : count;
}

// Returns the distance between neighbours if it is the same for all 32 lanes and at most a sector.
inline uint64_t short_stride(const Access& a, uint32_t exec) {
  const uint64_t start = a.address[0], stride = a.address[1] - start;
  if (exec != kFull || stride > 32) return 0;
  uint64_t gap = 0;
  for (uint32_t l = 0; l < 32; ++l) {
    gap |= a.address[l] ^ (start + static_cast<uint64_t>(l * static_cast<uint32_t>(stride)));
  }
  return gap ? 0 : stride;
}

uint32_t count_scattered(const Access& a, uint32_t exec) {
  uint64_t seen[64];
  uint8_t used[64] = {};
  uint32_t count = 0;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const uint64_t sector = a.address[__builtin_ctz(rest)] >> 5;
    uint32_t h = static_cast<uint32_t>(sector * 0x9E3779B97F4A7C15ull >> 58);
    while (used[h] && seen[h] != sector) h = (h + 1) & 63;
    count += !used[h];
    used[h] = 1;
    seen[h] = sector;
  }
  return count;
}

// Distinct 32-byte sectors; an aligned access of up to 32 bytes lies in one.
uint32_t count_sectors(const Access& a, uint32_t exec, uint32_t size, Region* r,
                       uint64_t* touched) {
  if (!r) touched = nullptr;
  const uint64_t stride = a.dense && exec == kFull ? size : short_stride(a, exec);
  if (stride) {  // no sector is left out
    const uint64_t first = a.address[0] >> 5, last = (a.address[0] + 31 * stride + size - 1) >> 5;
    if (touched) define_private(touched, first - (r->base >> 5), last - first + 1);
    return static_cast<uint32_t>(last - first + 1);
  }
  const uint32_t count = count_rising(a, exec, r, touched);
  return count ? count : count_scattered(a, exec);
}

void tally_global(Traffic& t, uint32_t lanes, uint32_t size, uint32_t sectors) {
  const uint64_t bytes = static_cast<uint64_t>(lanes) * size;
  const uint64_t least = (bytes + 31) / 32;
  ++t.requests;
  t.bytes += bytes;
  t.sectors += sectors;
  t.minimum_sectors += least < sectors ? least : sectors;
}

bool shadow_global(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
                   Use use, const Region& r) {
  if (use == Use::store && r.read_only) {
    return fault(w, i, Fault::read_only, __builtin_ctz(exec), a, size, space, use);
  }
  if (!r.defined) return true;
  const bool dense = a.dense && exec == kFull;
  if (use != Use::store && view(*w.worker).check_defined) {
    const bool all = dense && range_defined(r.defined, a.address[0] - r.base, 32ull * size);
    const uint32_t missing = all ? 0 : lanes_undefined(r.defined, a.address, r.base, exec, size);
    if (missing) {
      fault(w, i, Fault::uninitialized, __builtin_ctz(missing), a, size, space, use);
    }
  }
  if (use == Use::load) return true;
  if (dense) {
    define_range(r.defined, a.address[0] - r.base, 32ull * size);
  } else {
    define_lanes(r.defined, a.address, r.base, exec, size, true);
  }
  return true;
}

bool check_global(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
                  Use use) {
  const Bounds b = spread(a, exec, size);
  const LaunchView& launch = view(*w.worker);
  Tally& tally = w.worker->tally;
  Traffic& counts = space == Space::constant ? tally.const_load
                    : use == Use::load       ? tally.global_load
                    : use == Use::store      ? tally.global_store
                                             : tally.global_atomic;
  for (int l = 0; l < 32; ++l) a.pointer[l] = reinterpret_cast<uint8_t*>(a.address[l]);
  const auto lanes = static_cast<uint32_t>(__builtin_popcount(exec));
  if (launch.check_memory && !aligned(a, w, i, exec, size, space, use)) return false;
  Region* r = w.worker->regions + i.extra;
  const bool current =
      __atomic_load_n(launch.memory_version, __ATOMIC_RELAXED) == w.worker->memory_version;
  if (!current || b.low < r->base || b.high + size > r->end || b.high + size < b.high) {
    r = find_region(w, i, b.low, b.high + size);
  }
  uint64_t* const touched = !r ? nullptr : use == Use::load ? r->loaded : r->stored;
  tally_global(counts, lanes, size, count_sectors(a, exec, size, r, touched));
  // The bytes that a grid touches are counted without checks too, as far as an allocation has them.
  if (!launch.check_memory) return true;
  if (r) return shadow_global(a, w, i, exec, size, space, use, *r);
  // Lanes in different allocations, or a wrong address.
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const uint32_t one = 1u << l;
    r = find_region(w, i, a.address[l], a.address[l] + size);
    if (!r) return fault(w, i, Fault::out_of_bounds, l, a, size, space, use);
    count_sectors(a, one, size, r, use == Use::load ? r->loaded : r->stored);
    if (!shadow_global(a, w, i, one, size, space, use, *r)) return false;
  }
  return true;
}

}  // namespace

bool prepare_global(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
                    Use use) {
  if (!check_global(a, w, i, exec, size, space, use)) return false;
  if (w.worker->recorder) trace_lanes(w, a.address, exec, size);
  if (w.race && space == Space::global) {
    race_access(w, i, a.address, exec, size, race_use(use), a.dense, nullptr);
  }
  return true;
}

}  // namespace sim::SIM_ISA
