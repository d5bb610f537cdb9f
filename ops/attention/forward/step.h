// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the forward step of flash attention and its implementations.
#pragma once

#include "ops/attention/params.h"
#include "ops/step.h"
#include "templates/params/attention.h"

namespace lathe {

struct AttentionForwardCall {
  const AttentionRequest& request;
  const AttentionShape& shape;
  const AttentionShape& whole;  // of grids: packed rows of no sequence are somebody's to write
  const AttentionLists& lists;
  const Call& call;
};

// Launches one kernel of the forward and, with a mask_mod, the one before it that lists blocks of
// keys. Tiles, grids and costs follow from the tiling, whoever has it.
class AttentionForward {
 public:
  AttentionForward(KernelSpec spec, const AttentionProblem& problem);
  virtual ~AttentionForward() = default;

  // Returns the kernels in the order of a plan; slots may be empty.
  std::vector<KernelSlot*> slots() { return {&kernel, &mask_blocks}; }
  const AttentionTiling& tiling() const { return kernel.numbers(); }
  virtual Status launch(const AttentionForwardCall& of) const = 0;

  AttentionSlot kernel;
  KernelSlot mask_blocks;

 protected:
  // Fills cleared parameters.
  void fill(const AttentionForwardCall& of, AttentionForwardParams* p) const;
  Status list_blocks(const AttentionForwardCall& of, const AttentionForwardParams& p) const;
};

using AttentionForwardStep = Implementation<AttentionProblem, AttentionForward>;
LATHE_STEP(AttentionForwardStep, attention_forwards, kAttentionForwardSm90,
           kAttentionForwardPortable)

}  // namespace lathe
