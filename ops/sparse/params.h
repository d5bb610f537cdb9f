// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a call of sparse_flash_attention to the parameters of its kernels.
#pragma once

#include "ops/sparse/run.h"
#include "templates/params/sparse_attention.h"

namespace lathe {

// Rows and keys that are a part of the whole axes: what then stands for offsets and positions.
struct SparsePlaces {
  // Packed: runs of rows that are of one sequence, as SparseInputs has sequences.
  const void* cu_seqlens_q = nullptr;
  const void* key_starts = nullptr;
  const void* key_ends = nullptr;
  const void* key_origins = nullptr;
  int64_t runs = 0;
  int64_t whole_keys = 0;  // S2 of the whole axis
  const void* q_pos =
      nullptr;  // int32 [rows], of each sequence of a batch; null: the caller's, or none
};

struct SparseCall {
  const SparseRequest& request;
  const SparseShape& shape;
  const Call& call;
  const SparsePlaces* places = nullptr;  // null: the whole axes
};

// The forward; its partial results begin with the workspace.
SparseForwardParams sparse_forward_params(const SparseCall& of, int64_t head_tiles, int64_t splits,
                                          const SparsePartials& partials);
SparseCombineParams sparse_combine_params(const SparseCall& of, const SparseForwardParams& forward);

// The backward, which has `workspace` behind the forward.
struct SparseBackwardCall {
  const SparseCall& of;
  const SparseBackwardLaunch& launch;
  char* workspace;
};
SparseBackwardPrepareParams sparse_prepare_params(const SparseBackwardCall& of);
// Of all rows, or of the chunk that begins at `first_row`.
SparseBackwardParams sparse_backward_params(const SparseBackwardCall& of, int64_t first_row);
SparseBackwardGatherParams sparse_gather_params(const SparseBackwardCall& of,
                                                const SparseBackwardParams& main, int64_t rows);
SparseBackwardFinishParams sparse_finish_params(const SparseBackwardCall& of);

}  // namespace lathe
