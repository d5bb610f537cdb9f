// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes sparse attention on the host: how large the grids of its kernels are, how many bytes
// they move, and the kernels that have one implementation alone. Pure functions of integers.
#pragma once

#include "codegen/device_facts.h"
#include "ops/kernel.h"
#include "ops/kernel_problems.h"

namespace lathe {

// Returns the width that a tile is made for, whole panels of 64. Columns above `width` are zero.
int sparse_padded_width(int width);
// Describes how a kernel cuts its work; grids and costs follow from it.
struct SparseTiling {
  SparseTiling() = default;
  SparseTiling(const KernelSpec& spec)
      : heads(spec.constant("m")),
        keys(spec.constant("n")),
        width(spec.constant("width")),
        value_width(spec.constant("value_width")) {}
  int64_t heads = 0, keys = 0;         // of a tile, and of a step
  int64_t width = 0, value_width = 0;  // padded
};

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
Cost sparse_forward_cost(const SparseProblem& problem, const SparseTiling& kernel,
                         const SparseShape& shape, int64_t splits, int64_t cached = 0);

// The rank that holds the keys joins their gradients over ranks with this kernel.

// `part` is the type of the gradients from other ranks' rows: float32 or the keys' type.
KernelSpec sparse_join_spec(Dtype element, Dtype part, bool exact = false);
// Returns the blocks for a tensor with `rows` rows of all key heads.
int64_t sparse_join_blocks(const KernelSpec& spec, int64_t rows, int64_t width);
int64_t sparse_join_sinks_blocks(const KernelSpec& spec, int64_t heads);

}  // namespace lathe
