// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes the backward of sparse attention on the host: tiles, specs, grids, workspace and cost
// of its launches. Pure functions of integers.
//
// A block of the main kernel owns a row and some of its heads, so gradients of queries have one
// writer and are the same bit for bit in every run. Gradients of keys are float32 sums that many
// rows add to, in no fixed order or, if deterministic, in the order of the rows. A deterministic
// backward takes rows in chunks, and stores the contribution of each list entry in the workspace.
#pragma once

#include <memory>
#include <vector>

#include "ops/sparse/backward/step.h"

namespace lathe {

struct SparsePrepareNumbers {
  SparsePrepareNumbers() = default;
  SparsePrepareNumbers(const KernelSpec& spec) : rows(spec.constant("m")) {}
  int64_t rows = 0;  // of a tile
};

// Holds the kernels of a backward; all are empty without one.
struct SparseBackwardKernels {
  NumberedSlot<SparsePrepareNumbers> prepare;
  KernelSlot finish;
  std::unique_ptr<SparseBackward> main;  // none if only dsinks is asked for
  KernelSlot ranges, fill, gather;       // deterministic: behind each chunk of rows

  std::vector<KernelSlot*> slots();
};
Result<SparseBackwardKernels> sparse_backward_kernels(const SparseProblem& problem,
                                                      const DeviceFacts& facts);

// Says which outputs are wanted; they may be fewer than the kernels can compute. With values in
// keys dk has the gradients of both, and there is no dv.
struct SparseGradients {
  bool dq = false, dk = false, dv = false, dsinks = false;  // dq and dk: with rotary parts
};

// Holds the offsets of the workspace's sections, each a multiple of 256 bytes. A section that a
// call does not use has no bytes. The sections that `prepare` zeroes lie together: zeroed ..
// zeroed_end.
struct SparseBackwardWorkspace {
  int64_t delta = 0;         // float32 [rows, H]
  int64_t dsinks_parts = 0;  // float32 [prepare_tiles, H]
  int64_t zeroed = 0;
  int64_t dk_sums = 0;  // float32 [keys, HK, D + R]
  int64_t dv_sums = 0;  // float32 [keys, HK, DV]
  int64_t counts = 0;   // int32 [keys, HK, chunk]
  int64_t cursor = 0;   // int32
  int64_t zeroed_end = 0;
  int64_t slots = 0;    // float32 [chunk, HK, head_tiles, entries, widths]
  int64_t listed = 0;   // int32 [chunk, HK, entries]
  int64_t lengths = 0;  // int32 [chunk, HK]
  int64_t ranges = 0;   // int32 [keys, HK, 2]
  int64_t index = 0;    // int32 [chunk, HK, entries]
  int64_t total = 0;
};

// Holds the grids and the layout of one call. They depend on capacities, never on lengths.
struct SparseBackwardLaunch {
  int64_t rows = 0, keys = 0;  // of all sequences
  int64_t head_tiles = 0;
  int64_t prepare_tiles = 0, prepare_blocks = 0;
  // A launch of the main kernel takes `chunk` rows: all, or as many as fit in the workspace.
  int64_t chunk = 0, chunks = 0;
  int64_t row_blocks = 0;     // of a row, in the main kernel
  int64_t ranges_blocks = 0;  // behind each chunk; fill has a block for each row and key head
  int64_t gather_blocks = 0;
  int64_t dk_blocks = 0, dv_blocks = 0, dsinks_blocks = 0;  // of finish
  SparseBackwardWorkspace workspace;

  int64_t finish_blocks() const { return dk_blocks + dv_blocks + dsinks_blocks; }
  int64_t zero_chunks() const { return (workspace.zeroed_end - workspace.zeroed) / 16; }
};
// The slots of a chunk take at most this many bytes, unless one row takes more.
inline constexpr int64_t kSparseChunkBytes = int64_t{1} << 30;
// Returns INVALID_ARGUMENT if a number does not fit the kernels' integers.
Result<SparseBackwardLaunch> sparse_backward_launch(const SparseProblem& problem,
                                                    const SparseBackwardKernels& kernels,
                                                    const SparseShape& shape,
                                                    const SparseGradients& wanted);

// Counts five products per row, head and listed key, as if no entry were skipped, and the bytes
// that the launches read and write.
Cost sparse_backward_cost(const SparseProblem& problem, const SparseBackwardKernels& kernels,
                          const SparseShape& shape, const SparseBackwardLaunch& launch,
                          int64_t cached = 0);

}  // namespace lathe
