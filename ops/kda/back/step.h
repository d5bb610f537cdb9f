// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the walk back of chunked KDA and its implementations.
#pragma once

#include "ops/kda/walk.h"
#include "ops/kernel.h"
#include "ops/step.h"
#include "templates/params/kda_chunked.h"

namespace lathe {

struct KdaBackProblem {
  KdaProblem kda;
  KdaWalkTile tile;  // of the portable walks beside it
  // The same launch also walks forward, for the values and states that a backward reads.
  bool both = false;
  // It keeps rows of y times kda_row_scale(beta), as rows of dv.
  bool by_beta = false;
};

// Launches one kernel that walks back over the tokens of a head's sequence and leaves what the
// gradients of chunks are made of. A block of threads has some columns of V of one head and
// segment.
class KdaBack {
 public:
  explicit KdaBack(KernelSpec spec) : kernel(std::move(spec)) {}
  virtual ~KdaBack() = default;

  // Returns the columns of V of a block of threads.
  virtual int64_t columns() const = 0;
  // Returns the tensor operations of a block of threads for 16 tokens of the walk back.
  virtual int64_t tensor_ops(const KdaProblem& problem) const = 0;
  virtual Status launch(const KdaBackwardScanParams& p, int64_t blocks,
                        CUstream_st* stream) const = 0;

  KernelSlot kernel;
};

using KdaBackStep = Implementation<KdaBackProblem, KdaBack>;
LATHE_STEP(KdaBackStep, kda_backs, kKdaBackSm90, kKdaBackPortable)

// Returns the portable kernel.
KernelSpec kda_backward_scan_spec(const KdaBackProblem& problem);

}  // namespace lathe
