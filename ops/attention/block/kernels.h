// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes the block step of ring attention on the host: its kernels, the blocks of keys that its
// tiles visit, workspace and costs. Pure functions of integers. The tiles are those of the forward.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/spec.h"
#include "ops/attention/backward/kernels.h"
#include "ops/conv/kernels.h"  // Grid, Cost
#include "ops/kernel_problems.h"

namespace lathe {

struct AttentionBlockKernels {
  KernelSlot positions;  // ranges of positions, before all others
  KernelSlot forward;
  KernelSlot prepare, backward;
  KernelSlot finish;  // of a deterministic backward
};
// Returns UNSUPPORTED where attention_kernels does.
Result<AttentionBlockKernels> attention_block_kernels(const AttentionProblem& problem,
                                                      const DeviceFacts& facts);
// Returns a step's problem with the constants that a step fixes.
AttentionProblem attention_block_problem(AttentionProblem problem);
// Return the specs with a tile that the caller picked from the candidates.
KernelSpec attention_block_spec(const AttentionProblem& problem, const AttentionTile& tile);
KernelSpec attention_block_backward_spec(const AttentionProblem& problem,
                                         const AttentionBackwardTile& tile);

// Returns the thread blocks for `tiles` tiles or slices: one for each or, if persistent, as many as
// the device holds at once on all multiprocessors but `sm_margin`. `registers` is the compiled
// kernel's number for a thread.
int64_t attention_block_grid(const KernelNumbers& kernel, int registers, const DeviceFacts& facts,
                             int64_t sm_margin, int64_t tiles);

// Returns the warps of attention_positions for `count` positions in runs of `run`.
int64_t attention_positions_blocks(const KernelNumbers& kernel, int64_t count, int64_t run);
// Returns the bytes for ranges of the positions of key blocks; 0 if the step has attention ranges.
uint64_t attention_block_workspace_bytes(const KernelNumbers& forward, int64_t keys);

// Holds the backward of one call. Without `deterministic` the kernel adds to dq in the caller's
// memory.
struct AttentionBlockBackwardLaunch {
  int64_t slices = 0;  // blocks of one key head, and accumulators of dq if deterministic
  int64_t prepare_blocks = 0, main_blocks = 0, finish_blocks = 0;
  int64_t lse2_values = 0, sum_chunks = 0;            // of prepare; a chunk is four float32
  int64_t dq_chunks = 0;                              // of dq that prepare zeroes
  int64_t lse2 = 0, sums = 0, ranges = 0, total = 0;  // offsets and bytes of the workspace
};
// `first`: dq is written, not added to. Returns INVALID_ARGUMENT if the workspace passes 2^63.
Result<AttentionBlockBackwardLaunch> attention_block_backward_launch(
    const AttentionProblem& problem, const AttentionBlockKernels& kernels, const DeviceFacts& facts,
    const AttentionShape& shape, bool first = false);

// lse_merge merges two partial results. `rows` counts those of all heads.

KernelSpec lse_merge_spec(const LseMergeProblem& problem);

// `rows` counts those of all heads. A launch may have at most 2^31 - 1 blocks: the caller compares
// first.
int64_t lse_merge_blocks(const KernelNumbers& kernel, int64_t rows);
Cost lse_merge_cost(const LseMergeProblem& problem, int64_t rows, int64_t heads);

}  // namespace lathe
