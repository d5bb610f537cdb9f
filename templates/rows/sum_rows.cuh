// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sum_rows: what several ranks found for the same rows, added up where the rows live.
//
//   to(t, b, h) = round(sum over i of term_i(t, b, h)), in float32, in the order of i
//
// The order is that of the ranks, so the sum repeats bit for bit; it is rounded once. A row without
// terms is 0. A thread takes four columns of one head; threads share nothing: there is no barrier.
#pragma once
#include "common/types.cuh"
#include "params/rows.h"

namespace lathe {

constexpr int kSumColumns = 4;

template <class In>
__device__ __forceinline__ void add_columns(const In* from, float (&sum)[kSumColumns], bool first) {
  Words<kSumColumns * sizeof(In)> raw;
  float term[kSumColumns];
  load_global(from, raw);
  unpack<In>(raw, term);
#pragma unroll
  for (int c = 0; c < kSumColumns; ++c) sum[c] = first ? term[c] : __fadd_rn(sum[c], term[c]);
}

template <class Config>
__device__ void sum_rows(const SumRowsParams& p) {
  using In = typename Config::In;
  using Out = typename Config::Out;
  const int block = static_cast<int>(blockIdx.x);
  const int which = block < p.sums[0].last_block ? 0 : 1;
  const RowSum& s = p.sums[which];
  const int first_block = which == 0 ? 0 : p.sums[0].last_block;
  const unsigned vectors = static_cast<unsigned>(s.columns / kSumColumns);
  const unsigned item = static_cast<unsigned>(block - first_block) * Config::kThreads + threadIdx.x;
  if (item >= static_cast<unsigned>(s.tokens) * s.batch_rows * s.heads * vectors) return;
  const unsigned row = item / vectors, cell = row / s.heads;
  const int column = static_cast<int>(item - row * vectors) * kSumColumns;
  const int head = static_cast<int>(row - cell * s.heads);
  const int token = static_cast<int>(cell / s.batch_rows);
  const int batch = static_cast<int>(cell - static_cast<unsigned>(token) * s.batch_rows);

  float sum[kSumColumns] = {};
  const In* slots = static_cast<const In*>(s.slots) + batch * s.batch + column;
  if constexpr (Config::kListed) {
    const In* own = static_cast<const In*>(s.own) + batch * s.batch + column;
    const int* first = static_cast<const int*>(s.first) + token;
    const int begin = load_element(first), end = load_element(first + 1);
    for (int i = begin; i < end; ++i) {
      const int at = load_element(static_cast<const int*>(s.list) + i);
      const In* from = at < s.slot_rows ? slots + at * s.token : own + (at - s.slot_rows) * s.token;
      add_columns(from + head * s.head, sum, i == begin);
    }
  } else {
    for (int i = 0; i < s.terms; ++i) {
      const int rank = head * s.terms + i;
      const int group = rank == s.own_at ? s.own_group : rank - (rank > s.own_at ? 1 : 0);
      add_columns(slots + group * s.group + token * s.token, sum, i == 0);
    }
  }
  store_global(
      static_cast<Out*>(s.to) + token * s.to_token + batch * s.to_batch + head * s.to_head + column,
      pack<Out, kSumColumns * sizeof(Out)>(sum));
}

}  // namespace lathe
