// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the main kernel of the backward of sparse attention and its implementations.
#pragma once

#include <memory>
#include <vector>

#include "ops/sparse/kernels.h"
#include "ops/step.h"
#include "templates/params/sparse_attention.h"

namespace lathe {

// Launches one kernel. A block of threads has a row and some of the heads that share a key head.
class SparseBackward {
 public:
  explicit SparseBackward(KernelSpec spec) : kernel(std::move(spec)) {}
  virtual ~SparseBackward() = default;

  // Returns how many warps share 16 heads; the kernel that prepares sums delta in as many parts.
  virtual int groups() const = 0;
  virtual Status launch(const SparseBackwardParams& p, int64_t blocks,
                        CUstream_st* stream) const = 0;

  const SparseTiling& tiling() const { return kernel.numbers(); }

  NumberedSlot<SparseTiling> kernel;
};

using SparseBackwardStep = Implementation<SparseProblem, SparseBackward>;
LATHE_STEP(SparseBackwardStep, sparse_backwards, kSparseBackwardPortable)

// All that follows belongs to the portable implementation.

struct SparseBackwardTile {
  int heads = 32;  // M: query heads of a block
  int keys = 32;   // N: keys of a step
  int stages = 1;  // copies of the keys in flight
  int warps = 8;   // four or eight, of which two or four share 16 heads

  int groups() const { return warps * 16 / heads; }
  bool operator==(const SparseBackwardTile&) const = default;
};

// Returns the bytes of shared memory of a block: q, dout, the stages of k and v, weights and their
// gradients, partial scores, the list, two float32 of each head.
int sparse_backward_smem(const SparseProblem& problem, const SparseBackwardTile& tile);
// Returns the float32 registers of a thread that hold dq.
int sparse_backward_accumulators(const SparseProblem& problem, const SparseBackwardTile& tile);

// Returns all tiles worth trying on the device, the default first.
std::vector<SparseBackwardTile> sparse_backward_candidates(const SparseProblem& problem,
                                                           const DeviceFacts& facts);
KernelSpec sparse_backward_spec(const SparseProblem& problem, const SparseBackwardTile& tile);

}  // namespace lathe
