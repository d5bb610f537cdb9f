// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the steps of attention over ranks: attention to a block of keys that continues a partial
// result, its gradients, and the merge of two partial results. Each step has a plan of its own or
// runs within another operator.
#pragma once

#include "ops/attention/block_kernels.h"
#include "ops/attention/run.h"
#include "ops/attention/step_schema.h"

namespace lathe {

// Requests attention to a block of keys, forward or backward.
struct AttentionBlockRequest {
  AttentionRequest attention;
  bool batch = false;       // rows and keys lie in a batch; else they are packed
  bool first = false;       // nothing to go on from: out and lse, or dq, are written and not read
  bool first_keys = false;  // the same of dk and dv
};
// Returns the step that computes the scores of `whole`, with ranges. `capture_0` is the first
// captured array in the step's table.
AttentionBlockRequest block_step(const AttentionRequest& whole, int capture_0);

// Requests the step before a backward, which computes two numbers of each row.
struct AttentionDeltaRequest {
  AttentionProblem problem;
  bool batch = false;
};
AttentionDeltaRequest delta_step(const AttentionRequest& whole);

struct LseMergeRequest {
  LseMergeProblem problem;
  bool batch = false;
};
// Returns the step that ends the forward of `whole`: it folds sinks in and rounds out.
LseMergeRequest merge_step(const AttentionRequest& whole);

// These functions choose kernels and compile nothing.
MadeExecutor make_attention_block(AttentionBlockRequest request, const DeviceFacts& facts);
MadeExecutor make_attention_block_bwd(AttentionBlockRequest request, const DeviceFacts& facts);
MadeExecutor make_attention_delta(const AttentionDeltaRequest& request, const DeviceFacts& facts);
MadeExecutor make_lse_merge(const LseMergeRequest& request);

// These functions refuse problems that the tables cannot exclude.
Status check_attention_block(const Resolved& resolved);
Status check_attention_delta(const Resolved& resolved);
Status check_lse_merge(const Resolved& resolved);

// These functions make the steps of a problem. They return UNSUPPORTED, with the name of the
// feature that no template covers.
MadeExecutor make_attention_block(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_attention_block_bwd(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_attention_delta(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_lse_merge(const Resolved& resolved, const DeviceFacts& facts);

// Reads the options and flags that the forward's step and the backward's share.
Result<AttentionBlockRequest> attention_block_request(const Resolved& resolved);

// Computes the grid of a step that leaves multiprocessors to others.
class BlockGrid {
 public:
  // Returns INVALID_ARGUMENT if no multiprocessor would be left.
  static Result<BlockGrid> make(int64_t sm_margin, const DeviceFacts& facts);
  bool persistent() const { return margin_ > 0; }
  const DeviceFacts& facts() const { return facts_; }
  int64_t blocks(const KernelSlot& kernel, int64_t tiles) const {
    return attention_block_grid(*kernel, kernel.registers(), facts_, margin_, tiles);
  }

 private:
  DeviceFacts facts_;
  int64_t margin_ = 0;
};

// Rows and keys are packed, or lie in a batch whose rows all have the same ranges or positions. All
// tensors must have the form that the tensor `lead` has.
Status check_block_form(const lathe_problem& problem, int lead);
bool is_block_batch(const lathe_problem& problem, int lead);
Result<AttentionShape> block_shape(const Extents& extents, bool batch);
Status check_block_shape(const AttentionShape& shape);
Status too_many_block_rows(const char* tensor, const AttentionShape& shape);
// Writes to `ranges` the ranges of `count` positions in runs of `run`.
Status find_position_ranges(const KernelSlot& kernel, const void* positions, int64_t count,
                            int64_t run, void* ranges, CUstream stream);

}  // namespace lathe
