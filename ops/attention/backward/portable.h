// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of the portable backward. Kernels of other families and steps take over its
// constants, as its geometry serves them all.
#pragma once

#include <string>
#include <vector>

#include "ops/attention/backward/step.h"

namespace lathe {

struct AttentionBackwardTile {
  int rows = 64;        // M: query rows of a step
  int keys = 128;       // N: keys of a block, 16 for each `width_warps` warps
  int stages = 1;       // copies of the queries in flight
  int warps = 8;        // threads = 32 * warps
  int width_warps = 1;  // warps that share 16 keys, each with its part of the widths

  bool operator==(const AttentionBackwardTile&) const = default;
};

// Returns the bytes of shared memory of a block: k, v, the stages of q, dout, the score gradients
// (and the weights where warps share keys), two float32 of each row, and the block's position.
int attention_backward_smem(const AttentionProblem& problem, const AttentionBackwardTile& tile);
// Returns the float32 registers of a thread that the tile fixes: dk and dv, the scores and their
// gradients.
int attention_backward_accumulators(const AttentionProblem& problem,
                                    const AttentionBackwardTile& tile);

// Returns all configurations worth trying, the default first. The tuner and choose() share this
// list.
std::vector<AttentionBackwardTile> attention_backward_candidates(const AttentionProblem& problem,
                                                                 const DeviceFacts& facts);
// Returns why the device's shared memory is too small for any tile; empty: there is one.
std::string attention_backward_tile_refusal(const AttentionProblem& problem,
                                            const DeviceFacts& facts);
// Returns the main kernel with a tile that the caller picked from the candidates, and with a block
// for each query head if `apart`.
KernelSpec attention_backward_spec(const AttentionProblem& problem,
                                   const AttentionBackwardTile& tile, bool apart);

}  // namespace lathe
