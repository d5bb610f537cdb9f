// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the step of causal_conv1d_update and its implementations. Each has one launch and no
// workspace. Two have one token for each row of the states, and differ in how warps lie over a
// call; the third has one token for each slot, and the fourth everything else.
#pragma once

#include "ops/conv/kernels.h"
#include "ops/step.h"
#include "ops/tensors.h"
#include "templates/params/conv_slots.h"

namespace lathe {

struct ConvUpdateNumbers {
  ConvUpdateNumbers() = default;
  ConvUpdateNumbers(const KernelSpec& spec);
  int64_t channels = 0, warps = 0;  // of a warp, and of a block
  int64_t rows = 1;                 // sequences of a warp
  int64_t sequences = 1;            // of a block whose warps have some each
};

class ConvUpdate {
 public:
  ConvUpdate(KernelSpec spec, const ConvProblem& problem)
      : kernel(std::move(spec)), problem_(problem) {}
  virtual ~ConvUpdate() = default;

  virtual int64_t blocks(const ConvShape& shape) const = 0;
  virtual Status launch(const Call& call, const ConvShape& shape) const;
  // Counts the bytes that the kernel must move and the operations of the definition.
  Cost cost(const ConvShape& shape) const;

  NumberedSlot<ConvUpdateNumbers> kernel;

 protected:
  const ConvProblem& problem() const { return problem_; }

 private:
  uint64_t state_rows(uint64_t sequences, uint64_t tokens) const;

  ConvProblem problem_;
};

using ConvUpdateStep = Implementation<ConvProblem, ConvUpdate>;
LATHE_STEP(ConvUpdateStep, conv_updates, kConvUpdateSequences, kConvUpdateRow, kConvUpdateToken,
           kConvUpdateSlots)

// Says why an implementation for one token of each row of the states refuses a problem.
inline constexpr char kOverSlots[] =
    "the call has slots, several tokens or states of another width";

// Returns the spec that the implementations have in common.
KernelSpec conv_update_spec(const ConvProblem& problem, int smem_bytes, int warps);
// Holds the bytes that a warp stages: the filter of its channels, and their slots of the state.
struct ConvUpdateShared {
  int filter = 0, slots = 0;
};
ConvUpdateShared conv_update_shared(const ConvProblem& problem);
// Returns the bytes of two of a problem's channels, as far as its alignment allows.
int conv_update_vector(const ConvProblem& problem);

// Return what the implementations over slots have in common.
std::vector<Constant> conv_update_slots_constants(const ConvProblem& problem);
ConvUpdatePoolParams conv_update_pool_params(const ConvProblem& problem, const Call& call,
                                             const ConvShape& shape);

}  // namespace lathe
