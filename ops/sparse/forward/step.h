// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the forward of sparse attention and its implementations.
#pragma once

#include <memory>
#include <vector>

#include "ops/sparse/kernels.h"
#include "ops/step.h"
#include "templates/params/sparse_attention.h"

namespace lathe {

// Launches one kernel. A block of threads has a row, some of the heads that share a key head, and a
// part of the row's list.
class SparseForward {
 public:
  explicit SparseForward(KernelSpec spec) : kernel(std::move(spec)) {}
  virtual ~SparseForward() = default;

  virtual Status launch(const SparseForwardParams& p, int64_t blocks,
                        CUstream_st* stream) const = 0;

  const SparseTiling& tiling() const { return kernel.numbers(); }

  NumberedSlot<SparseTiling> kernel;
};

using SparseForwardStep = Implementation<SparseProblem, SparseForward>;
LATHE_STEP(SparseForwardStep, sparse_forwards, kSparseForwardPortable)

// All that follows belongs to the portable implementation.

// Tile constants are part of the spec. They never depend on a length.
struct SparseTile {
  int heads = 64;  // M: query heads of a block, 16 to a warp or to those that share them
  int keys = 32;   // N: keys of a step
  int groups = 2;  // warps that share 16 heads, each with a part of the columns
  int stages = 2;  // tiles of keys in shared memory: the one in use, and those on their way

  int warps() const { return heads / 16 * groups; }
  bool operator==(const SparseTile&) const = default;
};

// Returns the heads of a tile if `group` heads read the same keys: the fewest tiles of one size, at
// most `most` heads, padded to 16. Returns `most` if `group` is 0 (not known).
int sparse_head_rows(int group, int most);

// Returns the bytes of shared memory of the forward: q, the stages of keys and of values, partial
// scores, the list.
int sparse_forward_smem(const SparseProblem& problem, const SparseTile& tile);
// Returns all tiles worth trying on the device, the default first.
std::vector<SparseTile> sparse_candidates(const SparseProblem& problem, const DeviceFacts& facts);
KernelSpec sparse_forward_spec(const SparseProblem& problem, const SparseTile& tile);

}  // namespace lathe
