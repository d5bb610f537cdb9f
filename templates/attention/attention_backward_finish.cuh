// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_backward_finish: float32 sums of the backward -> gradients, each sum in a fixed order.
//
//   dq = softmax_scale sum_slices dq_sums                      -> Element
//   dk, dv = sums over the query heads of a key head           -> Element
//   dsinks[h] = sum_tiles dsinks_parts[tile, h]                float32
//
// A thread has 8 columns of one row and head, or a warp one element of dsinks.
#pragma once
#include "attention/backward/sink_sums.cuh"
#include "common/aligned.cuh"
#include "params/attention_backward.h"

namespace lathe {

// A tensor of rows and heads; rows lie in a batch of `rows` each.
struct RowTensor {
  long long batch_stride, token_stride, head_stride;
  int rows;

  __device__ __forceinline__ long long offset(long long row, int head) const {
    const long long b = row / rows;
    return b * batch_stride + (row - b * rows) * token_stride + head * head_stride;
  }
};

__device__ __forceinline__ void add_eight(const float* from, float (&sum)[8]) {
  Words<16> low, high;
  load_global(from, low);
  load_global(from + 4, high);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[i] += element_of<float>(low, i);
    sum[4 + i] += element_of<float>(high, i);
  }
}

// to[row, head] = scale * the sum of `count` parts, `stride` apart, from part_head on.
template <class Config>
__device__ __forceinline__ void sum_parts(long long item, long long rows, int heads, int width,
                                          const void* parts, const RowTensor& part, int part_heads,
                                          int count, long long stride, void* to,
                                          const RowTensor& result, float scale) {
  using Element = typename Config::Element;
  const int chunks = width / 8;
  const int column = static_cast<int>(item % chunks) * 8;
  const int head = static_cast<int>(item / chunks % heads);
  const long long row = item / chunks / heads;
  if (row >= rows) return;
  const float* from =
      static_cast<const float*>(parts) + part.offset(row, head * part_heads) + column;
  float sum[8] = {};
  for (int i = 0; i < count; ++i) add_eight(from + i * stride, sum);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i] *= scale;
  store_aligned<kAlignmentOf<Config, Element>>(
      static_cast<Element*>(to) + result.offset(row, head) + column,
      pack<Element, 8 * sizeof(Element)>(sum));
}

// Blocks behind those of dq.
template <class Config>
__device__ __forceinline__ void finish_other(const AttentionBackwardFinishParams& p,
                                             long long block) {
  const int group = p.heads / p.kv_heads;
  const auto item = [&] { return block * Config::kThreads + threadIdx.x; };
  if (block < p.dk_blocks) {
    const RowTensor parts = {p.dk_parts_batch_stride, p.dk_parts_token_stride,
                             p.dk_parts_head_stride, p.seq_k};
    const RowTensor dk = {p.dk_batch_stride, p.dk_token_stride, p.dk_head_stride, p.seq_k};
    return sum_parts<Config>(item(), p.keys, p.kv_heads, p.head_dim, p.dk_parts, parts, group,
                             group, p.dk_parts_head_stride, p.dk, dk, 1.0f);
  }
  block -= p.dk_blocks;
  if (block < p.dv_blocks) {
    const RowTensor parts = {p.dv_parts_batch_stride, p.dv_parts_token_stride,
                             p.dv_parts_head_stride, p.seq_k};
    const RowTensor dv = {p.dv_batch_stride, p.dv_token_stride, p.dv_head_stride, p.seq_k};
    return sum_parts<Config>(item(), p.keys, p.kv_heads, p.value_dim, p.dv_parts, parts, group,
                             group, p.dv_parts_head_stride, p.dv, dv, 1.0f);
  }
  block -= p.dv_blocks;
  sum_sinks(p, static_cast<int>(block * (Config::kThreads / 32) + threadIdx.x / 32));
}

template <class Config>
__device__ void attention_backward_finish(const AttentionBackwardFinishParams& p) {
  const long long block = blockIdx.x;
  if (block >= p.dq_blocks) return finish_other<Config>(p, block - p.dq_blocks);
  const RowTensor sums = {p.dq_sums_batch_stride, p.dq_sums_token_stride, p.dq_sums_head_stride,
                          p.seq_q};
  const RowTensor dq = {p.dq_batch_stride, p.dq_token_stride, p.dq_head_stride, p.seq_q};
  sum_parts<Config>(block * Config::kThreads + threadIdx.x, p.rows, p.heads, p.head_dim, p.dq_sums,
                    sums, 1, p.slices, p.dq_sums_slice_stride, p.dq, dq, p.softmax_scale);
}

}  // namespace lathe
