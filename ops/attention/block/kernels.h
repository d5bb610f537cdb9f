// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes the block step of ring attention on the host: its kernels, the blocks of keys that its
// tiles visit, workspace and costs. Pure functions of integers. The tiles are those of the forward.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/spec.h"
#include "ops/attention/kernels.h"
#include "ops/kernel_problems.h"

namespace lathe {

// Return the specs of the kernels before and behind the steps: of the gradients, which the latter
// ends if it is deterministic, and of positions, before all others.
KernelSpec attention_block_prepare_spec(const AttentionProblem& problem);
KernelSpec attention_block_finish_spec(const AttentionProblem& problem);
KernelSpec attention_positions_spec();

// Returns the thread blocks for `tiles` tiles or slices: one for each or, if persistent, as many as
// the device holds at once on all multiprocessors but `sm_margin`. `registers` is the compiled
// kernel's number for a thread.
int64_t attention_block_grid(const AttentionTiling& kernel, int registers, const DeviceFacts& facts,
                             int64_t sm_margin, int64_t tiles);

// Returns the blocks of attention_positions for `count` positions in runs of `run`.
int64_t attention_positions_blocks(int64_t count, int64_t run);
// Returns the bytes for ranges of the positions of key blocks; 0 if the step has attention ranges.
uint64_t attention_block_workspace_bytes(const AttentionTiling& forward, int64_t keys);

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
    const AttentionProblem& problem, const AttentionTiling& main, const DeviceFacts& facts,
    const AttentionShape& shape, bool first = false);

// lse_merge merges two partial results. `rows` counts those of all heads.

KernelSpec lse_merge_spec(const LseMergeProblem& problem);

// `rows` counts those of all heads. A launch may have at most 2^31 - 1 blocks: the caller compares
// first.
struct LseMergeNumbers {
  LseMergeNumbers() = default;
  LseMergeNumbers(const KernelSpec& spec);
  int64_t rows = 0;  // of a block
};
int64_t lse_merge_blocks(const LseMergeNumbers& kernel, int64_t rows);
Cost lse_merge_cost(const LseMergeProblem& problem, int64_t rows, int64_t heads);

}  // namespace lathe
