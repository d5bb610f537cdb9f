// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A few bytes of every rank on every rank's host. Off the launch path: allocates, and waits.
#pragma once

#include <string>

#include "collective/group.h"

namespace lathe {

// `bytes` of each rank, rank 0 first. Collective; within the group's timeout, and like it an error
// ends the group. `what` names the purpose: "the agreement on a plan". One rank: no NCCL call.
Result<std::string> small_gather(Group& group, const void* mine, size_t bytes, const char* what);

}  // namespace lathe
