// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// copy_rows: the tokens of a tensor to another place, whatever the strides of either.
//
//   plain    to[t] = from[t]          rows with gaps become a message, or a message rows
//   gather   to[t] = from[index[t]]   0 where the index names no token
//   scatter  to[index[t]] = from[t]   left out where it names none; no token is named twice
//
// 2^lane_bits threads share the rows of one token, four vectors of Config::kVectorBytes each under
// way at a time. Bytes are moved as they are. Threads have nothing in common: there is no barrier.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"
#include "params/rows.h"

namespace lathe {

template <class Config>
__device__ void copy_rows(const CopyRowsParams& p) {
  using Raw = Words<Config::kVectorBytes>;
  constexpr int kBytes = Config::kVectorBytes, kAhead = 4;
  const int thread = static_cast<int>(threadIdx.x), lanes = 1 << p.lane_bits;
  const long long cell = static_cast<long long>(blockIdx.x) * (Config::kThreads >> p.lane_bits) +
                         (thread >> p.lane_bits);
  if (cell >= p.cells) return;
  const int outer = static_cast<int>(cell) / p.tokens;
  const int token = static_cast<int>(cell) - outer * p.tokens;
  const int batch = outer / p.groups, group = outer - batch * p.groups;

  int other = token;  // the token that the index names
  bool named = true;
  if constexpr (Config::kGather || Config::kScatter) {
    other = load_element(static_cast<const int*>(p.index) + token);
    named = other >= 0 && other < p.limit;
    if (Config::kScatter && !named) return;
  }
  const long long source = Config::kGather ? other : token;
  const long long target = Config::kScatter ? other : token;
  const char* from = static_cast<const char*>(p.from) + batch * p.from_batch_stride +
                     group * p.from_group_stride + source * p.from_token_stride;
  char* to = static_cast<char*>(p.to) + batch * p.to_batch_stride + group * p.to_group_stride +
             target * p.to_token_stride;

  const int count = p.heads * p.vectors;
  for (int first = thread & (lanes - 1); first < count; first += kAhead * lanes) {
    Raw raw[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int vector = first + i * lanes, head = vector / p.vectors;
      raw[i] = Raw{};
      if (vector >= count || !named) continue;
      load_global(from + head * p.from_head_stride + (vector - head * p.vectors) * kBytes, raw[i]);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int vector = first + i * lanes, head = vector / p.vectors;
      if (vector >= count) continue;
      store_global(to + head * p.to_head_stride + (vector - head * p.vectors) * kBytes, raw[i]);
    }
  }
}

}  // namespace lathe
