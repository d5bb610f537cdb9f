// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The steps of a ring behind the plan: attention to a block of keys that continues a partial
// result, its gradients, and the merge of two partial results.
#pragma once

#include "ops/attention/block_kernels.h"
#include "ops/attention/run.h"
#include "ops/attention/step_schema.h"
#include "ops/work.h"

namespace lathe {

// Refuse what the tables cannot say.
Status check_attention_block(const Resolved& resolved);
Status check_attention_delta(const Resolved& resolved);
Status check_lse_merge(const Resolved& resolved);

// Choose kernels; compile nothing. UNSUPPORTED, by name, for what no template covers.
Result<std::unique_ptr<Work>> make_attention_block(const Resolved& resolved,
                                                   const DeviceFacts& facts);
Result<std::unique_ptr<Work>> make_attention_block_bwd(const Resolved& resolved,
                                                       const DeviceFacts& facts);
Result<std::unique_ptr<Work>> make_attention_delta(const Resolved& resolved,
                                                   const DeviceFacts& facts);
Result<std::unique_ptr<Work>> make_lse_merge(const Resolved& resolved, const DeviceFacts& facts);

// The forward's step and the backward's share these: options and flags, the checks of a call, and a
// window as kernels take it, where one that passes every position is none.
Result<AttentionRequest> attention_block_request(const Resolved& resolved);
int block_window(int64_t window);

// Which grid a step has that leaves multiprocessors to others. Known once the kernel is there.
class BlockGrid {
 public:
  // INVALID_ARGUMENT if nothing would be left.
  static Result<BlockGrid> make(const BlockOptions& options, const DeviceFacts& facts);
  bool persistent() const { return margin_ > 0; }
  const DeviceFacts& facts() const { return facts_; }
  void bind(const PlanKernel& kernel);
  int64_t blocks(const KernelSpec& spec, int64_t tiles) const {
    return attention_block_grid(spec, registers_, facts_, margin_, tiles);
  }

 private:
  DeviceFacts facts_;
  int64_t margin_ = 0;
  int registers_ = 255;
};

// Rows and keys are packed, or lie in a batch, every row of which has the same pairs or positions.
// Whichever the tensor `lead` has all others must have too.
Status check_block_form(const lathe_problem& problem, int lead);
bool is_block_batch(const lathe_problem& problem, int lead);
Result<AttentionShape> block_shape(const Extents& extents, bool batch);
Status check_block_shape(const AttentionShape& shape);
Status too_many_block_rows(const char* tensor, const AttentionShape& shape);
// Ranges of `count` positions in runs of `run`, at `ranges`.
Status find_position_ranges(const Kernel& kernel, const KernelSpec& spec, const void* positions,
                            int64_t count, int64_t run, void* ranges, CUstream stream);

}  // namespace lathe
