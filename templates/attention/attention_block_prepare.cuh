// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_block_prepare: what a step of a ring's backward begins with.
//
//   lse2 = lse log2 e, +inf where lse is -inf, so that every weight of the row is 0
//   sums = 0, where dq is summed in slices
//   dq = 0, where many blocks add to it and nothing was there before
//
// A thread takes one value, or four of sums or dq.
#pragma once
#include "attention/backward/dq_chunks.cuh"
#include "attention/softmax.cuh"
#include "params/attention_backward.h"

namespace lathe {

template <class Config>
__device__ void attention_block_prepare(const AttentionBlockPrepareParams& p) {
  long long at = static_cast<long long>(blockIdx.x) * Config::kThreads + threadIdx.x;
  if (at < p.rows) {
    const float lse = load_element(static_cast<const float*>(p.lse) + at);
    store_element(static_cast<float*>(p.lse2) + at,
                  lse == minus_infinity() ? -minus_infinity() : __fmul_rn(lse, kLog2E));
    return;
  }
  at -= p.rows;
  const Words<16> zero = {};
  if (at < p.chunks) {
    store_global(static_cast<float*>(p.sums) + at * 4, zero);
    return;
  }
  at -= p.chunks;
  if (at < p.dq_chunks) store_aligned<kAlignmentOf<Config, float>>(dq_chunk(p, at), zero);
}

}  // namespace lathe
