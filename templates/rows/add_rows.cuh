// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// add_rows: out = round(a + b), in float32: what arrived from the ring and what this rank adds.
// `a` and `out` may be 16 bits, as they travel. out may be a or b: a thread reads its four values
// before it writes them, and no other reads them. There is no barrier.
#pragma once
#include "common/types.cuh"
#include "params/rows.h"

namespace lathe {

template <class Config>
__device__ void add_rows(const AddRowsParams& p) {
  using A = typename Config::A;
  using Out = typename Config::Out;
  constexpr int kVector = 4;
  const long long first =
      (static_cast<long long>(blockIdx.x) * Config::kThreads + threadIdx.x) * kVector;
  // Plain loads: the grid writes what it reads.
  const A* a = static_cast<const A*>(p.a) + first;
  const float* b = static_cast<const float*>(p.b) + first;
  Out* out = static_cast<Out*>(p.out) + first;
  if (first + kVector <= p.count) {
    float left[kVector], right[kVector], sum[kVector];
    unpack<A>(*reinterpret_cast<const Words<kVector * sizeof(A)>*>(a), left);
    unpack<f32>(*reinterpret_cast<const Words<kVector * 4>*>(b), right);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] = __fadd_rn(left[i], right[i]);
    store_global(out, pack<Out, kVector * sizeof(Out)>(sum));
    return;
  }
  for (int i = 0; first + i < p.count; ++i) {
    out[i] = from_float<Out>(__fadd_rn(to_float(a[i]), b[i]));
  }
}

}  // namespace lathe
