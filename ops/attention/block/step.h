// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the two block steps of ring attention, attention to a block of keys that goes on from a
// partial result and its gradients, and their implementations.
#pragma once

#include <memory>

#include "ops/attention/block/kernels.h"
#include "ops/attention/block/schema.h"
#include "ops/attention/params.h"
#include "ops/step.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"

namespace lathe {

// Seven numbers that are no offsets, and the total.
template <>
inline constexpr int kOtherOffsets<AttentionBlockBackwardLaunch> = 8;

// Requests attention to a block of keys, forward or backward.
struct AttentionBlockRequest {
  AttentionRequest attention;
  bool batch = false;       // rows and keys lie in a batch; else they are packed
  bool first = false;       // nothing to go on from: out and lse, or dq, are written and not read
  bool first_keys = false;  // the same of dk and dv
};
// Holds one call of either step. Pointers are into the workspace, or null.
struct AttentionBlockCall {
  const AttentionBlockRequest& request;
  const AttentionShape& shape;
  void* position_ranges;  // of keys in the forward, of rows in the backward
  const Call& call;

  bool packed() const { return !request.batch; }
  // Fills what says which rows see which keys.
  template <typename Params>
  void fill_ranges(Params* p) const {
    const auto& t = call.tensors;
    p->ranges = t[attention_block::ranges].data;
    p->range_batches = t[attention_block::range_batch].data;
    p->q_positions = t[attention_block::q_pos].data;
    p->k_positions = t[attention_block::k_pos].data;
    const int64_t ranges = call.extents[Dim::NP];
    p->range_count = static_cast<int>(ranges == kUnknown ? 0 : ranges);
  }
};

// Holds what launchers of both steps share: a kernel, and how many blocks of it leave
// multiprocessors to others.
class AttentionBlockLauncher {
 public:
  AttentionBlockLauncher(KernelSpec spec, DeviceFacts facts)
      : kernel(std::move(spec)), facts_(std::move(facts)) {}
  virtual ~AttentionBlockLauncher() = default;

  const AttentionTiling& tiling() const { return kernel.numbers(); }

  AttentionSlot kernel;

 protected:
  int64_t free_multiprocessors(const AttentionBlockCall& of) const {
    return facts_.multiprocessors - of.request.attention.sm_margin;
  }
  // Returns the thread blocks for `tiles` tiles or slices.
  int64_t blocks_for(const AttentionBlockCall& of, int64_t tiles) const {
    return attention_block_grid(tiling(), kernel.registers(), facts_,
                                of.request.attention.sm_margin, tiles);
  }

 private:
  DeviceFacts facts_;
};

class AttentionBlock : public AttentionBlockLauncher {
 public:
  using AttentionBlockLauncher::AttentionBlockLauncher;

  virtual Status launch(const AttentionBlockCall& of) const = 0;

 protected:
  // Fills cleared parameters of the forward that the step goes on from.
  void fill(const AttentionBlockCall& of, AttentionForwardParams* p) const;
};

class AttentionBlockBackward : public AttentionBlockLauncher {
 public:
  using AttentionBlockLauncher::AttentionBlockLauncher;

  virtual Status launch(const AttentionBlockCall& of,
                        const AttentionBlockBackwardLaunch& launch) const = 0;

 protected:
  // Fills cleared parameters of the backward that the step adds to.
  void fill(const AttentionBlockCall& of, const AttentionBlockBackwardLaunch& launch,
            AttentionBackwardParams* p) const;
};

using AttentionBlockStep = Implementation<AttentionProblem, AttentionBlock>;
LATHE_STEP(AttentionBlockStep, attention_blocks, kAttentionBlockSm90, kAttentionBlockPortable)

using AttentionBlockBackwardStep = Implementation<AttentionProblem, AttentionBlockBackward>;
LATHE_STEP(AttentionBlockBackwardStep, attention_block_backwards, kAttentionBlockBackwardSm90,
           kAttentionBlockBackwardPortable)

}  // namespace lathe
