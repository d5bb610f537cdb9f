// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lse_merge: two softmaxes over disjoint sets of keys become that over both, in place.
//
//   M = max(lse, block_lse, sink);  w = exp(. - M) of each;  W = their sum
//   out <- (w out + w_block block_out) / W;  lse <- M + ln W;  (0, -inf) where W = 0
//
// A partial is normalised; an empty one has lse = -inf, and its out is not read: it may hold
// anything. A sink is a partial of value 0. With kRounded out is also rounded, at the end of a
// ring. Config::kLanes lanes take a row of one head, four columns at a time.
#pragma once
#include "attention/merge.cuh"
#include "params/attention_merge.h"

namespace lathe {

// A MergedRow has the factors of both partial results, and the logarithm of the whole.
struct MergedRow {
  float running, block, lse;
};
__device__ __forceinline__ MergedRow merge_row(float running, float block, float sink) {
  const float base = merge_base(fmaxf(fmaxf(running, block), sink));
  const float w_running = merge_weight(running, base), w_block = merge_weight(block, base);
  const float sum = __fadd_rn(__fadd_rn(w_running, w_block), merge_weight(sink, base));
  const float scale = merge_scale(sum);
  return {__fmul_rn(w_running, scale), __fmul_rn(w_block, scale), merge_lse(base, sum)};
}

template <class Config>
__device__ void lse_merge(const LseMergeParams& p) {
  using Block = typename Config::Block;
  using Rounded = typename Config::Rounded;
  constexpr int kLanes = Config::kLanes, kBlockBytes = 4 * sizeof(Block);
  constexpr int kFloats = kAlignmentOf<Config, float>;
  const int thread = static_cast<int>(threadIdx.x);
  const long long row =
      static_cast<long long>(blockIdx.x) * (Config::kThreads / kLanes) + thread / kLanes;
  if (row >= p.rows) return;
  const int head = static_cast<int>(row % p.heads);
  const long long token_row = row / p.heads, batch = token_row / p.tokens;
  const long long token = token_row - batch * p.tokens;

  const long long at = (batch * p.heads + head) * p.tokens + token;
  float* lse = static_cast<float*>(p.lse) + at;
  const float before = *lse;
  float block = minus_infinity(), sink = minus_infinity();
  if constexpr (Config::kBlock) {
    block = load_element(static_cast<const float*>(p.block_lse) + at);
  }
  if constexpr (Config::kSinks) sink = load_element(static_cast<const float*>(p.sinks) + head);
  const MergedRow merged = merge_row(before, block, sink);
  // All lanes of the row have read lse before the first of them writes it.
  __syncwarp((0xffffffffu >> (32 - kLanes)) << (thread % 32 / kLanes * kLanes));
  const bool same =
      merged.running == 1.0f && merged.block == 0.0f;  // nothing is added: no bit changes
  if (same && !Config::kRounded) return;
  if (!same && thread % kLanes == 0) store_element(lse, merged.lse);

  float* out = static_cast<float*>(p.out) + batch * p.out_batch_stride +
               token * p.out_token_stride + head * p.out_head_stride;
  const Block* from = static_cast<const Block*>(p.block_out) + batch * p.block_batch_stride +
                      token * p.block_token_stride + head * p.block_head_stride;
  Rounded* rounded = static_cast<Rounded*>(p.rounded) + batch * p.rounded_batch_stride +
                     token * p.rounded_token_stride + head * p.rounded_head_stride;
  for (int column = thread % kLanes * 4; column < p.value_dim; column += kLanes * 4) {
    float kept[4] = {}, added[4] = {}, sum[4];
    if (merged.running != 0.0f) unpack<f32>(load_written<kFloats>(out + column), kept);
    if (Config::kBlock && merged.block != 0.0f) {
      Words<kBlockBytes> raw;
      load_aligned<kAlignmentOf<Config, Block>>(from + column, raw);
      unpack<Block>(raw, added);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[i] = __fmaf_rn(merged.block, added[i], __fmul_rn(merged.running, kept[i]));
    }
    if (!same) store_aligned<kFloats>(out + column, pack<f32, 16>(sum));
    if constexpr (Config::kRounded) {
      store_aligned<kAlignmentOf<Config, Rounded>>(rounded + column, pack<Rounded, 8>(sum));
    }
  }
}

}  // namespace lathe
