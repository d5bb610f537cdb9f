// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file records what each rank asked to be moved, hop by hop, for those who count messages and
// bytes.
#pragma once

#include <vector>

#include "sim/nccl/state.h"

namespace sim::nccl {

// A hop is what one thread put into one stream of a communicator in one go. Appends a JSON line per
// hop of `calls` to the file LATHE_SIM_NCCL_COUNTERS, if that is set; with the state locked.
void note_traffic(const std::vector<Queued>& calls);

}  // namespace sim::nccl
