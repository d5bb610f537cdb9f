// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_backward_finish: float32 sums of the backward of sparse attention -> gradients.
//
//   dk, dk_rope, dv -> Element                      dsinks[h] = sum_tiles dsinks_parts[tile, h]
//
// A thread has 8 columns of one key and head, or a warp one element of dsinks.
#pragma once
#include "attention/backward/sink_sums.cuh"
#include "common/types.cuh"
#include "params/sparse_attention.h"

namespace lathe {

// 8 columns of a row of `width` columns in `rows` rows; body(row, column, values).
template <class Config, class Body>
__device__ __forceinline__ void each_sum(const void* sums, long long block, long long rows,
                                         int width, const Body& body) {
  const int chunks = width / 8;
  const long long item = block * Config::kThreads + threadIdx.x;
  const long long row = item / chunks;
  if (row >= rows) return;
  const int column = static_cast<int>(item - row * chunks) * 8;
  Words<32> raw;
  load_global(static_cast<const float*>(sums) + row * width + column, raw);
  float value[8];
  unpack<f32>(raw, value);
  body(row, column, pack<typename Config::Element, 16>(value));
}

template <class Config>
__device__ void sparse_backward_finish(const SparseBackwardFinishParams& p) {
  using Element = typename Config::Element;
  const auto row_of = [&](void* tensor, long long row, long long batch_stride,
                          long long token_stride, long long head_stride) {
    const long long key = row / p.kv_heads, b = key / p.seq_k;
    return static_cast<Element*>(tensor) + b * batch_stride + (key - b * p.seq_k) * token_stride +
           (row - key * p.kv_heads) * head_stride;
  };
  const long long rows = p.keys * p.kv_heads;
  long long block = blockIdx.x;
  if (block < p.dk_blocks) {
    return each_sum<Config>(
        p.dk_sums, block, rows, p.head_dim + p.rope_dim,
        [&](long long row, int column, const Words<16>& eight) {
          if (column >= p.head_dim) {
            if (p.dk_rope == nullptr) return;
            store_global(row_of(p.dk_rope, row, p.dk_rope_batch_stride, p.dk_rope_token_stride,
                                p.dk_rope_head_stride) +
                             column - p.head_dim,
                         eight);
          } else if (p.dk != nullptr) {
            store_global(
                row_of(p.dk, row, p.dk_batch_stride, p.dk_token_stride, p.dk_head_stride) + column,
                eight);
          }
        });
  }
  block -= p.dk_blocks;
  if (block < p.dv_blocks) {
    return each_sum<Config>(
        p.dv_sums, block, rows, p.value_dim,
        [&](long long row, int column, const Words<16>& eight) {
          store_global(
              row_of(p.dv, row, p.dv_batch_stride, p.dv_token_stride, p.dv_head_stride) + column,
              eight);
        });
  }
  block -= p.dv_blocks;
  sum_sinks(p, static_cast<int>(block * (Config::kThreads / 32) + threadIdx.x / 32));
}

}  // namespace lathe
