// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_block_finish: dq += softmax_scale sum_slices sums, in the order of the slices; with
// `first`, dq is written and not read.
//
// A thread takes four columns of a row and head.
#pragma once
#include "attention/backward/dq_chunks.cuh"
#include "common/aligned.cuh"
#include "params/attention_backward.h"

namespace lathe {

template <class Config>
__device__ void attention_block_finish(const AttentionBlockFinishParams& p) {
  constexpr int kFloats = kAlignmentOf<Config, float>;
  const long long chunk = static_cast<long long>(blockIdx.x) * Config::kThreads + threadIdx.x;
  if (chunk >= p.chunks) return;
  float sum[4] = {}, before[4] = {};
  for (int slice = 0; slice < p.slices; ++slice) {
    Words<16> raw;
    float part[4];
    load_global(static_cast<const float*>(p.sums) + slice * p.slice_stride + chunk * 4, raw);
    unpack<f32>(raw, part);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += part[i];
  }
  float* to = dq_chunk(p, chunk);
  if (!p.first) unpack<f32>(load_written<kFloats>(to), before);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = __fmaf_rn(p.softmax_scale, sum[i], before[i]);
  store_aligned<kFloats>(to, pack<f32, 16>(sum));
}

}  // namespace lathe
