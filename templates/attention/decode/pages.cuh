// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A PageTable says where the rows of a paged cache lie. Lengths and page numbers come from device
// memory and nobody has checked them: lengths are cut to what the table holds, and a row of a page
// that is not there is absent, which a copy reads as zeros and an append skips.
#pragma once
#include "attention/tile.cuh"
#include "params/attention.h"

namespace lathe {

struct KeyAddress {
  int page, row;  // page < 0: absent
};

struct PageTable {
  const AttentionPages& pages;
  const int* entries;  // of the sequence
  int sequence;

  __device__ __forceinline__ PageTable(const AttentionPages& from, int b)
      : pages(from),
        entries(static_cast<const int*>(from.block_table) +
                static_cast<long long>(b) * from.table_width),
        sequence(b) {}

  // Keys of the sequence, `more` of them behind cache_seqlens. A length below 0 is that of padding,
  // which has none, new ones neither.
  __device__ __forceinline__ int keys(int more) const {
    const long long cached = stored();
    const long long all = cached < 0 ? 0 : cached + more;
    return static_cast<int>(all < pages.most_keys ? all : pages.most_keys);
  }
  __device__ __forceinline__ int stored() const {
    return load_element(static_cast<const int*>(pages.cache_seqlens) + sequence);
  }
  // The quotient by a multiplication: a division by a number that is not a constant takes some
  // twenty instructions, and there is one for every key.
  __device__ __forceinline__ int page_index(int key) const {
    return static_cast<int>((__umulhi(static_cast<unsigned>(key), pages.magic) + key) >>
                            pages.shift);
  }
  // The page of position 0 <= key < most_keys, as it stands in the table.
  __device__ __forceinline__ int entry(int key) const {
    return load_element(entries + page_index(key));
  }
  __device__ __forceinline__ KeyAddress address(int key, int entry) const {
    const bool there = entry >= 0 && entry < pages.pages;
    return {there ? entry : -1, key - page_index(key) * pages.page};
  }
};

}  // namespace lathe
