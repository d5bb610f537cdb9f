// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the forward walk of chunked KDA and its implementations.
#pragma once

#include "ops/kda/walk.h"
#include "ops/kernel.h"
#include "ops/step.h"
#include "templates/params/kda_chunked.h"

namespace lathe {

// Launches one kernel that walks over the tokens of a head's sequence and writes the output. A
// block of threads has some columns of V of one head and segment.
class KdaForward {
 public:
  explicit KdaForward(KernelSpec spec) : kernel(std::move(spec)) {}
  virtual ~KdaForward() = default;

  // Returns the columns of V of a block of threads.
  virtual int64_t columns() const = 0;
  // Returns the tile of the portable walks beside it.
  virtual KdaWalkTile beside() const = 0;
  // Returns the tensor operations of a block of threads for 16 tokens.
  virtual int64_t tensor_ops(const KdaProblem& problem) const = 0;
  // Returns the same of a walk that comes before in the same launch and gives no outputs, or 0.
  virtual int64_t tensor_ops_before(const KdaProblem&) const { return 0; }
  // Returns whether it writes no more of the states that it keeps than it is told to.
  virtual bool leaves_out() const { return false; }
  virtual Status launch(const KdaForwardParams& p, int64_t blocks, CUstream_st* stream) const = 0;

  KernelSlot kernel;
};

using KdaForwardStep = Implementation<KdaProblem, KdaForward>;
LATHE_STEP(KdaForwardStep, kda_forwards, kKdaForwardSm90, kKdaForwardPortable)

// The same of sequences in segments, with all that comes before their walks, in one launch: the
// segments of a head are the blocks of a cluster. Where there is none there are launches for the
// summaries and their chain (ops/kda/summary/step.h).
LATHE_STEP(KdaForwardStep, kda_clusters, kKdaForwardCluster)
constexpr int kKdaMostInCluster = 8;  // segments

// Returns the portable kernel with a tile.
KernelSpec kda_forward_spec(const KdaProblem& problem, const KdaWalkTile& tile);

}  // namespace lathe
