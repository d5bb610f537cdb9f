// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rank 0 of a rendezvous over TCP.
#pragma once

#include "collective/group.h"
#include "collective/launch.h"

namespace lathe {

// Listens at the launch's address and gives the id to every other rank, to each as soon as it
// comes. TIMEOUT names the ranks that did not come.
Status serve_unique_id(const Launch& launch, const UniqueId& id, int timeout_ms);

}  // namespace lathe
