// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes rows of tokens as tensor maps have them: column, token, head, sequence.
#pragma once

#include <cstdint>

#include "device/tensor_map.h"
#include "ops/fill.h"

namespace lathe {

struct TokenRows {
  const void* data = nullptr;
  int64_t columns = 0, tokens = 0, heads = 0, sequences = 0;
  AttentionStrides strides = {};
};

// Returns a tensor of 16-bit elements. That of packed sequences is ragged: it begins kRaggedRows
// ahead of the tensor, and its last dimension moves it on by rows, so that a copy ends where its
// sequence does (templates/common/box_coordinates.cuh).
inline MappedTensor token_map(bool packed, const TokenRows& rows) {
  constexpr int64_t kElementBytes = 2;
  MappedTensor map = {rows.data,
                      {rows.columns, rows.tokens, rows.heads, packed ? 1 : rows.sequences},
                      {1, rows.strides.token, rows.strides.head, rows.strides.batch},
                      {}};
  for (size_t k = 1; k <= 3; ++k) {
    if (map.extent[k] == 1) map.stride[k] = 8;  // of one element: nobody uses it
  }
  if (!packed) return map;
  const auto ahead = static_cast<uintptr_t>(kRaggedRows * map.stride[1] * kElementBytes);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(rows.data) - ahead;
  map.data = reinterpret_cast<const void*>(begin);  // NOLINT: addresses wrap
  map.extent[1] = kRaggedRows, map.extent[3] = INT32_MAX, map.stride[3] = map.stride[1];
  return map;
}

}  // namespace lathe
