// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_combine: the partial results of split keys become one, by the formula of merge.cuh.
//
//   out[b, i, h] = sum_s (w_s / W) o[s, b, h, i],  lse[b, h, i] = mu + ln W,  the sink one part
//   more
//
// A warp owns a row of a head: its lanes hold the lse of all splits, then 4 columns each. The sum
// runs over the splits in their order, so the result does not depend on when they finished; o of a
// split without weight is not read, for nobody may have written it.
#pragma once
#include "attention/merge.cuh"
#include "params/attention.h"

namespace lathe {

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  }
  return value;
}

template <class Config>
__device__ void attention_combine(const AttentionCombineParams& p) {
  constexpr int kMostSplits = 256, kParts = kMostSplits / 32, kColumns = 4, kAtOnce = 4;
  const int lane = threadIdx.x % 32;
  const long long row = static_cast<long long>(blockIdx.x) * (Config::kThreads / 32) +
                        static_cast<int>(threadIdx.x / 32);
  if (row >= p.rows) return;
  const int query = static_cast<int>(row % p.seq_q);
  const long long other = row / p.seq_q;
  const int head = static_cast<int>(other % p.heads);

  float part[kParts], largest = minus_infinity();
  const float* lse = static_cast<const float*>(p.partial_lse) + row;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int split = 32 * i + lane;
    part[i] = split < p.splits ? load_element(lse + split * p.rows) : minus_infinity();
    largest = fmaxf(largest, part[i]);
  }
  largest = warp_max(largest);
  float sink = minus_infinity();
  if constexpr (Config::kSinks) {
    sink = load_element(static_cast<const float*>(p.sinks) + head);
    largest = fmaxf(largest, sink);
  }
  const float base = merge_base(largest);
#pragma unroll
  for (int i = 0; i < kParts; ++i) part[i] = merge_weight(part[i], base);

  float sum = 0.0f, o[2][kColumns] = {};  // columns 4 lane + 128 i
  const float* from = static_cast<const float*>(p.partial_out) + row * p.value_dim;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int count = minimum(p.splits - 32 * i, 32);
#pragma unroll 1
    for (int first = 0; first < count; first += kAtOnce) {
      float weight[kAtOnce];
      Words<16> raw[kAtOnce][2];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {  // all loads of a batch are under way together
        weight[s] = __shfl_sync(0xffffffffu, part[i], first + s);
        const float* split = from + (32 * i + first + s) * (p.rows * p.value_dim);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = kColumns * lane + 128 * half;
          raw[s][half] = {};
          if (weight[s] != 0.0f && column < p.value_dim) {
            load_global(split + column, raw[s][half]);
          }
        }
      }
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        sum += weight[s];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            const float value = bit_cast<float>(raw[s][half].word[c]);
            o[half][c] = __fmaf_rn(weight[s], value, o[half][c]);
          }
        }
      }
    }
  }
  if constexpr (Config::kSinks) sum += merge_weight(sink, base);

  if (lane == 0) store_element(static_cast<float*>(p.lse) + row, merge_lse(base, sum));
  const float scale = merge_scale(sum);
  using Element = typename Config::Element;
  Element* out = static_cast<Element*>(p.out) + other / p.heads * p.out_batch_stride +
                 query * p.out_token_stride + head * p.out_head_stride;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int column = kColumns * lane + 128 * half;
    if (column >= p.value_dim) continue;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) o[half][c] *= scale;
    store_global(out + column, pack<Element, kColumns * sizeof(Element)>(o[half]));
  }
}

}  // namespace lathe
