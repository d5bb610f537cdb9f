// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operands of sparse attention on their way into tiles: the heads of a block's row, and keys
// and values that its list names. Rotary columns stand behind the others.
#pragma once
#include "sparse/gather.cuh"
#include "sparse/key_list.cuh"

namespace lathe {

// The block's first head among all.
__device__ __forceinline__ int first_head_of(const SparseInputs& in, const SparseRow& at) {
  return at.kv_head * (in.heads / in.kv_heads) + at.first_head;
}

template <class Config>
__device__ __forceinline__ void copy_query_heads(const SparseInputs& in, const SparseRow& at,
                                                 unsigned tile) {
  using Element = typename Config::Element;
  const int head = first_head_of(in, at);
  const Element* q = static_cast<const Element*>(in.q) +
                     at.offset(in.q_batch_stride, in.q_token_stride) + head * in.q_head_stride;
  const Element* rope = static_cast<const Element*>(in.q_rope) +
                        at.offset(in.q_rope_batch_stride, in.q_rope_token_stride) +
                        head * in.q_rope_head_stride;
  gather_tile<Config::kTileM, Config::kWidth, Config::kThreads>(
      tile, in.q, [&](int row, int column) -> const void* {
        if (row >= at.heads) return nullptr;
        if (column < in.head_dim) return q + row * in.q_head_stride + column;
        const int behind = column - in.head_dim;
        return behind < in.rope_dim ? rope + row * in.q_rope_head_stride + behind : nullptr;
      });
}

// Of a tensor as wide as the values: out, or its gradient.
template <class Config>
__device__ __forceinline__ void copy_value_heads(const SparseInputs& in, const SparseRow& at,
                                                 const void* tensor, long long batch_stride,
                                                 long long token_stride, long long head_stride,
                                                 unsigned tile) {
  using Element = typename Config::Element;
  const Element* from = static_cast<const Element*>(tensor) +
                        at.offset(batch_stride, token_stride) + first_head_of(in, at) * head_stride;
  gather_tile<Config::kTileM, Config::kValueWidth, Config::kThreads>(
      tile, tensor, [&](int row, int column) -> const void* {
        return row < at.heads && column < in.value_dim ? from + row * head_stride + column
                                                       : nullptr;
      });
}

// The `count` keys from place `first` of the list on.
template <class Config>
__device__ __forceinline__ void copy_listed_keys(const SparseInputs& in, const SparseRow& at,
                                                 unsigned list, int first, int count,
                                                 unsigned tile) {
  using Element = typename Config::Element;
  const Element* k = static_cast<const Element*>(in.k) + at.batch * in.k_batch_stride +
                     at.key_row * in.k_token_stride + at.kv_head * in.k_head_stride;
  const Element* rope = static_cast<const Element*>(in.k_rope) + at.batch * in.k_rope_batch_stride +
                        at.key_row * in.k_rope_token_stride + at.kv_head * in.k_rope_head_stride;
  gather_tile<Config::kTileN, Config::kWidth, Config::kThreads>(
      tile, in.k, [&](int row, int column) -> const void* {
        if (row >= count) return nullptr;
        const long long key = listed_key<Config::kTileN>(list, first + row);
        if (column < in.head_dim) return k + key * in.k_token_stride + column;
        const int behind = column - in.head_dim;
        return behind < in.rope_dim ? rope + key * in.k_rope_token_stride + behind : nullptr;
      });
}
template <class Config>
__device__ __forceinline__ void copy_listed_values(const SparseInputs& in, const SparseRow& at,
                                                   unsigned list, int first, int count,
                                                   unsigned tile) {
  using Element = typename Config::Element;
  const Element* v = static_cast<const Element*>(in.v) + at.batch * in.v_batch_stride +
                     at.key_row * in.v_token_stride + at.kv_head * in.v_head_stride;
  gather_tile<Config::kTileN, Config::kValueWidth, Config::kThreads>(
      tile, in.v, [&](int row, int column) -> const void* {
        if (row >= count || column >= in.value_dim) return nullptr;
        const long long key = listed_key<Config::kTileN>(list, first + row);
        return v + key * in.v_token_stride + column;
      });
}

}  // namespace lathe
