// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// exact_round: exact sums become float32, rounded once. A thread takes one sum.
#pragma once
#include "common/exact_sum.cuh"

namespace lathe {

template <class Config>
__device__ void exact_round(const ExactRoundParams& p) {
  const long long column = static_cast<long long>(blockIdx.x) * Config::kThreads + threadIdx.x;
  if (column >= p.columns) return;
  ExactSum sum;
#pragma unroll
  for (int w = 0; w < kExactWords; ++w) {
    sum.word[w] =
        static_cast<const long long*>(p.sums)[w * static_cast<long long>(p.columns) + column];
  }
  store_element(static_cast<float*>(p.out) + column, sum.rounded());
}

}  // namespace lathe
