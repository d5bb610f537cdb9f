// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the steps of attention over ranks: attention to a block of keys that continues a partial
// result, its gradients, and the merge of two partial results. Each step has a plan of its own or
// runs within another operator.
#pragma once

#include "ops/attention/block/kernels.h"
#include "ops/attention/block/schema.h"
#include "ops/attention/run.h"

namespace lathe {

// Requests attention to a block of keys, forward or backward.
struct AttentionBlockRequest {
  AttentionRequest attention;
  bool batch = false;       // rows and keys lie in a batch; else they are packed
  bool first = false;       // nothing to go on from: out and lse, or dq, are written and not read
  bool first_keys = false;  // the same of dk and dv
};
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

// These functions make the steps of a problem. They return UNSUPPORTED, with the name of the
// feature that no template covers.
MadeExecutor make_attention_block(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_attention_block_bwd(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_attention_delta(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_lse_merge(const Resolved& resolved, const DeviceFacts& facts);

// Reads the options and flags that the forward's step and the backward's share.
Result<AttentionBlockRequest> attention_block_request(const Resolved& resolved);

// Holds what the executors of a block step and of its gradients share.
struct AttentionBlockStep {
  AttentionBlockRequest request;
  DeviceFacts facts;
  AttentionBlockKernels kernels;

  // Chooses the kernels. Returns INVALID_ARGUMENT if the margin leaves no multiprocessor.
  static Result<AttentionBlockStep> make(AttentionBlockRequest request, const DeviceFacts& facts);

  const AttentionRequest& asked() const { return request.attention; }
  int64_t free_multiprocessors() const { return facts.multiprocessors - asked().sm_margin; }
  // Returns the thread blocks of a launch that leaves multiprocessors to others.
  int64_t blocks(const KernelSlot& kernel, int64_t tiles) const {
    return attention_block_grid(kernel.numbers(), kernel.registers(), facts, asked().sm_margin,
                                tiles);
  }
  // Finds the ranges of `count` positions, a tensor of the call, in runs of `run`. Does nothing in
  // a step with attention ranges.
  Status find_position_ranges(const Call& call, int positions, int64_t count, int64_t run,
                              void* ranges) const;
  // Fills what says which rows see which keys.
  template <typename Params>
  void fill_ranges(const Call& call, Params* p) const {
    const auto& t = call.tensors;
    p->ranges = t[attention_block::ranges].data;
    p->range_batches = t[attention_block::range_batch].data;
    p->q_positions = t[attention_block::q_pos].data;
    p->k_positions = t[attention_block::k_pos].data;
    const int64_t ranges = call.extents[Dim::NP];
    p->range_count = static_cast<int>(ranges == kUnknown ? 0 : ranges);
  }
};

// Rows and keys are packed, or lie in a batch whose rows all have the same ranges or positions. All
// tensors must have the form that the tensor `lead` has.
Status check_block_form(const lathe_problem& problem, int lead);
bool is_block_batch(const lathe_problem& problem, int lead);
Result<AttentionShape> block_shape(const Extents& extents, bool batch);
Status check_block_shape(const AttentionShape& shape);
Status too_many_block_rows(const char* tensor, const AttentionShape& shape);

}  // namespace lathe
