// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds what bulk copies with and without a tensor map share.
#pragma once

#include "sim/exec/async/operands.h"

namespace sim::base {

// Makes a copy of one lane, still without pieces.
Copy new_copy(Warp& w, const Inst& i, unsigned lane);
// Issues the copy: to complete `bytes` on the mbarrier, or in the lane's open group if there is
// none; to every block of `multicast` if that is not 0.
void send(Copy copy, Place barrier, uint32_t bytes, uint32_t multicast);
Handler resolve_tensor_copy(const Form& f);
Handler resolve_tensor_map(const Form& f);
// Returns the 128 bytes at a generic address, or null after a finding.
const void* find_map(Warp& w, const Inst& i, unsigned lane, uint64_t address);

}  // namespace sim::base
