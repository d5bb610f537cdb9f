// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_gradient_join: gradients of a rank's keys from the parts that all ranks' rows gave them.
//
//   out[b, j, h, c] = sum over ranks r, ascending, of part_r[b, sources[r, j], h, c]   in float32
//
// and dsinks[h] = sum over ranks of dsinks_parts[r, h]. A rank whose rows cannot see a key has sent
// nothing for it. The order is that of the ranks, never that of arrival: sums repeat bit for bit.
// With kExact parts are exact sums, and the gradient is their rounded sum.
#pragma once
#include "common/exact_sum.cuh"
#include "common/types.cuh"
#include "params/sparse_ranks.h"

namespace lathe {

template <class Part>
__device__ __forceinline__ void add_eight(const void* rows, long long offset, float (&sum)[8]) {
  Words<8 * sizeof(Part)> raw;
  load_global(static_cast<const Part*>(rows) + offset, raw);
  float value[8];
  unpack<Part>(raw, value);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i] += value[i];
}

template <class Config, class = void>
struct JoinsExactly {
  static constexpr bool kValue = false;
};
template <class Config>
struct JoinsExactly<Config, decltype(static_cast<void>(Config::kExact))> {
  static constexpr bool kValue = true;
};

// A rank's part of eight columns of a key and head.
template <class Config>
struct JoinedFloats {
  float sum[8] = {};

  __device__ __forceinline__ void add(const void* own, const void* returned, bool is_own,
                                      long long offset) {
    if (is_own) {
      add_eight<f32>(own, offset, sum);
    } else {
      add_eight<typename Config::Part>(returned, offset, sum);
    }
  }
  __device__ __forceinline__ void round(float (&value)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = sum[i];
  }
};
struct JoinedWords {
  ExactSum sum[8] = {};

  __device__ __forceinline__ void add(const void* own, const void* returned, bool is_own,
                                      long long offset) {
    const ExactSum* from = static_cast<const ExactSum*>(is_own ? own : returned) + offset;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int w = 0; w < kExactWords; ++w) sum[i].word[w] += from[i].word[w];
    }
  }
  __device__ __forceinline__ void round(float (&value)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = sum[i].rounded();
  }
};

template <class Config>
__device__ __forceinline__ void join_rows(const SparseJoinParams& p, const SparseJoinTensor& t,
                                          long long block) {
  using Element = typename Config::Element;
  const int chunks = t.width / 8;
  const long long item = block * Config::kThreads + threadIdx.x;
  const long long row = item / chunks, keys = row / p.kv_heads;
  const int batch = static_cast<int>(keys / p.keys);
  if (batch >= p.batches) return;
  const int column = static_cast<int>(item - row * chunks) * 8;
  const int head = static_cast<int>(row - keys * p.kv_heads);
  const int key = static_cast<int>(keys - static_cast<long long>(batch) * p.keys);
  typename Choose<JoinsExactly<Config>::kValue, JoinedWords, JoinedFloats<Config>>::Type sum;
#pragma unroll 1
  for (int rank = 0; rank < p.world; ++rank) {
    const int source = load_element(static_cast<const int*>(p.sources) +
                                    static_cast<long long>(rank) * p.keys + key);
    if (source < 0) continue;
    const bool is_own = rank == p.rank;
    const long long from =
        (batch * (is_own ? p.gathered : p.received) + source) * p.kv_heads + head;
    sum.add(t.own, t.returned, is_own,
            is_own ? from * t.own_width + t.own_column + column
                   : from * t.returned_width + t.returned_column + column);
  }
  float value[8];
  sum.round(value);
  store_global(static_cast<Element*>(t.out) + batch * t.batch_stride + key * t.token_stride +
                   head * t.head_stride + column,
               pack<Element, 16>(value));
}

template <class Config>
__device__ void sparse_gradient_join(const SparseJoinParams& p) {
  long long block = blockIdx.x;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    if (block < p.tensors[i].blocks) return join_rows<Config>(p, p.tensors[i], block);
    block -= p.tensors[i].blocks;
  }
  const long long head = block * Config::kThreads + threadIdx.x;
  if (head >= p.heads) return;
  float sum = 0.0f;
#pragma unroll 1
  for (int rank = 0; rank < p.world; ++rank) {
    sum += load_element(static_cast<const float*>(p.dsinks_parts) +
                        static_cast<long long>(rank) * p.heads + head);
  }
  store_element(static_cast<float*>(p.dsinks) + head, sum);
}

}  // namespace lathe
