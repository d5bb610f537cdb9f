// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How long the launches of chunked KDA take where neither memory nor tensor cores are the limit: a
// thread block walks through its tokens alone, and as fast as its multiprocessor issues.
#pragma once

#include "ops/kda/chunked_kernels.h"

namespace lathe {

// Cycles of the thread blocks that follow one another on a multiprocessor, all launches added up.
// From counted instructions, so a prediction; packed sequences are taken to be of one length.
uint64_t kda_chain_cycles(const KdaProblem& problem, const KdaChunkedKernels& kernels,
                          const KdaChunkedShape& shape, const DeviceFacts& facts);

// Of one walk of `blocks` thread blocks through `tokens` tokens each.
uint64_t kda_walk_cycles(const KdaProblem& problem, const KernelSpec& walk, int64_t blocks,
                         int64_t tokens, const DeviceFacts& facts);

}  // namespace lathe
