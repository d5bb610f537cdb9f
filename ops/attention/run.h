// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the plans of flash_attention.
#pragma once

#include "ops/attention/request.h"
#include "ops/executor.h"

namespace lathe {

// These functions choose kernels and compile nothing. Over the ranks of a group, the group's flags
// name the method; the default is a ring.
MadeExecutor make_attention(const AttentionRequest& request, const DeviceFacts& facts);
// The same of codes of e4m3, which become tensors of the request's element first.
MadeExecutor make_narrow_attention(const AttentionRequest& request, const DeviceFacts& facts);
MadeExecutor make_attention_over_ranks(const lathe_problem& problem,
                                       const AttentionRequest& request, const DeviceFacts& facts,
                                       Group* group);

}  // namespace lathe
