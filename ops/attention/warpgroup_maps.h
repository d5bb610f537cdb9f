// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes tensors of attention as the tensor maps of its kernels by warpgroups have them.
#pragma once

#include <cstdint>

#include "cache/tensor_map.h"
#include "ops/fill.h"

namespace lathe {

struct MappedExtents {
  int64_t columns = 0, tokens = 0, heads = 0, sequences = 0;
};

// Returns a tensor of 16-bit elements with dimensions column, token, head, sequence; or, packed, as
// a ragged map has it (templates/attention/sm90/box_place.cuh).
inline MappedTensor attention_map(bool packed, const void* data, const MappedExtents& extents,
                                  const AttentionStrides& strides) {
  // Packed tensors are one sequence of tokens.
  const int64_t sequences = packed ? 1 : extents.sequences;
  MappedTensor out = {data,
                      {extents.columns, extents.tokens, extents.heads, sequences},
                      {1, strides.token, strides.head, strides.batch}};
  for (size_t k = 1; k < 4; ++k) {
    if (out.extent[k] == 1) out.stride[k] = 8;  // of one element: nobody uses it
  }
  if (!packed) return out;
  // It begins kRaggedRows ahead of the tensor, and its last dimension moves it on by rows. Nothing
  // is read there: a copy's rows are those of one sequence or outside of the map.
  constexpr int64_t kElementBytes = 2;
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto ahead = static_cast<uintptr_t>(kRaggedRows * out.stride[1] * kElementBytes);
  out.data = reinterpret_cast<const void*>(address - ahead);  // NOLINT: addresses wrap
  out.extent[1] = kRaggedRows;
  out.extent[3] = INT32_MAX;
  out.stride[3] = out.stride[1];
  return out;
}

}  // namespace lathe
