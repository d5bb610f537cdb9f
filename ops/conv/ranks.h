// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs causal_conv1d on one rank among several.
#pragma once

#include "ops/conv/run.h"

namespace lathe {

// Takes over the executor of one rank, for groups of two ranks and more. `reduce`: gradients of
// weights are summed over the ranks.
MadeExecutor make_conv_over_ranks(std::unique_ptr<ConvExecutor> own, const DeviceFacts& facts,
                                  Group* group, bool reduce);

}  // namespace lathe
