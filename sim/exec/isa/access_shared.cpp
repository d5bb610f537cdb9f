// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles shared memory, addressed by 32-bit offsets: bank conflicts, shadow bits.
#include "sim/exec/async_marks.h"
#include "sim/exec/isa/access_parts.h"

namespace sim::SIM_ISA {
namespace {

// Lanes whose accesses go together, as they move 128 bytes.
constexpr uint32_t group_lanes(uint32_t size) { return size <= 4 ? 32 : size == 8 ? 16 : 8; }

// Groups with a lane that takes part: the passes that are needed in any case.
uint32_t groups_of(uint32_t exec, uint32_t size) {
  const uint32_t lanes = group_lanes(size);
  if (lanes == 32) return 1;
  uint32_t count = 0;
  for (uint32_t begin = 0; begin < 32; begin += lanes) {
    count += (exec >> begin & ((1u << lanes) - 1)) != 0;
  }
  return count;
}

// Passes beyond the first: the most distinct words of one bank, per group of lanes that moves 128
// bytes. Accesses are aligned, so that units of `size` bytes share banks wholly or not at all.
uint32_t bank_conflicts(const Access& a, uint32_t exec, uint32_t size) {
  if (a.dense && exec == kFull) return 0;
  const uint32_t shift = size <= 4 ? 2 : static_cast<uint32_t>(__builtin_ctz(size));
  const uint32_t group = group_lanes(size), whole = group == 32 ? kFull : (1u << group) - 1;
  uint32_t unit[32], column[32];
  for (int l = 0; l < 32; ++l) unit[l] = static_cast<uint32_t>(a.address[l] >> shift);
  for (uint32_t l = 0; l < 32; ++l) {
    column[l] = (exec >> l & 1u) ? 1u << (unit[l] & (group - 1)) : 0u;
  }
  uint32_t extra = 0;
  for (uint32_t begin = 0; begin < 32; begin += group) {
    uint32_t left = exec >> begin & whole, columns = 0;
    for (uint32_t l = begin; l < begin + group; ++l) columns |= column[l];
    if (__builtin_popcount(columns) == __builtin_popcount(left)) continue;
    // Each pass serves one unit of every column, to all lanes that want it.
    for (uint32_t passes = 0; left; ++passes) {
      extra += passes != 0;
      uint32_t served[32], later = 0;
      for (uint32_t rest = left; rest; rest &= rest - 1) {
        const uint32_t u = unit[begin + static_cast<uint32_t>(__builtin_ctz(rest))];
        served[u & (group - 1)] = u;
      }
      for (uint32_t rest = left; rest; rest &= rest - 1) {
        const uint32_t u = unit[begin + static_cast<uint32_t>(__builtin_ctz(rest))];
        later |= served[u & (group - 1)] != u ? rest & (0u - rest) : 0u;
      }
      left = later;
    }
  }
  return extra;
}

// Something asynchronous is using shared memory: is it what this access touches?
bool look_at_marks(const Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size,
                   const Block& block, Use use) {
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    if (!check_marks(w, i, static_cast<unsigned>(l), block, static_cast<uint32_t>(a.address[l]),
                     size, use != Use::load)) {
      return false;
    }
  }
  return true;
}

// Addresses in the shared memory of `block`, already reduced to offsets in it.
bool prepare_offsets(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use,
                     Block& block) {
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
  Traffic& counts = use == Use::load ? tally.shared_load : tally.shared_store;
  ++counts.requests;
  counts.bytes += static_cast<uint64_t>(__builtin_popcount(exec)) * size;
  const uint32_t extra = b.low == b.high ? 0 : bank_conflicts(a, exec, size);
  counts.conflicts += extra;
  counts.wavefronts += extra + (b.low == b.high ? 1 : groups_of(exec, size));
  // Bytes on their way need not be called unwritten or a race as well.
  const bool settled =
      !block.marked || !launch.check_async || look_at_marks(a, w, i, exec, size, block, use);
  if (w.race && settled) race_access(w, i, a.address, exec, size, race_use(use), a.dense, &block);
  if (!launch.check_defined) return true;
  const bool dense = a.dense && exec == kFull;
  if (use != Use::store && settled) {
    const bool all = dense ? range_defined(block.shared_defined, a.address[0], 32ull * size)
                           : b.low == b.high && range_defined(block.shared_defined, b.low, size);
    const uint32_t missing =
        all ? 0 : lanes_undefined(block.shared_defined, a.address, 0, exec, size);
    if (missing) {
      const int l = __builtin_ctz(missing);
      fault(w, i, Fault::uninitialized, l, a, size, Space::shared, use);
    }
  }
  if (use != Use::load) {
    if (dense) {
      define_private(block.shared_defined, a.address[0], 32ull * size);
    } else {
      define_lanes(block.shared_defined, a.address, 0, exec, size, false);
    }
  }
  return true;
}

}  // namespace

bool prepare_shared(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  Block& block = *w.block;
  if (block.window) {
    for (int l = 0; l < 32; ++l) a.address[l] -= block.window;
  }
  return prepare_offsets(a, w, i, exec, size, use, block);
}

// Serves the shared memory of any block of the cluster, lane by lane.
bool prepare_cluster(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Use use) {
  const Cluster& cluster = *w.block->cluster;
  for (uint32_t left = exec; left;) {
    const int first = __builtin_ctz(left);
    const uint64_t rank = a.address[first] >> kRankShift;
    uint32_t same = 0;
    for (uint32_t rest = left; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      same |= a.address[l] >> kRankShift == rank ? 1u << l : 0u;
    }
    if (rank >= cluster.size) {
      return fault(w, i, Fault::out_of_bounds, first, a, size, Space::cluster, use);
    }
    Block& block = *cluster.blocks[rank];
    if (block.warps_done == block.warps) {
      return fault(w, i, Fault::dsmem_after_exit, first, a, size, Space::cluster, use);
    }
    Access part;
    for (int l = 0; l < 32; ++l) part.address[l] = a.address[l] - block.window;
    if (!prepare_offsets(part, w, i, same, size, use, block)) return false;
    if (same == exec) {
      a = part;
      return true;
    }
    for (uint32_t rest = same; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      a.pointer[l] = part.pointer[l];
    }
    left &= ~same;
  }
  a.dense = false;
  a.shared = true;
  return true;
}

}  // namespace sim::SIM_ISA
