// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes tensors of attention as the tensor maps of its kernels by warpgroups have them.
#pragma once

#include <cstdint>

#include "device/tensor_map.h"
#include "ops/fill.h"

namespace lathe {

struct MappedExtents {
  int64_t columns = 0, tokens = 0, heads = 0, sequences = 0;
};

// Completes a map whose dimension `token` has the tokens and whose last one has the sequences: the
// strides, and what makes it ragged where sequences are packed
// (templates/attention/sm90/box_coordinates.cuh).
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
inline MappedTensor attention_map(bool packed, const void* data, const MappedExtents& extents,
                                  const AttentionStrides& strides) {
  MappedTensor map = {data,
                      {extents.columns, extents.tokens, extents.heads, extents.sequences},
                      {1, strides.token, strides.head, strides.batch},
                      {}};
  complete_map(packed, 1, 3, &map);
  return map;
}

// Returns it for boxes that end where a range of tokens does, with dimensions column, row, head,
// row again, sequence.
inline MappedTensor attention_range_map(const void* data, const MappedExtents& extents,
                                        const AttentionStrides& strides) {
  MappedTensor map = {data,
                      {extents.columns, extents.tokens, extents.heads, 1, extents.sequences},
                      {1, strides.token, strides.head, 0, strides.batch},
                      {}};
  if (extents.sequences == 1) map.stride[4] = 8;  // of one element: nobody uses it
  complete_map(true, 1, 3, &map);
  return map;
}

// Returns it with dimensions column, head of a group, token, group, sequence, for tiles of at most
// `rows` rows that hold whole groups of heads.
inline MappedTensor attention_group_map(bool packed, const void* data, const MappedExtents& extents,
                                        const AttentionStrides& strides, int group, int rows) {
  MappedTensor map = {
      data,
      {extents.columns, group, extents.tokens, extents.heads / group, extents.sequences},
      {1, strides.head, strides.token, strides.head * group, strides.batch},
      {0, group, rows / group, 0, 0}};
  complete_map(packed, 2, 4, &map);
  return map;
}

}  // namespace lathe
