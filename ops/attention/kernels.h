// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The flash attention family on the host: which kernels a problem needs, with which tiles, how
// large their grids are and what they move. Pure functions of integers.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/base/status.h"
#include "codegen/device_facts.h"
#include "codegen/launch_shape.h"
#include "codegen/spec.h"
#include "ops/attention/ranges.h"
#include "ops/kernel.h"
#include "ops/kernel_problems.h"

namespace lathe {

// Tile constants: part of the spec, never functions of a length or of the number of sequences.
struct AttentionTile {
  int rows = 128;  // M: query rows of a block; 16 or 32 of them a warp
  int keys = 64;   // N: keys of a step
  int stages = 2;  // copies of the keys and values in flight
  int warps = 4;   // threads = 32 * warps

  bool operator==(const AttentionTile&) const = default;
};

// UNSUPPORTED, by name, for types and widths that no kernel of the family covers.
Status attention_check(const AttentionProblem& problem);
// The width a kernel is made for: 64, 96, 128, 192 or 256, columns above `width` being zero.
int attention_padded_width(int width);
// Of a block step the queue of visits, which forward and backward have behind their tiles.
int attention_queue_bytes(const AttentionProblem& problem);
// Shared memory of the forward: q, and the stages of k and v; float32 in three planes.
int attention_forward_smem(const AttentionProblem& problem, const AttentionTile& tile);
// float32 registers of a thread that the tile fixes: out, the scores, and their 16-bit copy.
int attention_forward_accumulators(const AttentionProblem& problem, const AttentionTile& tile);

// All configurations worth trying, the default first. The tuner and choose() share this list.
std::vector<AttentionTile> attention_candidates(const AttentionProblem& problem,
                                                const DeviceFacts& facts);
// UNSUPPORTED if the device's shared memory is too small for any of them.
Result<AttentionTile> attention_choose(const AttentionProblem& problem, const DeviceFacts& facts);

struct AttentionKernels {
  KernelSlot mask_blocks;  // before the forward, with a mask_mod
  KernelSlot forward;
};
Result<AttentionKernels> attention_kernels(const AttentionProblem& problem,
                                           const DeviceFacts& facts);
// The same with a tile that the caller picked from the candidates.
KernelSpec attention_forward_spec(const AttentionProblem& problem, const AttentionTile& tile);

// The lists of key blocks under a mask_mod, for the kernel of which `walker` is the spec.
KernelSpec attention_mask_blocks_spec(const AttentionProblem& problem, const KernelSpec& walker);
// The problem's mods, or one of them, and the types of what they capture, into a spec.
void add_mods(const AttentionProblem& problem, KernelSpec* spec, const char* only = nullptr);

// Geometry. Packed: the lengths are capacities, Tq and Tk.
struct AttentionShape {
  int64_t sequences = 0, heads = 0, kv_heads = 0;
  int64_t seq_q = 0, seq_k = 0;
};
int64_t attention_tiles(const KernelSpec& spec, const AttentionShape& shape);  // of one sequence
// One block per tile, head (key head where the query heads of one are packed) and sequence, all in
// x. A launch may have at most 2^31 - 1 blocks: the caller compares this number first.
int64_t attention_forward_blocks(const KernelSpec& spec, const AttentionShape& shape);
Grid attention_forward_grid(const KernelSpec& spec, const AttentionShape& shape);
// Lists of key blocks, one for each tile, and how long one may be.
int64_t attention_lists(const KernelSpec& spec, const AttentionProblem& problem,
                        const AttentionShape& shape);
int64_t attention_list_entries(const KernelSpec& spec, const AttentionShape& shape);
// Float32 partial results, if the keys are split; otherwise a forward needs no workspace.
uint64_t attention_forward_workspace_bytes(const AttentionProblem& problem,
                                           const AttentionShape& shape, int64_t splits);

// As many sequences of the same lengths, which for packed input are on the device, and windows.
// Costs take the time of one of them, however many there are.
struct AttentionSequences : AttentionMask {
  int64_t count = 1;
};

// Pairs of a row and a key that a mask keeps.
uint64_t attention_kept_pairs(const AttentionMask& mask);

// A cost looks at one of so many neighbouring tiles and takes it for all of them: 1, which is
// exact, unless there are more than 2^18 tiles, of which each is then much like the next.
int64_t attention_tile_stride(int64_t tiles);

// The largest number where a count has passed it.
uint64_t attention_bounded(unsigned __int128 count);

// What a call must move and compute at least, and what its tiles do.
struct AttentionCost {
  uint64_t minimum_bytes = 0;  // every input read once, every output written once
  uint64_t bytes = 0;          // with k and v read once per tile that visits them
  uint64_t flops = 0;          // 2 (D + DV) per query head and kept pair
  uint64_t tile_flops = 0;     // the same over all pairs of the visited blocks, padded widths
};
AttentionCost attention_forward_cost(const AttentionProblem& problem, const KernelSpec& spec,
                                     const AttentionShape& shape,
                                     const std::vector<AttentionSequences>& sequences);

}  // namespace lathe
