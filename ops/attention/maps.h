// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes tensors of attention as the tensor maps of kernels have them.
#pragma once

#include <cstdint>

#include "device/tensor_map.h"
#include "ops/fill.h"

namespace lathe {

// Holds a tensor of 16-bit rows as a map sees it.
struct MappedRows {
  const void* data = nullptr;
  int64_t columns = 0, tokens = 0, heads = 0, sequences = 0;
  AttentionStrides strides;
};
inline MappedRows rows_of(const Tensor& tensor, bool packed, int64_t columns, int64_t tokens,
                          int64_t heads, int64_t sequences) {
  return {tensor.data, columns, tokens, heads, sequences, attention_strides(tensor, packed)};
}

// Completes a map whose dimension `token` has the tokens and whose last one has the sequences: the
// strides, and what makes it ragged where sequences are packed
// (templates/common/box_coordinates.cuh).
inline void complete_map(bool packed, size_t token, size_t last, MappedTensor* map) {
  if (packed) map->extent[last] = 1;  // packed tensors are one sequence of tokens
  for (size_t k = 1; k <= last; ++k) {
    if (map->extent[k] == 1) map->stride[k] = 8;  // of one element: nobody uses it
  }
  if (!packed) return;
  // It begins kRaggedRows ahead of the tensor, and its last dimension moves it on by rows. Nothing
  // is read there: a copy's rows are those of one sequence or outside of the map.
  constexpr int64_t kElementBytes = 2;
  const auto address = reinterpret_cast<uintptr_t>(map->data);
  const auto ahead = static_cast<uintptr_t>(kRaggedRows * map->stride[token] * kElementBytes);
  map->data = reinterpret_cast<const void*>(address - ahead);  // NOLINT: addresses wrap
  map->extent[token] = kRaggedRows;
  map->extent[last] = INT32_MAX;
  map->stride[last] = map->stride[token];
}

// Returns a tensor of 16-bit elements with dimensions column, token, head, sequence.
inline MappedTensor attention_map(bool packed, const MappedRows& rows) {
  MappedTensor map = {rows.data,
                      {rows.columns, rows.tokens, rows.heads, rows.sequences},
                      {1, rows.strides.token, rows.strides.head, rows.strides.batch},
                      {}};
  complete_map(packed, 1, 3, &map);
  return map;
}

// Returns it for boxes that end where a range of tokens does, with dimensions column, row, head,
// row again, sequence.
inline MappedTensor attention_range_map(const MappedRows& rows) {
  MappedTensor map = {rows.data,
                      {rows.columns, rows.tokens, rows.heads, 1, rows.sequences},
                      {1, rows.strides.token, rows.strides.head, 0, rows.strides.batch},
                      {}};
  if (rows.sequences == 1) map.stride[4] = 8;  // of one element: nobody uses it
  complete_map(true, 1, 3, &map);
  return map;
}

// Returns it with dimensions column, head of a group, token, group, sequence, for tiles of at most
// `tile` rows that hold whole groups of heads.
inline MappedTensor attention_group_map(bool packed, const MappedRows& rows, int64_t group,
                                        int64_t tile) {
  const AttentionStrides& strides = rows.strides;
  MappedTensor map = {rows.data,
                      {rows.columns, group, rows.tokens, rows.heads / group, rows.sequences},
                      {1, strides.head, strides.token, strides.head * group, strides.batch},
                      {0, static_cast<int>(group), static_cast<int>(tile / group), 0, 0}};
  complete_map(packed, 2, 4, &map);
  return map;
}

}  // namespace lathe
