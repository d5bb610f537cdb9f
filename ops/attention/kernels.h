// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes the flash attention family on the host: which kernels a problem needs, with which
// tiles, how large their grids are and how many bytes they move. Pure functions of integers.
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

// Positions and windows are added in 32 bits.
inline constexpr int64_t kMostTokens = int64_t{1} << 30;
// The driver takes so many bytes of shared memory for each block of threads.
inline constexpr int kReservedShared = 1024;

// Tile constants are part of the spec. They never depend on a length or on the number of sequences.
struct AttentionTile {
  int rows = 128;  // M: query rows of a block; 16 or 32 of them a warp
  int keys = 64;   // N: keys of a step
  int stages = 2;  // copies of the keys and values in flight
  int warps = 4;   // threads = 32 * warps

  bool operator==(const AttentionTile&) const = default;
};

// Returns the width that a kernel is made for: 64, 96, 128, 192 or 256. Columns above `width` are
// zero.
int attention_padded_width(int width);
// Returns the elements of a key and its value, which may be columns of the key.
int attention_key_width(const AttentionProblem& problem);
// Returns the bytes of a block step's queue of visits, which lies behind the tiles in forward and
// backward.
int attention_queue_bytes(const AttentionProblem& problem);
// Returns the bytes of shared memory of the forward: q, and the stages of k and v. float32 is
// stored in three planes.
int attention_forward_smem(const AttentionProblem& problem, const AttentionTile& tile);
// Returns the float32 registers of a thread that the tile fixes: out, the scores, and their 16-bit
// copy.
int attention_forward_accumulators(const AttentionProblem& problem, const AttentionTile& tile);

// Returns all configurations worth trying, the default first. The tuner and choose() share this
// list.
std::vector<AttentionTile> attention_candidates(const AttentionProblem& problem,
                                                const DeviceFacts& facts);
// Returns UNSUPPORTED if the device's shared memory is too small for any tile.
Result<AttentionTile> attention_choose(const AttentionProblem& problem, const DeviceFacts& facts);

struct AttentionKernels {
  KernelSlot mask_blocks;  // before the forward, with a mask_mod
  KernelSlot forward;
};
Result<AttentionKernels> attention_kernels(const AttentionProblem& problem,
                                           const DeviceFacts& facts);
// Returns the forward with a tile that the caller picked from the candidates.
KernelSpec attention_forward_spec(const AttentionProblem& problem, const AttentionTile& tile);

// Returns the kernel that lists key blocks under a mask_mod, for the kernel whose spec is `walker`.
KernelSpec attention_mask_blocks_spec(const AttentionProblem& problem, const KernelSpec& walker);
// Returns why a kernel that copies rows by tensor maps cannot have such rows; null: it can.
const char* map_alignment_refusal(const AttentionProblem& problem);
// Adds to a spec the problem's mods, or one of them, and the types of the arrays that they capture.
void add_mods(const AttentionProblem& problem, KernelSpec* spec, const char* only = nullptr);

// Holds the geometry of a call. If packed, the lengths are capacities, Tq and Tk.
struct AttentionShape {
  int64_t sequences = 0, heads = 0, kv_heads = 0;
  int64_t seq_q = 0, seq_k = 0;
};
int64_t attention_tiles(const KernelNumbers& kernel, const AttentionShape& shape);  // of a sequence
// Counts one block per tile, head (key head if its query heads are packed) and sequence, all in x.
// A launch may have at most 2^31 - 1 blocks: the caller compares this number first.
int64_t attention_forward_blocks(const KernelNumbers& kernel, const AttentionShape& shape);

// Stands for `count` sequences of the same lengths and windows. The lengths of packed input are on
// the device. A cost is computed in the time for one sequence, however many there are.
struct AttentionSequences : AttentionMask {
  int64_t count = 1;
};

// Counts the pairs of a row and a key that a mask keeps.
uint64_t attention_kept_pairs(const AttentionMask& mask);

// Returns how many neighbouring tiles one tile stands for in a cost. The stride is 1, which is
// exact, unless there are more than 2^18 tiles; then neighbours differ little.
int64_t attention_tile_stride(int64_t tiles);

// Returns `count`, or the largest uint64_t if the count is larger.
uint64_t attention_bounded(unsigned __int128 count);

// Counts the bytes and operations that a call needs at least, and those that its tiles make.
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
