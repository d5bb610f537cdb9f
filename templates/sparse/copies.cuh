// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operands of sparse attention on their way into tiles: the heads of a block's row, and keys
// and values that its list names. Rotary columns stand behind the others.
#pragma once
#include "attention/decode/narrow_rows.cuh"
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
  const int head = first_head_of(in, at), width = in.head_dim + in.rope_dim;
  const Element* q = static_cast<const Element*>(in.q) +
                     at.offset(in.q_batch_stride, in.q_token_stride) + head * in.q_head_stride;
  const Element* rope = static_cast<const Element*>(in.q_rope) +
                        at.offset(in.q_rope_batch_stride, in.q_rope_token_stride) +
                        head * in.q_rope_head_stride;
  gather_rows<Config::kTileM, Config::kWidth, Config::kThreads>(tile, [&](int row) {
    return JoinedRow<Element>{q + row * in.q_head_stride, rope + row * in.q_rope_head_stride,
                              in.head_dim, row < at.heads ? width : 0};
  });
}

// Copies rows of a tensor as wide as the values: out, or its gradient.
template <class Config>
__device__ __forceinline__ void copy_value_heads(const SparseInputs& in, const SparseRow& at,
                                                 const void* tensor, long long batch_stride,
                                                 long long token_stride, long long head_stride,
                                                 unsigned tile) {
  using Element = typename Config::Element;
  const Element* from = static_cast<const Element*>(tensor) +
                        at.offset(batch_stride, token_stride) + first_head_of(in, at) * head_stride;
  gather_rows<Config::kTileM, Config::kValueWidth, Config::kThreads>(tile, [&](int row) {
    return JoinedRow<Element>{from + row * head_stride, nullptr, in.value_dim,
                              row < at.heads ? in.value_dim : 0};
  });
}

template <class Config, class = void>
struct HasExtra {
  static constexpr bool kValue = false;
};
template <class Config>
struct HasExtra<Config, typename Exists<decltype(Config::kExtra)>::Type> {
  static constexpr bool kValue = true;
};

// Where key `key` of a list begins; negative ones are rows of the second cache.
template <class Config, class Element>
__device__ __forceinline__ const Element* key_row(const SparseInputs& in, const Element* k,
                                                  int kv_head, int key) {
  if (HasExtra<Config>::kValue && key < 0) {
    return static_cast<const Element*>(in.k_extra) + kv_head * in.k_extra_head_stride +
           (key & 0x7fffffff) * in.k_extra_token_stride;
  }
  return k + key * in.k_token_stride;
}

// The same `count` keys as copy_listed_keys, which are rows of bytes, as they are.
template <class Config>
__device__ __forceinline__ void copy_listed_bytes(const SparseInputs& in, const SparseRow& at,
                                                  unsigned list, int first, int count,
                                                  unsigned raw) {
  const auto* k = static_cast<const unsigned char*>(in.k) + at.key_row * in.k_token_stride;
  copy_raw<Config, Config::kTileN, Config::kWidth>(raw, k, ByteRow::kBytes, [&](int row) {
    const int key = row < count ? listed_key<Config::kTileN>(list, first + row) : 0;
    return TileRow{key_row<Config>(in, k, 0, key) - k, row < count};
  });
}

// The `count` keys from slot `first` of the list on.
template <class Config>
__device__ __forceinline__ void copy_listed_keys(const SparseInputs& in, const SparseRow& at,
                                                 unsigned list, int first, int count,
                                                 unsigned tile) {
  using Element = typename Config::Element;
  const Element* k = static_cast<const Element*>(in.k) + at.batch * in.k_batch_stride +
                     at.key_row * in.k_token_stride + at.kv_head * in.k_head_stride;
  const Element* rope = static_cast<const Element*>(in.k_rope) + at.batch * in.k_rope_batch_stride +
                        at.key_row * in.k_rope_token_stride + at.kv_head * in.k_rope_head_stride;
  const int width = in.head_dim + in.rope_dim;
  gather_rows<Config::kTileN, Config::kWidth, Config::kThreads>(tile, [&](int row) {
    const int key = row < count ? listed_key<Config::kTileN>(list, first + row) : 0;
    return JoinedRow<Element>{key_row<Config>(in, k, at.kv_head, key),
                              rope + key * in.k_rope_token_stride, in.head_dim,
                              row < count ? width : 0};
  });
}
template <class Config>
__device__ __forceinline__ void copy_listed_values(const SparseInputs& in, const SparseRow& at,
                                                   unsigned list, int first, int count,
                                                   unsigned tile) {
  using Element = typename Config::Element;
  const Element* v = static_cast<const Element*>(in.v) + at.batch * in.v_batch_stride +
                     at.key_row * in.v_token_stride + at.kv_head * in.v_head_stride;
  gather_rows<Config::kTileN, Config::kValueWidth, Config::kThreads>(tile, [&](int row) {
    const long long key = row < count ? listed_key<Config::kTileN>(list, first + row) : 0;
    return JoinedRow<Element>{v + key * in.v_token_stride, nullptr, in.value_dim,
                              row < count ? in.value_dim : 0};
  });
}

}  // namespace lathe
