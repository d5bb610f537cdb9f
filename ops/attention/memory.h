// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the attention kernels take from memory behind the second cache, and how many of their blocks
// run at a time. Pure functions of integers.
#pragma once

#include "ops/attention/backward_kernels.h"

namespace lathe {

// Blocks that a multiprocessor holds, as the choice of tiles counts on it: what shared memory
// allows, and no more than eight warps, whose threads may then have all of 255 registers.
int attention_resident_blocks(const KernelSpec& spec, const DeviceFacts& facts);

// Matrix products for each product of the formula: float32 operands are three bfloat16 planes, of
// whose nine pairs six are multiplied.
int attention_product_terms(const AttentionProblem& problem);

// Of so many heads, blocks of threads and bytes that all blocks of a head walk: what comes from
// memory beyond the first time, as the cache does not hold the heads in progress.
uint64_t attention_bytes_again(const KernelSpec& spec, const DeviceFacts& facts, int64_t heads,
                               int64_t blocks, int64_t bytes);

// Bytes from memory: as AttentionCost::bytes, but keys and values once where the cache holds those
// of the heads in progress, else once for each round of blocks, which walk the keys together.
uint64_t attention_memory_bytes(const AttentionProblem& problem, const KernelSpec& spec,
                                const AttentionShape& shape,
                                const std::vector<AttentionSequences>& sequences,
                                const DeviceFacts& facts);
// The same of a backward, whose blocks walk the rows of q, dout and the sums of dq. `cost`: that of
// attention_backward_cost.
uint64_t attention_backward_memory_bytes(const AttentionProblem& problem,
                                         const AttentionBackwardKernels& kernels,
                                         const AttentionShape& shape,
                                         const AttentionBackwardLaunch& launch,
                                         const std::vector<AttentionSequences>& sequences,
                                         const AttentionCost& cost, const DeviceFacts& facts);

}  // namespace lathe
