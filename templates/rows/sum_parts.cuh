// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sum_parts: the gradients of a rank's keys, from what every rank found for them.
//
//   out[t] = round(sum over parts p that hold t, in the order of places, of part_p[t])
//
// The sum is float32 and rounded once. The order is that of the table, so the bits are the same
// whichever message came first. Ranks that saw only some of the keys sent only those: part p is of
// tokens [begin, end). A token that no part holds is 0. 2^lane_bits threads share a token; there is
// no barrier.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"
#include "params/rows.h"

namespace lathe {

template <class Config>
__device__ void sum_parts(const SumPartsParams& p) {
  using Part = typename Config::Part;
  using Out = typename Config::Out;
  constexpr int kVector = Config::kVector;
  const int thread = static_cast<int>(threadIdx.x), lanes = 1 << p.lane_bits;
  const long long cell = static_cast<long long>(blockIdx.x) * (Config::kThreads >> p.lane_bits) +
                         (thread >> p.lane_bits);
  if (cell >= p.cells) return;
  const int batch = static_cast<int>(cell) / p.tokens;
  const int token = static_cast<int>(cell) - batch * p.tokens;
  const int count = p.heads * p.vectors;
  const long long row = static_cast<long long>(count) * kVector;  // elements of a token
  const float* own = static_cast<const float*>(p.own) + batch * p.own_batch_stride + token * row;
  Out* out = static_cast<Out*>(p.out) + batch * p.out_batch_stride + token * p.out_token_stride;

  for (int vector = thread & (lanes - 1); vector < count; vector += lanes) {
    float sum[kVector] = {}, value[kVector];
    for (int i = 0; i < p.count; ++i) {
      const int* part = static_cast<const int*>(p.places) + i * 3;
      const int before = load_element(part);
      if (before < 0) {
        Words<kVector * 4> raw;
        load_global(own + static_cast<long long>(vector) * kVector, raw);
        unpack<f32>(raw, value);
      } else {
        const int begin = load_element(part + 1), end = load_element(part + 2);
        if (token < begin || token >= end) continue;
        const long long at = static_cast<long long>(before) * p.batch +
                             static_cast<long long>(batch) * (end - begin) + token - begin;
        if (at >= p.part_tokens * p.batch) continue;
        Words<kVector * sizeof(Part)> raw;
        load_global(
            static_cast<const Part*>(p.parts) + at * row + static_cast<long long>(vector) * kVector,
            raw);
        unpack<Part>(raw, value);
      }
#pragma unroll
      for (int v = 0; v < kVector; ++v) sum[v] = __fadd_rn(sum[v], value[v]);
    }
    const int head = vector / p.vectors;
    store_global(out + head * p.out_head_stride + (vector - head * p.vectors) * kVector,
                 pack<Out, kVector * sizeof(Out)>(sum));
  }
}

}  // namespace lathe
