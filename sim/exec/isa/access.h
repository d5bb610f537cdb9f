// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// All memory instructions share this file. It leads from addresses in registers to checked host
// pointers, and keeps the counters and the shadow bits.
#pragma once

#include "sim/exec/lanes.h"

namespace sim::SIM_ISA {

enum class Use : uint8_t { load, store, atomic };

struct Access {
  uint64_t address[32];
  uint8_t* pointer[32];
  bool dense = false;   // all 32 lanes, one after the other without a gap
  bool shared = false;  // the memory belongs to this block alone
};

// Each lane accesses `size` bytes, a power of two up to 32. On false, a fault was reported and
// nothing may be touched. Lanes outside `exec` get no check and no pointer.
bool prepare(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space, Use use);
// Does the same for addresses that are already in a.address.
bool prepare_addresses(Access& a, Warp& w, const Inst& i, uint32_t exec, uint32_t size, Space space,
                       Use use);

}  // namespace sim::SIM_ISA
