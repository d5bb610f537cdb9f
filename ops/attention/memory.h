// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Estimates the bytes that the attention kernels read from memory behind L2, and how many of their
// blocks run at a time. Pure functions of integers.
#pragma once

#include "ops/attention/backward_kernels.h"

namespace lathe {

// Returns the blocks that a multiprocessor holds, as the choice of tiles assumes: as many as shared
// memory allows, but at most eight warps, whose threads may then have all of 255 registers.
int attention_resident_blocks(const KernelSpec& spec, const DeviceFacts& facts);

// Returns the matrix products for each product of the formula. float32 operands are three bfloat16
// planes; six of their nine pairs are multiplied.
int attention_product_terms(const AttentionProblem& problem);

// Returns the bytes that are read from memory again after the first time, because the cache does
// not hold the heads in progress. There are `heads` heads and `blocks` thread blocks; all blocks of
// a head walk the same `bytes` bytes.
uint64_t attention_bytes_again(const KernelSpec& spec, const DeviceFacts& facts, int64_t heads,
                               int64_t blocks, int64_t bytes);

// Returns the bytes read and written in memory, like AttentionCost::bytes. Keys and values count
// once if the cache holds those of the heads in progress, else once for each round of blocks, which
// walk the keys together.
uint64_t attention_memory_bytes(const AttentionProblem& problem, const KernelSpec& spec,
                                const AttentionShape& shape,
                                const std::vector<AttentionSequences>& sequences,
                                const DeviceFacts& facts);
// Returns the same for a backward, whose blocks walk the rows of q, dout and the sums of dq. `cost`
// is the result of attention_backward_cost.
uint64_t attention_backward_memory_bytes(const AttentionProblem& problem,
                                         const AttentionBackwardKernels& kernels,
                                         const AttentionShape& shape,
                                         const AttentionBackwardLaunch& launch,
                                         const std::vector<AttentionSequences>& sequences,
                                         const AttentionCost& cost, const DeviceFacts& facts);

}  // namespace lathe
