// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/exec/isa/access.h"

namespace sim::SIM_ISA {
namespace {

constexpr uint32_t kFull = 0xFFFFFFFFu;

bool fault(Warp& w, const Inst& i, Fault f, int lane, const Access& a, uint32_t size, Space space,
           Use use) {
  report(w, i, f, static_cast<unsigned>(lane), a.address[lane], size, space, use != Use::load);
  return false;
}

// ---- Shadow bits, one per byte. Several host threads may set bits of one word.
bool range_defined(const uint64_t* bits, uint64_t from, uint64_t count) {
  while (count) {
    const uint64_t at = from & 63, n = 64 - at < count ? 64 - at : count;
    const uint64_t mask = (n == 64 ? ~0ull : (1ull << n) - 1) << at;
    if ((__atomic_load_n(bits + from / 64, __ATOMIC_RELAXED) & mask) != mask) return false;
    from += n;
    count -= n;
  }
  return true;
}
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
// The same for memory that one host thread owns.
void define_private(uint64_t* bits, uint64_t from, uint64_t count) {
  while (count) {
    const uint64_t at = from & 63, n = 64 - at < count ? 64 - at : count;
    bits[from / 64] |= (n == 64 ? ~0ull : (1ull << n) - 1) << at;
    from += n;
    count -= n;
  }
}

// ---- Counters.
// Distinct 32-byte sectors; an aligned access of up to 32 bytes lies in one.
uint32_t count_sectors(const Access& a, uint32_t exec, uint32_t size, Region* r,
                       uint64_t* touched) {
  if (a.dense && exec == kFull) {
    const uint64_t first = a.address[0] >> 5, last = (a.address[0] + 32 * size - 1) >> 5;
    if (r && touched) define_private(touched, first - (r->base >> 5), last - first + 1);
    return static_cast<uint32_t>(last - first + 1);
  }
  uint64_t seen[64];
  uint8_t used[64] = {};
  uint32_t count = 0;
  uint64_t previous = ~0ull;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const uint64_t sector = a.address[__builtin_ctz(rest)] >> 5;
    if (sector == previous) continue;
    previous = sector;
    uint32_t h = static_cast<uint32_t>(sector * 0x9E3779B97F4A7C15ull >> 58);
    while (used[h] && seen[h] != sector) h = (h + 1) & 63;
    if (used[h]) continue;
    used[h] = 1;
    seen[h] = sector;
    ++count;
    if (r && touched) {
      const uint64_t bit = sector - (r->base >> 5);
      touched[bit / 64] |= 1ull << (bit % 64);
    }
  }
  return count;
}

void tally_global(TrafficCounts& t, uint32_t lanes, uint32_t size, uint32_t sectors) {
  const uint64_t bytes = static_cast<uint64_t>(lanes) * size;
  const uint64_t least = (bytes + 31) / 32;
  ++t.requests;
  t.bytes += bytes;
  t.sectors += sectors;
  t.minimum_sectors += least < sectors ? least : sectors;
}

// Passes beyond the first: the most distinct words of one bank, per group of lanes that moves 128
// bytes.
uint32_t bank_conflicts(const Access& a, uint32_t exec, uint32_t size) {
  if (a.dense && exec == kFull) return 0;
  const uint32_t group = size <= 4 ? 32 : size == 8 ? 16 : 8;
  uint32_t extra = 0;
  for (uint32_t begin = 0; begin < 32; begin += group) {
    uint32_t words[32][32];
    uint8_t count[32] = {};
    uint32_t most = 1;
    for (uint32_t l = begin; l < begin + group; ++l) {
      if (!(exec >> l & 1)) continue;
      for (uint32_t k = 0; k < (size + 3) / 4; ++k) {
        const auto word = static_cast<uint32_t>(a.address[l] / 4 + k);
        const uint32_t bank = word % 32;
        uint32_t j = 0;
        while (j < count[bank] && words[bank][j] != word) ++j;
        if (j < count[bank]) continue;
        words[bank][count[bank]++] = word;
        if (count[bank] > most) most = count[bank];
      }
    }
    extra += most - 1;
  }
  return extra;
}

struct Bounds {
  uint64_t low, high;  // of the first bytes
};

// Inactive lanes repeat an active one; then everything else may loop over all 32.
Bounds spread(Access& a, uint32_t exec, uint32_t size) {
  const int first = __builtin_ctz(exec);
  const uint64_t some = a.address[first];
  if (exec != kFull) {
    for (int l = 0; l < 32; ++l) a.address[l] = (exec >> l & 1) ? a.address[l] : some;
  }
  Bounds b{some, some};
  uint64_t gap = 0;
  const uint64_t start = a.address[0];
  for (int l = 0; l < 32; ++l) {
    const uint64_t x = a.address[l];
    b.low = x < b.low ? x : b.low;
    b.high = x > b.high ? x : b.high;
    gap |= x ^ (start + static_cast<uint64_t>(l) * size);
  }
  a.dense = gap == 0 && exec == kFull;
  return b;
}

bool aligned(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
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

// ---- Global and constant memory.
bool shadow_global(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
                   Use use, const Region& r) {
  if (use == Use::store && r.read_only) {
    return fault(w, i, Fault::read_only, __builtin_ctz(exec), a, size, space, use);
  }
  if (!r.defined) return true;
  const bool dense = a.dense && exec == kFull;
  if (use != Use::store && view(*w.worker).check_defined) {
    const bool all = dense && range_defined(r.defined, a.address[0] - r.base, 32ull * size);
    for (uint32_t rest = all ? 0 : exec; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      if (range_defined(r.defined, a.address[l] - r.base, size)) continue;
      fault(w, i, Fault::uninitialized, l, a, size, space, use);
      break;
    }
  }
  if (use == Use::load) return true;
  if (dense) {
    define_range(r.defined, a.address[0] - r.base, 32ull * size);
  } else {
    for (uint32_t rest = exec; rest; rest &= rest - 1) {
      define_range(r.defined, a.address[__builtin_ctz(rest)] - r.base, size);
    }
  }
  return true;
}

bool global(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space, Use use) {
  const Bounds b = spread(a, exec, size);
  const LaunchView& launch = view(*w.worker);
  Tally& tally = w.worker->tally;
  TrafficCounts& counts = space == Space::constant ? tally.const_load
                          : use == Use::load       ? tally.global_load
                          : use == Use::store      ? tally.global_store
                                                   : tally.global_atomic;
  for (int l = 0; l < 32; ++l) a.pointer[l] = reinterpret_cast<uint8_t*>(a.address[l]);
  const auto lanes = static_cast<uint32_t>(__builtin_popcount(exec));
  if (!launch.check_memory) {
    tally_global(counts, lanes, size, count_sectors(a, exec, size, nullptr, nullptr));
    return true;
  }
  if (!aligned(a, w, i, exec, size, space, use)) return false;
  Region* r = w.worker->regions + i.extra;
  const bool current =
      launch.memory_version->load(std::memory_order_relaxed) == w.worker->memory_version;
  if (!current || b.low < r->base || b.high + size > r->end || b.high + size < b.high) {
    r = find_region(w, i, b.low, b.high + size);
  }
  if (r) {
    uint64_t* touched = use == Use::load ? r->loaded : r->stored;
    tally_global(counts, lanes, size, count_sectors(a, exec, size, r, touched));
    return shadow_global(a, w, i, exec, size, space, use, *r);
  }
  // Lanes in different allocations, or a wrong address.
  tally_global(counts, lanes, size, count_sectors(a, exec, size, nullptr, nullptr));
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

// ---- Shared memory: 32-bit offsets.
void check_races(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  Block& block = *w.block;
  const auto me = static_cast<uint8_t>(w.index);
  const uint32_t epoch = block.epoch;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const auto offset = static_cast<uint32_t>(a.address[l]);
    const uint32_t head = offset & 3;
    const auto bytes = static_cast<uint8_t>(size >= 4 ? 15u : ((1u << size) - 1) << head);
    for (uint32_t word = offset / 4; word < (offset + size + 3) / 4; ++word) {
      RaceWord& r = block.races[word];
      const bool write_clash = r.write_epoch == epoch && r.writer != me && (r.write_bytes & bytes);
      const bool read_clash = use == Use::store && r.read_epoch == epoch &&
                              (r.reader != me || r.many_readers) && (r.read_bytes & bytes);
      // Atomics do not race with each other.
      const bool both_atomic = use == Use::atomic && r.write_atomic;
      if ((write_clash && !both_atomic) || read_clash) {
        report_race(w, i, static_cast<unsigned>(l), a.address[l], size,
                    write_clash ? r.write_pc : r.read_pc, write_clash ? r.writer : r.reader,
                    write_clash, use != Use::load);
      }
      if (use == Use::load) {
        if (r.read_epoch != epoch)
          r.many_readers = r.read_bytes = 0;
        else
          r.many_readers |= r.reader != me;
        r.read_epoch = epoch;
        r.reader = me;
        r.read_bytes |= bytes;
        r.read_pc = w.pc;
      } else {
        if (r.write_epoch != epoch || r.writer != me) r.write_bytes = 0;
        r.write_epoch = epoch;
        r.writer = me;
        r.write_bytes |= bytes;
        r.write_atomic = use == Use::atomic;
        r.write_pc = w.pc;
      }
    }
  }
}

bool shared(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  Block& block = *w.block;
  const Bounds b = spread(a, exec, size);
  const LaunchView& launch = view(*w.worker);
  Tally& tally = w.worker->tally;
  if (b.low < block.shared_begin || b.high + size > block.shared_bytes || b.high + size < b.high) {
    for (uint32_t rest = exec; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      const uint64_t x = a.address[l];
      if (x < block.shared_begin || x + size > block.shared_bytes || x + size < x) {
        return fault(w, i, Fault::out_of_bounds, l, a, size, Space::shared, use);
      }
    }
  }
  if (!aligned(a, w, i, exec, size, Space::shared, use)) return false;
  for (int l = 0; l < 32; ++l) a.pointer[l] = block.shared + a.address[l];
  a.shared = true;
  TrafficCounts& counts = use == Use::load ? tally.shared_load : tally.shared_store;
  ++counts.requests;
  counts.bytes += static_cast<uint64_t>(__builtin_popcount(exec)) * size;
  if (b.low != b.high) counts.conflicts += bank_conflicts(a, exec, size);
  if (!launch.check_defined) return true;
  const bool dense = a.dense && exec == kFull;
  if (use != Use::store) {
    const bool all = dense ? range_defined(block.shared_defined, a.address[0], 32ull * size)
                           : b.low == b.high && range_defined(block.shared_defined, b.low, size);
    for (uint32_t rest = all ? 0 : exec; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      if (range_defined(block.shared_defined, a.address[l], size)) continue;
      fault(w, i, Fault::uninitialized, l, a, size, Space::shared, use);
      break;
    }
  }
  if (use != Use::load) {
    if (dense) {
      define_private(block.shared_defined, a.address[0], 32ull * size);
    } else {
      for (uint32_t rest = exec; rest; rest &= rest - 1) {
        define_private(block.shared_defined, a.address[__builtin_ctz(rest)], size);
      }
    }
  }
  if (block.races) check_races(a, w, i, exec, size, use);
  return true;
}

// ---- A thread's depot, and kernel parameters by address.
bool local(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  const uint64_t depot = w.function->local_bytes;
  const LaunchView& launch = view(*w.worker);
  TrafficCounts& counts =
      use == Use::load ? w.worker->tally.local_load : w.worker->tally.local_store;
  ++counts.requests;
  counts.bytes += static_cast<uint64_t>(__builtin_popcount(exec)) * size;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const uint64_t x = a.address[l];
    if (x > depot || size > depot - x) {
      return fault(w, i, Fault::out_of_bounds, l, a, size, Space::local, use);
    }
    if (x & (size - 1)) return fault(w, i, Fault::misaligned, l, a, size, Space::local, use);
    const uint64_t at = static_cast<uint64_t>(l) * depot + x;
    a.pointer[l] = w.local + at;
    if (!launch.check_defined) continue;
    if (use != Use::store && !range_defined(w.local_defined, at, size)) {
      fault(w, i, Fault::uninitialized, l, a, size, Space::local, use);
    }
    if (use != Use::load) define_private(w.local_defined, at, size);
  }
  a.dense = false;
  return true;
}

bool param(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  const LaunchView& launch = view(*w.worker);
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const uint64_t x = a.address[l] - windows().param;
    if (x > launch.param_bytes || size > launch.param_bytes - x) {
      return fault(w, i, Fault::out_of_bounds, l, a, size, Space::param, use);
    }
    if (x & (size - 1)) return fault(w, i, Fault::misaligned, l, a, size, Space::param, use);
    if (use != Use::load) return fault(w, i, Fault::read_only, l, a, size, Space::param, use);
    a.pointer[l] = const_cast<uint8_t*>(launch.params) + x;
  }
  a.dense = false;
  return true;
}

Space window_of(uint64_t address) {
  const Windows& n = windows();
  if (address < n.shared || address >= n.end) return Space::global;
  if (address < n.local) return Space::shared;
  return address < n.param ? Space::local : Space::param;
}

bool generic(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  uint32_t left = exec;
  while (left) {
    const Space space = window_of(a.address[__builtin_ctz(left)]);
    uint32_t same = 0;
    for (uint32_t rest = left; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      if (window_of(a.address[l]) == space) same |= 1u << l;
    }
    const uint64_t base = space == Space::shared  ? windows().shared
                          : space == Space::local ? windows().local
                                                  : 0;
    if (same == exec) {
      for (int l = 0; l < 32; ++l) a.address[l] -= base;
      return prepare_addresses(a, w, i, exec, size, space, use);
    }
    Access part;
    for (int l = 0; l < 32; ++l) part.address[l] = a.address[l] - base;
    if (!prepare_addresses(part, w, i, same, size, space, use)) return false;
    for (uint32_t rest = same; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      a.pointer[l] = part.pointer[l];
    }
    left &= ~same;
  }
  a.dense = a.shared = false;
  return true;
}

}  // namespace

bool prepare_addresses(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
                       Use use) {
  switch (space) {
    case Space::shared:
      return shared(a, w, i, exec, size, use);
    case Space::local:
      return local(a, w, i, exec, size, use);
    case Space::param:
      return param(a, w, i, exec, size, use);
    case Space::generic:
      return generic(a, w, i, exec, size, use);
    default:
      return global(a, w, i, exec, size, space, use);
  }
}

bool prepare(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
             Use use) {
  const auto offset = static_cast<uint64_t>(i.imm);
  if (i.b) {
    const uint64_t* base = cells<uint64_t>(w, i.a);
    for (int l = 0; l < 32; ++l) a.address[l] = base[l] + offset;
  } else {
    const uint32_t* base = cells<uint32_t>(w, i.a);
    for (int l = 0; l < 32; ++l) a.address[l] = base[l] + static_cast<uint32_t>(offset);
  }
  return prepare_addresses(a, w, i, exec, size, space, use);
}

}  // namespace sim::SIM_ISA
