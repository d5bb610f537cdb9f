// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The steps of attention over ranks, behind a plan of their own or within another operator:
// attention to a block of keys that continues a partial result, its gradients, and the merge of two
// partial results.
#pragma once

#include "ops/attention/block_kernels.h"
#include "ops/attention/run.h"
#include "ops/attention/step_schema.h"

namespace lathe {

// A block of keys, forward or backward.
struct AttentionBlockRequest {
  AttentionRequest attention;
  bool batch = false;       // rows and keys lie in a batch; else they are packed
  bool first = false;       // nothing to go on from: out and lse, or dq, are written and not read
  bool first_keys = false;  // the same of dk and dv
};
// The step that computes the scores of `whole`, with ranges. `capture_0`: the first of the captured
// arrays in the step's table.
AttentionBlockRequest block_step(const AttentionRequest& whole, int capture_0);

// The step before a backward: it computes two numbers of each row.
struct AttentionDeltaRequest {
  AttentionProblem problem;
  bool batch = false;
};
AttentionDeltaRequest delta_step(const AttentionRequest& whole);

struct LseMergeRequest {
  LseMergeProblem problem;
  bool batch = false;
};
// The step that ends the forward of `whole`: sinks are folded in, and out is rounded.
LseMergeRequest merge_step(const AttentionRequest& whole);

// Choose kernels; compile nothing.
MadeExecutor make_attention_block(AttentionBlockRequest request, const DeviceFacts& facts);
MadeExecutor make_attention_block_bwd(AttentionBlockRequest request, const DeviceFacts& facts);
MadeExecutor make_attention_delta(const AttentionDeltaRequest& request, const DeviceFacts& facts);
MadeExecutor make_lse_merge(const LseMergeRequest& request);

// Refuse what the tables cannot say.
Status check_attention_block(const Resolved& resolved);
Status check_attention_delta(const Resolved& resolved);
Status check_lse_merge(const Resolved& resolved);

// Make the steps of a problem. UNSUPPORTED, by name, for what no template covers.
MadeExecutor make_attention_block(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_attention_block_bwd(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_attention_delta(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_lse_merge(const Resolved& resolved, const DeviceFacts& facts);

// Reads the options and flags that the forward's step and the backward's share.
Result<AttentionBlockRequest> attention_block_request(const Resolved& resolved);

// The grid of a step that leaves multiprocessors to others.
class BlockGrid {
 public:
  // INVALID_ARGUMENT if nothing would be left.
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

// Rows and keys are packed, or lie in a batch, every row of which has the same ranges or positions.
// Whichever the tensor `lead` has all others must have too.
Status check_block_form(const lathe_problem& problem, int lead);
bool is_block_batch(const lathe_problem& problem, int lead);
Result<AttentionShape> block_shape(const Extents& extents, bool batch);
Status check_block_shape(const AttentionShape& shape);
Status too_many_block_rows(const char* tensor, const AttentionShape& shape);
// Ranges of `count` positions in runs of `run`, at `ranges`.
Status find_position_ranges(const KernelSlot& kernel, const void* positions, int64_t count,
                            int64_t run, void* ranges, CUstream stream);

}  // namespace lathe
