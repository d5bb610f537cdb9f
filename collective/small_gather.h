// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Gathers a few bytes of every rank on every rank's host. The launch path does not call this: it
// allocates and waits.
#pragma once

#include <string>

#include "collective/group.h"

namespace lathe {

// Returns `bytes` bytes of each rank, rank 0 first. The call is collective and bounded by the
// group's timeout. A timeout or an error ends the group. `what` names the purpose: "the agreement
// on a plan". A group of one rank makes no NCCL call.
Result<std::string> small_gather(Group& group, const void* mine, size_t bytes, const char* what);

}  // namespace lathe
