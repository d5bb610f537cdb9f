// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// KeyRows says where the rows of K and V lie that a block of attention reads: one after another,
// `token_stride` apart, from key 0 of the sequence and head.
#pragma once
#include "attention/query_tile.cuh"
#include "attention/split_copy.cuh"

namespace lathe {

template <class Config>
struct KeyRows {
  using Element = typename Config::Element;
  const Element* k;
  const Element* v;
  long long k_stride, v_stride;

  __device__ __forceinline__ KeyRows(const AttentionForwardParams& p, const QueryTile& tile)
      : k(static_cast<const Element*>(p.k) +
          sequence_offset<Config>(tile, p.k_batch_stride, p.k_token_stride, tile.start_k) +
          tile.kv_head * p.k_head_stride),
        v(static_cast<const Element*>(p.v) +
          sequence_offset<Config>(tile, p.v_batch_stride, p.v_token_stride, tile.start_k) +
          tile.kv_head * p.v_head_stride),
        k_stride(p.k_token_stride),
        v_stride(p.v_token_stride) {}

  // Keys key.. of the sequence into a tile; zeros past its last one.
  __device__ __forceinline__ void copy_k(unsigned to, int key, int keys, int columns) const {
    copy_tile<Config::kTileN, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        to, k, keys - key, columns, [&](int r) { return (key + r) * k_stride; });
  }
  __device__ __forceinline__ void copy_v(unsigned to, int key, int keys, int columns) const {
    copy_tile<Config::kTileN, Config::kValueWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        to, v, keys - key, columns, [&](int r) { return (key + r) * v_stride; });
  }
};

}  // namespace lathe
