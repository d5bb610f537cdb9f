// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/params.h"

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"

namespace lathe {
namespace {

// Lays out the lists of `heads` heads for a mask_mod.
void add_lists(const AttentionProblem& problem, const AttentionShape& shape, int64_t heads,
               AttentionLists* out, WorkspaceLayout* layout) {
  const int64_t tiles = out->tiles, sequences = shape.sequences;
  out->lists = heads * (problem.packed ? tiles + sequences : tiles * sequences);
  out->entries = layout->add({out->lists, out->stride, 4});
  out->counts = layout->add({out->lists, 4});
}

}  // namespace

AttentionLists forward_lists(const AttentionProblem& problem, const AttentionTiling& walker,
                             const AttentionShape& shape, WorkspaceLayout* layout) {
  AttentionLists out;
  out.tiles = attention_tiles(walker, shape);
  out.stride = ceil_div(shape.seq_k, walker.n);
  const bool shared = walker.pack_gqa != 0;
  add_lists(problem, shape, shared ? shape.kv_heads : shape.heads, &out, layout);
  return out;
}

Result<AttentionLists> backward_lists(const AttentionProblem& problem,
                                      const AttentionTiling& walker, const AttentionShape& shape,
                                      WorkspaceLayout* layout) {
  AttentionLists out;
  out.tiles = ceil_div(shape.seq_k, walker.n);
  out.stride = ceil_div(shape.seq_q, walker.m);
  LATHE_ASSIGN(out.blocks, checked_product("a launch", {out.tiles, shape.heads, shape.sequences}));
  if (out.blocks > kMaxExtent) {
    return unsupported(text("mask_mod over ", shape.sequences, " sequences, ", shape.heads,
                            " heads and ", shape.seq_k, " keys needs more than ", kMaxExtent,
                            " blocks; split the batch"));
  }
  add_lists(problem, shape, shape.heads, &out, layout);
  return out;
}

}  // namespace lathe
