// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes the sparse attention family on the host: which kernels a problem needs, with which
// tiles, how large their grids are and how many bytes they move. Pure functions of integers.
#pragma once

#include "codegen/device_facts.h"
#include "ops/kernel.h"
#include "ops/kernel_problems.h"

namespace lathe {

// Tile constants are part of the spec. They never depend on a length.
struct SparseTile {
  int heads = 64;  // M: query heads of a block, 16 to a warp or to those that share them
  int keys = 32;   // N: keys of a step
  int groups = 2;  // warps that share 16 heads, each with a part of the columns
  int stages = 2;  // tiles of keys in shared memory: the one in use, and those on their way

  int warps() const { return heads / 16 * groups; }
  bool operator==(const SparseTile&) const = default;
};

// Returns the width that a tile is made for, whole panels of 64. Columns above `width` are zero.
int sparse_padded_width(int width);
// Returns the heads of a tile if `group` heads read the same keys: the fewest tiles of one size, at
// most `most` heads, padded to 16. Returns `most` if `group` is 0 (not known).
int sparse_head_rows(int group, int most);

// Returns the bytes of shared memory of the forward: q, the stages of keys and of values, partial
// scores, the list.
int sparse_forward_smem(const SparseProblem& problem, const SparseTile& tile);
// Returns all tiles worth trying on the device, the default first.
std::vector<SparseTile> sparse_candidates(const SparseProblem& problem, const DeviceFacts& facts);
// Returns UNSUPPORTED if the device's shared memory is too small for any tile.
Result<SparseTile> sparse_choose(const SparseProblem& problem, const DeviceFacts& facts);

struct SparseTiling {
  SparseTiling() = default;
  SparseTiling(const KernelSpec& spec) : heads(spec.constant("m")), keys(spec.constant("n", 0)) {}
  int64_t heads = 0, keys = 0;  // of a tile, and of a step
};

struct SparseKernels {
  NumberedSlot<SparseTiling> forward;
  KernelSlot combine;
};
Result<SparseKernels> sparse_kernels(const SparseProblem& problem, const DeviceFacts& facts);
// Returns the forward with a tile that the caller picked from the candidates.
KernelSpec sparse_forward_spec(const SparseProblem& problem, const SparseTile& tile);
KernelSpec sparse_combine_spec(const SparseProblem& problem);

// Holds the geometry. If packed, rows and keys are those of all sequences, and `sequences` is 1.
struct SparseShape {
  int64_t sequences = 0, heads = 0, kv_heads = 0;
  int64_t seq_q = 0, seq_k = 0;
  int64_t topk = 0, block = 1;  // entries of a list, keys of an entry
  int64_t extra = 0;            // entries of the list of a second cache

  int64_t rows() const { return sequences * seq_q; }
  int64_t group() const { return kv_heads > 0 ? heads / kv_heads : 0; }
  int64_t listed() const { return topk * block + extra; }  // keys of a list, at most
};
// Returns the tiles that the heads of a key head are cut into.
int64_t sparse_head_tiles(const SparseTiling& kernel, const SparseShape& shape);
// Counts a block per row, key head, tile of heads and split of the list, all in x. A launch may
// have at most 2^31 - 1 blocks: the caller compares these first.
int64_t sparse_forward_blocks(const SparseTiling& kernel, const SparseShape& shape, int64_t splits);
int64_t sparse_combine_blocks(const KernelSpec& spec, const SparseShape& shape);

// Returns into how many splits each list is cut: 1 unless rows are few and lists long. If `wanted`
// is 0 the function chooses. The result depends on capacities, never on lengths.
inline constexpr int64_t kMostSparseSplits = 64;
int64_t sparse_splits(const SparseProblem& problem, const SparseTiling& kernel,
                      const SparseShape& shape, int64_t multiprocessors, int64_t wanted);
// Holds the offsets and total bytes of the partial results of `splits` splits: out, then maxima,
// then sums.
struct SparsePartials {
  int64_t out = 0, maxima = 0, sums = 0, total = 0;
};
SparsePartials sparse_partials(const SparseProblem& problem, const SparseShape& shape,
                               int64_t splits);

// Returns the bytes that stay in L2 between the reads of several lists, while other data streams
// through.
int64_t sparse_cached_bytes(const DeviceFacts& facts);
// Counts the cost as if no entry were skipped. Keys come from memory once if `cached` bytes hold
// all of them, else for every entry and tile of heads.
Cost sparse_forward_cost(const SparseProblem& problem, const KernelSpec& spec,
                         const SparseShape& shape, int64_t splits, int64_t cached = 0);

// The rank that holds the keys joins their gradients over ranks with this kernel.

// `part` is the type of the gradients from other ranks' rows: float32 or the keys' type.
KernelSpec sparse_join_spec(Dtype element, Dtype part, bool exact = false);
// Returns the blocks for a tensor with `rows` rows of all key heads.
int64_t sparse_join_blocks(const KernelSpec& spec, int64_t rows, int64_t width);
int64_t sparse_join_sinks_blocks(const KernelSpec& spec, int64_t heads);

}  // namespace lathe
