// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes what the portable walks of chunked KDA share: the forward, the summaries of segments
// and the two walks of the backward have one tile. Pure functions of integers.
#pragma once

#include <string>
#include <vector>

#include "codegen/device_facts.h"
#include "codegen/spec.h"
#include "ops/kernel_problems.h"

namespace lathe {

// Holds the tile of a walk. A thread block owns the values of a head that its warps have in
// registers, 16 each, and prepares one block of 16 tokens per warp at once. The tile is part of the
// spec. It depends on the widths, never on a length, a batch or a number of heads.
struct KdaWalkTile {
  int warps = 8;

  int values() const { return 16 * warps; }
  bool operator==(const KdaWalkTile&) const = default;
};

// Returns K as kernels have it: 64, 128, 192 or 256.
int kda_padded_keys(const KdaProblem& problem);
// Returns the bytes of shared memory: a prepared block for each warp, and rows of v.
int kda_walk_smem(const KdaProblem& problem, const KdaWalkTile& tile);
// Returns all tiles worth trying, the default first.
std::vector<KdaWalkTile> kda_walk_candidates(const KdaProblem& problem, const DeviceFacts& facts);
// Returns why the device has no tile: its shared memory is too small. Empty if it has one.
std::string kda_walk_refusal(const KdaProblem& problem, const DeviceFacts& facts);

// Returns the constant for the type of offsets. Without packed lengths it changes nothing: one word
// for all.
Constant kda_offsets(const KdaProblem& problem);
// Returns the constants that all kernels of the operator have.
std::vector<Constant> kda_constants(const KdaProblem& problem);
// Adds what a walk has to know of a pool, if there is one; checkpoints alone are the forward's.
void add_kda_pool(const KdaProblem& problem, bool checkpoints, KernelSpec* spec);
// Returns a walk with the constants that all walks have.
KernelSpec kda_walk_spec(const Template& from, const KdaProblem& problem, const KdaWalkTile& tile);

// Returns in how many parts the sums of 16 tokens are multiplied: 16-bit rows of them are two.
int64_t kda_sum_parts(const KdaProblem& problem);
// Counts the tensor operations of a block of threads for 16 tokens: products with the state beside
// those with the sums, and products with squares of 16 tokens.
struct KdaWalkWork {
  int64_t columns = 0;  // of V of a block
  int64_t states = 0, squares = 0;
};
int64_t kda_walk_ops(const KdaProblem& problem, const KdaWalkWork& work);

}  // namespace lathe
