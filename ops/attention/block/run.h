// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the steps of attention over ranks: attention to a block of keys that continues a partial
// result, its gradients, and the merge of two partial results. Each step has a plan of its own or
// runs within another operator.
#pragma once

#include "ops/attention/block/step.h"
#include "ops/executor.h"

namespace lathe {

// Returns the step that computes the scores of `whole`, with ranges.
AttentionBlockRequest block_step(const AttentionRequest& whole);
// Returns the step before the backward of `whole`, which computes two numbers of each row.
AttentionProblem delta_step(const AttentionRequest& whole);
// Returns the step that ends the forward of `whole`: it folds sinks in and rounds out.
LseMergeProblem merge_step(const AttentionRequest& whole);

// These functions choose kernels and compile nothing. `batch`: rows lie in a batch; else they are
// packed.
MadeExecutor make_attention_block(AttentionBlockRequest request, const DeviceFacts& facts);
MadeExecutor make_attention_block_bwd(AttentionBlockRequest request, const DeviceFacts& facts);
MadeExecutor make_attention_delta(const AttentionProblem& problem, bool batch,
                                  const DeviceFacts& facts);
MadeExecutor make_lse_merge(const LseMergeProblem& problem, bool batch);

// These functions refuse problems that the tables cannot exclude.
Status check_attention_block(const Resolved& resolved);
Status check_attention_delta(const Resolved& resolved);
Status check_lse_merge(const Resolved& resolved);

// Checks attention ranges: intervals lie within rows and keys and ascend, no row sees a key in two
// of them, and positions are small enough to add.
Status check_block_values(const Values& values);

// These functions make the steps of a problem. They return UNSUPPORTED, with the name of the
// feature that no template covers.
MadeExecutor make_attention_block(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_attention_block_bwd(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_attention_delta(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_lse_merge(const Resolved& resolved, const DeviceFacts& facts);

// Reads the options and flags that the forward's step and the backward's share.
Result<AttentionBlockRequest> attention_block_request(const Resolved& resolved);

// Finds the least and the greatest of each run of positions, which tiles skip blocks by. Does
// nothing in a step with attention ranges.
struct PositionRanges {
  explicit PositionRanges(bool needed);
  // Finds those of `count` positions, a tensor of the call, in runs of `run`.
  Status find(const Call& call, int positions, int64_t count, int64_t run, void* ranges) const;

  KernelSlot kernel;
};
// Says in the problem whether blocks take turns. Returns INVALID_ARGUMENT if the margin leaves no
// multiprocessor.
Status take_margin(const DeviceFacts& facts, AttentionBlockRequest* request);

// Rows and keys are packed, or lie in a batch whose rows all have the same ranges or positions. All
// tensors must have the form that the tensor `lead` has.
Status check_block_form(const lathe_problem& problem, int lead);
bool is_block_batch(const lathe_problem& problem, int lead);
Result<AttentionShape> block_shape(const Extents& extents, bool batch);
Status check_block_shape(const AttentionShape& shape);
Status too_many_block_rows(const char* tensor, const AttentionShape& shape);

}  // namespace lathe
