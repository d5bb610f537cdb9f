// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The unique id's way through a folder that all ranks see, where there is no address to meet at.
#pragma once

#include "collective/group.h"
#include "collective/launch.h"

namespace lathe {

// As share_unique_id, through launch.folder. The n-th call of a process meets the n-th of the
// others. TIMEOUT names the ranks that did not come, or the file that rank 0 did not write;
// INVALID_ARGUMENT a folder in which nothing can be written.
Status share_by_folder(const Launch& launch, UniqueId& id, int timeout_ms);

}  // namespace lathe
