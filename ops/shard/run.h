// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// shard and unshard behind the plan: tokens of any tensor taken and put back by a list of indices.
#pragma once

#include "ops/executor.h"
#include "ops/resolve.h"
#include "ops/shard/schema.h"

namespace lathe {

// Refuses what the tables cannot say.
Status check_shard_rows(const Resolved& resolved);

Result<std::unique_ptr<Executor>> make_shard_rows(const Resolved& resolved,
                                                  const DeviceFacts& facts);

}  // namespace lathe
