// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Predicts how long the launches of chunked KDA take if neither memory nor tensor cores are the
// limit. Then each thread block walks through its tokens as fast as its multiprocessor issues
// instructions.
#pragma once

#include "ops/kda/chunked_kernels.h"

namespace lathe {

// Returns the cycles of the thread blocks that follow one another on a multiprocessor, summed over
// all launches. The result is a prediction from counted instructions; it takes packed sequences to
// be of one length.
uint64_t kda_chain_cycles(const KdaProblem& problem, const KdaChunkedKernels& kernels,
                          const KdaChunkedShape& shape, const DeviceFacts& facts);

// Returns the cycles of one walk of `blocks` thread blocks through `tokens` tokens each.
uint64_t kda_walk_cycles(const KdaProblem& problem, const KernelSpec& walk, int64_t blocks,
                         int64_t tokens, const DeviceFacts& facts);

}  // namespace lathe
