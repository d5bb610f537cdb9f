// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes tensors of attention as the tensor maps of kernels have them.
#pragma once

#include "ops/token_map.h"

namespace lathe {

// Returns a map for boxes that end where a range of tokens does, with dimensions column, row, head,
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
