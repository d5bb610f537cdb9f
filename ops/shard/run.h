// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// shard and unshard behind the plan: tokens of any tensor taken and put back by a list of indices.
#pragma once

#include "ops/executor.h"

namespace lathe {

// What letters alone cannot say. After the checks by letter.
Status check_shard_rows(const lathe_problem& problem, const Extents& promised);

Result<std::unique_ptr<Executor>> make_shard_rows(const lathe_problem& problem,
                                                  const Extents& promised,
                                                  const DeviceFacts& facts);

}  // namespace lathe
