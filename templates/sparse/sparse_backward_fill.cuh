// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_backward_fill: the entries of a chunk of rows, sorted by key and within a key by row.
//
//   index[counts[key, r]++] = slot of the entry, of the first tile of heads
//
// A block has the list of a row and key head, a thread some of its entries. Those of one row that
// name one key come in any order: they contribute the same.
#pragma once
#include "common/types.cuh"
#include "params/sparse_attention.h"

namespace lathe {

template <class Config>
__device__ void sparse_backward_fill(const SparseBackwardGatherParams& p) {
  const int list = static_cast<int>(blockIdx.x), row = list / p.kv_heads;
  const int length = load_element(static_cast<const int*>(p.lengths) + list);
  const long long first = static_cast<long long>(list) * p.entries;
  const int slot = list * p.head_tiles * p.entries;  // the host keeps all of a chunk below 2^31
  for (int i = static_cast<int>(threadIdx.x); i < length; i += Config::kThreads) {
    const int key = load_element(static_cast<const int*>(p.listed) + first + i);
    const int to =
        atomicAdd(static_cast<int*>(p.counts) + static_cast<long long>(key) * p.chunk + row, 1);
    store_element(static_cast<int*>(p.index) + to, slot + i);
  }
}

}  // namespace lathe
