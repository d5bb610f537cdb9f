// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The backward of flash attention on the host: tiles, specs, grids, workspace and cost of its
// three launches. Pure functions of integers.
//
// A block of the main kernel owns keys and walks over the queries that see them, so dk and dv have
// one writer and are the same bit for bit in every run. dq is added to by many: in no order, or,
// deterministic, by as many blocks for each head as it has accumulators, each in its own order.
// Their number follows from the number of multiprocessors, so bits may differ between GPUs.
#pragma once

#include "ops/attention/kernels.h"

namespace lathe {

struct AttentionBackwardTile {
  int rows = 64;        // M: query rows of a step
  int keys = 128;       // N: keys of a block, 16 for each `width_warps` warps
  int stages = 1;       // copies of the queries in flight
  int warps = 8;        // threads = 32 * warps
  int width_warps = 1;  // warps that share 16 keys, each with its part of the widths

  bool operator==(const AttentionBackwardTile&) const = default;
};

// Shared memory of a block: k, v, the stages of q, dout, the score gradients (and the weights where
// warps share keys), two float32 of each row, and where the block is.
int attention_backward_smem(const AttentionProblem& problem, const AttentionBackwardTile& tile);
// float32 registers of a thread that the tile fixes: dk and dv, the scores and their gradients.
int attention_backward_accumulators(const AttentionProblem& problem,
                                    const AttentionBackwardTile& tile);

// All configurations worth trying, the default first. The tuner and choose() share this list.
std::vector<AttentionBackwardTile> attention_backward_candidates(const AttentionProblem& problem,
                                                                 const DeviceFacts& facts);
// UNSUPPORTED if the device's shared memory is too small for any of them. `apart`: for the kernel
// with a block for each query head, if that is the only one.
Result<AttentionBackwardTile> attention_backward_choose(const AttentionProblem& problem,
                                                        const DeviceFacts& facts,
                                                        bool apart = false);

// Of dq, dk and dv there is a kernel in which a block adds up the query heads of its key head, and
// one with a block for each query head and float32 parts of dk and dv, for few keys and heads.
struct AttentionBackwardKernels {
  KernelSlot prepare, finish;
  KernelSlot together, apart;
  KernelSlot mask_queries;  // before them, with a mask_mod

  const KernelSpec& main() const { return together ? *together : *apart; }
};
// Which of the two a problem may need. Neither if only dsinks is asked for.
struct AttentionHeadChoice {
  bool together = true, apart = false;
};
Result<AttentionBackwardKernels> attention_backward_kernels(const AttentionProblem& problem,
                                                            const DeviceFacts& facts,
                                                            const AttentionHeadChoice& heads);
// The main kernel with a tile that the caller picked from the candidates.
KernelSpec attention_backward_spec(const AttentionProblem& problem,
                                   const AttentionBackwardTile& tile, bool apart);

// The lists of query blocks under a mask_mod, for the main kernel of which `walker` is the spec.
KernelSpec attention_mask_queries_spec(const AttentionProblem& problem, const KernelSpec& walker);
// Key tiles of one sequence, each with a list for every query head.
int64_t attention_key_tiles(const KernelSpec& walker, const AttentionShape& shape);
int64_t attention_query_entries(const KernelSpec& walker, const AttentionShape& shape);  // at most

// Grids and layout of one call.
struct AttentionBackwardLaunch {
  bool apart = false;
  int64_t rows = 0, keys = 0;  // of all sequences
  int64_t prepare_tiles = 0;   // row blocks of one head
  int64_t slices = 0;          // blocks of one head of a sequence
  int64_t accumulators = 0;    // of dq
  int64_t prepare_blocks = 0, main_blocks = 0;
  int64_t dq_blocks = 0, dk_blocks = 0, dv_blocks = 0, dsinks_blocks = 0;  // of finish

  int64_t finish_blocks() const { return dq_blocks + dk_blocks + dv_blocks + dsinks_blocks; }
};
// The outputs that are wanted; they may be fewer than the kernels could give.
struct AttentionGradients {
  bool dq = false, dk = false, dv = false, dsinks = false;
};
// `shape.sequences` is at least 1 for packed input: rows of no sequence are still written.
AttentionBackwardLaunch attention_backward_launch(const AttentionProblem& problem,
                                                  const AttentionBackwardKernels& kernels,
                                                  const DeviceFacts& facts,
                                                  const AttentionShape& shape,
                                                  const AttentionGradients& wanted);
// Whether blocks of whole key heads are too few for the device, so that query heads go apart.
bool attention_heads_apart(const AttentionProblem& problem, const AttentionBackwardTile& tile,
                           const DeviceFacts& facts, const AttentionShape& shape);

// Offsets of the parts of the workspace, each a multiple of 256 bytes; a part that a call has no
// use for has no bytes.
struct AttentionBackwardWorkspace {
  int64_t lse2 = 0;          // float32 [H, rows]
  int64_t error = 0;         // float32 [H, rows]
  int64_t dq_sums = 0;       // float32 [accumulators, rows, H, D]
  int64_t dk_parts = 0;      // float32 [keys, H, D]
  int64_t dv_parts = 0;      // float32 [keys, H, DV]
  int64_t dsinks_parts = 0;  // float32 [prepare_tiles, H]
  int64_t total = 0;
};
// INVALID_ARGUMENT where the sum passes 2^63.
Result<AttentionBackwardWorkspace> attention_backward_workspace(
    const AttentionProblem& problem, const AttentionShape& shape,
    const AttentionBackwardLaunch& launch);

// Five products per kept pair; bytes count what the three launches read and write.
AttentionCost attention_backward_cost(const AttentionProblem& problem,
                                      const AttentionBackwardKernels& kernels,
                                      const AttentionShape& shape,
                                      const AttentionBackwardLaunch& launch,
                                      const std::vector<AttentionSequences>& sequences);

}  // namespace lathe
