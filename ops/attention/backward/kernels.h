// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes the backward of flash attention on the host: tiles, specs, grids, workspace and cost of
// its three launches. Pure functions of integers.
//
// A block of the main kernel owns keys and walks over the queries that see them, so dk and dv have
// one writer and are the same bit for bit in every run. Many blocks add to dq, in no fixed order.
// In a deterministic backward of the portable kernels each block of a head adds to its own
// accumulator in a fixed order. The number of accumulators follows from the number of
// multiprocessors, so bits may differ between GPUs. By warpgroups there is one, and blocks take
// turns at it.
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
// Returns UNSUPPORTED if the device's shared memory is too small for any tile. `apart`: the only
// main kernel is the one with a block for each query head.
Result<AttentionBackwardTile> attention_backward_choose(const AttentionProblem& problem,
                                                        const DeviceFacts& facts,
                                                        bool apart = false);

// Returns the main kernel, of either family, with a block for each query head if `apart`.
Result<KernelSpec> attention_backward_main(const AttentionProblem& problem,
                                           const DeviceFacts& facts, bool apart);

// Two kernels of one family and tile compute dq, dk and dv. In `together` a block adds up the query
// heads of its key head. `apart` has a block for each query head and float32 partial sums of dk and
// dv, for few keys and heads.
struct AttentionBackwardKernels {
  KernelSlot prepare, finish;
  KernelSlot together, apart;
  KernelSlot mask_queries;  // before them, with a mask_mod

  const KernelSpec& main() const { return together ? *together : *apart; }
  const KernelNumbers& main_numbers() const { return (together ? together : apart).numbers(); }
};
// Says which of the two kernels a problem may need: neither if only dsinks is asked for.
struct AttentionHeadChoice {
  bool together = true, apart = false;
};
Result<AttentionBackwardKernels> attention_backward_kernels(const AttentionProblem& problem,
                                                            const DeviceFacts& facts,
                                                            const AttentionHeadChoice& heads);
// Returns the main kernel with a tile that the caller picked from the candidates.
KernelSpec attention_backward_spec(const AttentionProblem& problem,
                                   const AttentionBackwardTile& tile, bool apart);

// Returns the kernel that lists query blocks under a mask_mod, for the main kernel whose spec is
// `walker`.
KernelSpec attention_mask_queries_spec(const AttentionProblem& problem, const KernelSpec& walker);

// Holds the grids and the layout of one call.
struct AttentionBackwardLaunch {
  bool apart = false;
  int64_t rows = 0, keys = 0;         // of all sequences
  int64_t prepare_tiles = 0;          // row blocks of one head
  int64_t slices = 0;                 // blocks of one head of a sequence
  int64_t accumulators = 0;           // of dq
  int64_t dq_rows = 0, dq_width = 0;  // of an accumulator: rows of each head, and their columns
  bool in_tiles = false;              // where it lies in tiles:
  int64_t dq_tiles = 0;               // those of a head
  int64_t dq_turns = 0;               // with an order: of the tiles of all heads, and a ticket
  int64_t dq_section = 0;             // heads whose blocks run at a time
  int64_t prepare_blocks = 0, main_blocks = 0;
  int64_t dq_blocks = 0, dk_blocks = 0, dv_blocks = 0, dsinks_blocks = 0;  // of finish

  int64_t finish_blocks() const { return dq_blocks + dk_blocks + dv_blocks + dsinks_blocks; }
};
// Says which outputs are wanted; they may be fewer than the kernels can compute.
struct AttentionGradients {
  bool dq = false, dk = false, dv = false, dsinks = false;
};
// `shape.sequences` is at least 1 for packed input: rows of no sequence are still written.
AttentionBackwardLaunch attention_backward_launch(const AttentionProblem& problem,
                                                  const AttentionBackwardKernels& kernels,
                                                  const DeviceFacts& facts,
                                                  const AttentionShape& shape,
                                                  const AttentionGradients& wanted);
// Returns whether blocks of whole key heads are too few for the device, so that each query head
// gets its own block. `main` is of the main kernel, with blocks of either kind.
bool attention_heads_apart(const AttentionProblem& problem, const KernelNumbers& main,
                           const DeviceFacts& facts, const AttentionShape& shape);

// Holds the offsets of the workspace's sections, each a multiple of 256 bytes. A section that a
// call does not use has no bytes.
struct AttentionBackwardWorkspace {
  int64_t lse2 = 0;          // float32 [H, rows]
  int64_t delta = 0;         // float32 [H, rows]
  int64_t dq_sums = 0;       // float32 [accumulators, dq_rows, H, dq_width], or in tiles
  int64_t dq_order = 0;      // int64 [dq_turns], zeroed in the place of the sums
  int64_t dk_parts = 0;      // float32 [keys, H, D]
  int64_t dv_parts = 0;      // float32 [keys, H, DV]
  int64_t dsinks_parts = 0;  // float32 [prepare_tiles, H]
  int64_t total = 0;
};
// Returns INVALID_ARGUMENT if the sum passes 2^63.
Result<AttentionBackwardWorkspace> attention_backward_workspace(
    const AttentionProblem& problem, const AttentionShape& shape,
    const AttentionBackwardLaunch& launch);

// Counts five products per kept pair, and the bytes that the three launches read and write.
AttentionCost attention_backward_cost(const AttentionProblem& problem,
                                      const AttentionBackwardKernels& kernels,
                                      const AttentionShape& shape,
                                      const AttentionBackwardLaunch& launch,
                                      const std::vector<AttentionSequences>& sequences);

// The functions below estimate the bytes that the kernels of either direction read from memory
// behind L2, and how many of their blocks run at a time.

// Returns the blocks that a multiprocessor holds, as the choice of tiles assumes: as many as shared
// memory allows, but at most eight warps, whose threads may then have all of 255 registers.
int attention_resident_blocks(const KernelSpec& spec, const DeviceFacts& facts);

// Returns the matrix products for each product of the formula. float32 operands are three bfloat16
// planes; six of their nine pairs are multiplied.
int attention_product_terms(const AttentionProblem& problem);

// Returns the bytes that are read from memory again after the first time, because the cache does
// not hold the heads in progress. There are `heads` heads and `blocks` thread blocks; all blocks of
// a head walk the same `bytes` bytes.
uint64_t attention_bytes_again(const KernelSpec& spec, const DeviceFacts& facts, int64_t heads,
                               int64_t blocks, int64_t bytes);

// Returns the bytes read and written in memory, like AttentionCost::bytes. Keys and values count
// once if the cache holds those of the heads in progress, else once for each round of blocks, which
// walk the keys together.
uint64_t attention_memory_bytes(const AttentionProblem& problem, const KernelSpec& spec,
                                const AttentionShape& shape,
                                const std::vector<AttentionSequences>& sequences,
                                const DeviceFacts& facts);
// Returns the same for a backward, whose blocks walk the rows of q, dout and the sums of dq. `cost`
// is the result of attention_backward_cost.
uint64_t attention_backward_memory_bytes(const AttentionProblem& problem,
                                         const AttentionBackwardKernels& kernels,
                                         const AttentionShape& shape,
                                         const AttentionBackwardLaunch& launch,
                                         const std::vector<AttentionSequences>& sequences,
                                         const AttentionCost& cost, const DeviceFacts& facts);

}  // namespace lathe
