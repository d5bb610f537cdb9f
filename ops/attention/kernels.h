// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds what the steps of flash attention share on the host: tiles, shapes, grids of tiles of rows,
// and how many bytes and operations they take. Pure functions of integers.
#pragma once

#include <cstdint>
#include <string>
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
// Returns why kernels that copy rows by tensor maps cannot serve a problem or a device; empty: they
// can.
std::string tensor_map_refusal(const AttentionProblem& problem, const DeviceFacts& facts);
// Returns the constant for the type of offsets. Without packed lengths it changes nothing: one word
// for all.
Constant attention_offsets(const AttentionProblem& problem);

// Holds the constants of a kernel that grids and launches depend on; 0 where the kernel has none of
// the name.
struct AttentionTiling {
  AttentionTiling() = default;
  AttentionTiling(const KernelSpec& spec);

  int64_t m = 0, n = 0;                // rows and keys of a tile
  int64_t width = 0, value_width = 0;  // that the kernel is made for
  int64_t packed = 0, local = 0;       // flags
  // Flags: tiles have rows of all query heads of a key head, and no group of heads is divided.
  int64_t pack_gqa = 0, whole_groups = 0;
  int64_t short_first = 0;             // flag: the first tile may be the short one
  int64_t ranges = 0, persistent = 0;  // of a block step
  int64_t threads = 0, smem_bytes = 0;
};
using AttentionSlot = NumberedSlot<AttentionTiling>;

// Adds to a spec the flags of templates/attention/score_options.cuh.
void add_score_flags(const AttentionProblem& problem, KernelSpec* spec);
// Adds to a spec the problem's mods, or one of them, and the types of the arrays that they capture.
void add_mods(const AttentionProblem& problem, KernelSpec* spec, const char* only = nullptr);
// Returns the kernels that list blocks of keys, or of queries, under a mask_mod, for the kernel
// whose spec is `walker`.
KernelSpec attention_mask_blocks_spec(const AttentionProblem& problem, const KernelSpec& walker);
KernelSpec attention_mask_queries_spec(const AttentionProblem& problem, const KernelSpec& walker);
// Widens codes in e4m3 of q, k or v to the dtype of the kernels.
KernelSpec attention_widen_spec(const AttentionProblem& problem);

// Holds the geometry of a call. If packed, the lengths are capacities, Tq and Tk.
struct AttentionShape {
  int64_t sequences = 0, heads = 0, kv_heads = 0;
  int64_t seq_q = 0, seq_k = 0;
};
int64_t attention_tiles(const AttentionTiling& kernel,
                        const AttentionShape& shape);  // of a sequence
// Counts one block per tile, head (key head if its query heads are packed) and sequence, all in x.
// A launch may have at most 2^31 - 1 blocks: the caller compares this number first.
int64_t attention_forward_blocks(const AttentionTiling& kernel, const AttentionShape& shape);

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

}  // namespace lathe
