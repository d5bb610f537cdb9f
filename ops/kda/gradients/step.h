// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the step that makes the gradients of chunks of 64 tokens from what the walks have left,
// and its implementations.
#pragma once

#include "ops/kernel.h"
#include "ops/kernel_problems.h"
#include "ops/step.h"
#include "templates/params/kda_chunked.h"

namespace lathe {

// Launches one kernel. A block of threads has one chunk of a query head, with the value heads that
// share it.
class KdaGradients {
 public:
  explicit KdaGradients(KernelSpec spec) : kernel(std::move(spec)) {}
  virtual ~KdaGradients() = default;

  // Returns the tensor operations of a chunk of a value head.
  virtual int64_t tensor_ops(const KdaProblem& problem) const = 0;
  // Returns how many blocks of threads the device has at a time, if a block may go through a run of
  // chunks and needs the state of the first one alone; else 0.
  virtual int64_t blocks_at_once() const { return 0; }
  // Returns whether rows of y come as rows of dv: KdaBackProblem::by_beta.
  virtual bool by_beta() const { return false; }
  virtual Status launch(const KdaBackwardParams& p, int64_t blocks, CUstream_st* stream) const = 0;

  KernelSlot kernel;
};

using KdaGradientsStep = Implementation<KdaProblem, KdaGradients>;
LATHE_STEP(KdaGradientsStep, kda_gradients, kKdaGradientsSm90, kKdaGradientsPortable)

// Returns the portable kernel, and its shared memory.
KernelSpec kda_backward_spec(const KdaProblem& problem);
int kda_backward_smem(const KdaProblem& problem);

}  // namespace lathe
