// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes rows of tokens as tensor maps have them.
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
inline MappedTensor token_map(bool packed, const MappedRows& rows) {
  MappedTensor map = {rows.data,
                      {rows.columns, rows.tokens, rows.heads, rows.sequences},
                      {1, rows.strides.token, rows.strides.head, rows.strides.batch},
                      {}};
  complete_map(packed, 1, 3, &map);
  return map;
}

}  // namespace lathe
