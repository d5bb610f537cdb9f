// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file reads operands of the asynchronous family, as sim/ptx/decode/async.cpp lays them out,
// and the places in shared memory that they name. It is for the base build only.
#pragma once

#include "sim/exec/async/async.h"
#include "sim/exec/lanes.h"

namespace sim::base {

struct Place {
  Block* block = nullptr;  // null: a finding was reported
  uint32_t offset = 0;
};

class Operands {
 public:
  Operands(Warp& w, const Inst& i) : w_(w), i_(i), list_(w.code->list_data + i.aux) {}

  bool has(unsigned k) const { return list_[k] != kNoSlot; }
  uint32_t u32(unsigned k, unsigned lane) const { return cells<uint32_t>(w_, list_[k])[lane]; }
  uint64_t u64(unsigned k, unsigned lane) const { return cells<uint64_t>(w_, list_[k])[lane]; }
  // Returns the `n`-th address, whose entries begin at k.
  uint64_t address(unsigned k, unsigned n, unsigned lane) const {
    const uint64_t offset = u64(k + 1, lane);
    if (i_.imm >> n & 1) return u64(k, lane) + offset;
    return static_cast<uint32_t>(u32(k, lane) + static_cast<uint32_t>(offset));
  }
  bool generic(unsigned n) const { return i_.imm >> (n + 8) & 1; }
  // Returns a place in shared memory: of this block, or with `remote` of any block of the cluster.
  Place shared(unsigned k, unsigned n, unsigned lane, uint32_t bytes, uint32_t align,
               bool remote) const;

 private:
  Warp& w_;
  const Inst& i_;
  const uint16_t* list_;
};

// This part of shared() goes from an address to a place.
Place find_place(Warp& w, const Inst& i, unsigned lane, uint64_t address, bool generic,
                 uint32_t bytes, uint32_t align, bool remote);

inline Place Operands::shared(unsigned k, unsigned n, unsigned lane, uint32_t bytes, uint32_t align,
                              bool remote) const {
  return find_place(w_, i_, lane, address(k, n, lane), generic(n), bytes, align, remote);
}

}  // namespace sim::base
