// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_combine: softmaxes over parts of a list, or over keys of several sources, become one.
//
//   M = max_s m_s (and the sink)    w_s = e^(m_s - M) l_s    l = sum_s w_s (+ e^(sink - M))
//   out = sum_s (w_s / l) o_s       lse = M + ln l;  (0, -inf, 0, -inf) where l = 0
//
// A warp owns a row of a head: a lane has 4 columns of every 128. The sum runs over the parts in
// their order, so the result does not depend on when they finished; o of a part without keys is not
// read, for it may hold anything. (Sparse attention of key shards: the same, with ranks as parts.)
#pragma once
#include "attention/merge.cuh"
#include "params/sparse_attention.h"

namespace lathe {

// The whole softmax of a row: its maximum, its sum, and a part's factor.
struct SparseParts {
  const float *maxima, *sums;  // of the row, `step` from part to part
  long long step;
  float most, base;

  __device__ __forceinline__ float weight(int part) const {
    const float sum = load_element(sums + part * step);
    if (sum <= 0.0f) return 0.0f;
    return __fmul_rn(merge_weight(load_element(maxima + part * step), base), sum);
  }
};

template <class Config>
__device__ void sparse_combine(const SparseCombineParams& p) {
  constexpr int kColumns = 4, kBlocks = 4;  // of 128 columns
  const int lane = threadIdx.x % 32;
  const long long row = static_cast<long long>(blockIdx.x) * (Config::kThreads / 32) +
                        static_cast<int>(threadIdx.x / 32);
  if (row >= p.rows * p.heads) return;
  const int head = static_cast<int>(row % p.heads);
  const long long token_row = row / p.heads, batch = token_row / p.seq_q;
  const int token = static_cast<int>(token_row % p.seq_q);

  SparseParts parts = {static_cast<const float*>(p.partial_max) + row,
                       static_cast<const float*>(p.partial_sum) + row, p.rows * p.heads,
                       minus_infinity(), 0.0f};
  for (int part = 0; part < p.splits; ++part) {
    parts.most = fmaxf(parts.most, load_element(parts.maxima + part * parts.step));
  }
  const float own_most = parts.most;
  float sink = minus_infinity();
  if constexpr (Config::kSinks) {
    // A row of no sequence has sums below 0, and no sink.
    if (load_element(parts.sums) >= 0.0f) {
      sink = load_element(static_cast<const float*>(p.sinks) + head);
    }
    parts.most = fmaxf(parts.most, sink);
  }
  parts.base = merge_base(parts.most);

  float sum = 0.0f, o[kBlocks][kColumns] = {};
  const float* from = static_cast<const float*>(p.partial_out) + row * p.value_dim;
#pragma unroll 2
  for (int part = 0; part < p.splits; ++part) {
    const float weight = parts.weight(part);
    sum = __fadd_rn(sum, weight);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int column = kColumns * lane + 128 * block;
      Words<16> raw = {};
      if (weight != 0.0f && column < p.value_dim) {
        load_global(from + part * (parts.step * p.value_dim) + column, raw);
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        o[block][c] = __fmaf_rn(weight, bit_cast<float>(raw.word[c]), o[block][c]);
      }
    }
  }
  if constexpr (Config::kSinks) sum = __fadd_rn(sum, merge_weight(sink, parts.base));

  const float scale = merge_scale(sum);
  if (Config::kSinks && p.sinks_apart) {  // statistics of the parts alone
    parts.most = own_most, parts.base = merge_base(own_most), sum = 0.0f;
    for (int part = 0; part < p.splits; ++part) sum = __fadd_rn(sum, parts.weight(part));
  }
  const int group = p.heads / p.kv_heads;
  if (lane == 0) {
    const long long statistic =
        ((batch * p.kv_heads + head / group) * p.seq_q + token) * group + head % group;
    if (p.softmax_max != nullptr) {
      store_element(static_cast<float*>(p.softmax_max) + statistic, parts.most);
    }
    if (p.softmax_sum != nullptr) {
      store_element(static_cast<float*>(p.softmax_sum) + statistic, sum);
    }
    if (p.lse != nullptr) {
      store_element(static_cast<float*>(p.lse) + (batch * p.heads + head) * p.seq_q + token,
                    merge_lse(parts.base, sum));
    }
  }
  using Out = typename Config::Out;
  Out* out = static_cast<Out*>(p.out) + batch * p.out_batch_stride + token * p.out_token_stride +
             head * p.out_head_stride;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int column = kColumns * lane + 128 * block;
    if (column >= p.value_dim) continue;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) o[block][c] *= scale;
    store_global(out + column, pack<Out, kColumns * sizeof(Out)>(o[block]));
  }
}

}  // namespace lathe
