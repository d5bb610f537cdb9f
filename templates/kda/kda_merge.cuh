// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_merge: the chain over the segments of a sequence, in place. With E, M and D of kda_summary,
//
//   S_p = M_p S_{p-1} + E_p,  p from 1 on       dS_p = M_p^T dS_{p+1} + D_p,  p down to 1
//
// S_p is the state behind segment p (S_0 = E_0), dS_p the gradient before it (the last one's is D).
// The last segment's S is nobody's start and the first one's dS nobody's end: they are left out,
// and so are segments without tokens. Of a sequence that began on an earlier rank S_0 = M_0 S + E_0
// with the state S that it brings, and so for the last dS of one that goes on.
#pragma once
#include "kda/merge_chain.cuh"

namespace lathe {

// Walks the chain of a sequence and head from where it begins to where it ends, kTiles times 16
// rows of it. kReverse: dS.
template <class Config, bool kReverse, int kTiles>
__device__ __forceinline__ void merge_segments(const KdaMergeParams& p, unsigned block,
                                               unsigned shared) {
  using Chain = KdaMergeChain<Config, kReverse, kTiles>;
  constexpr int kRows = Chain::kRows;
  Chain chain(shared);
  const unsigned tiles = ceil_div(p.value_dim, kRows), other = block / tiles;
  const int row = static_cast<int>(block % tiles) * kRows;
  const int head = static_cast<int>(other % p.value_heads);
  const int sequence = static_cast<int>(other / p.value_heads);
  int count = p.tokens;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::Offset;
    const int start = offset_at<Offset>(p.cu_seqlens, sequence, p.tokens);
    count = maximum(offset_at<Offset>(p.cu_seqlens, sequence + 1, p.tokens) - start, 0);
  }
  const int used = count == 0 ? 0 : ceil_div(count, kda_segment_length(count, p.segments));
  const long long run =
      static_cast<long long>(sequence) * p.segments * p.value_heads + head;  // of segment 0
  const long long values = static_cast<long long>(p.value_dim) * p.key_dim;
  const long long keys = static_cast<long long>(p.key_dim) * p.key_dim;
  const long long row_offset = static_cast<long long>(row) * p.key_dim;
  const bool carried =
      Config::kRanks && (kReverse ? sequence >= p.carry.open : sequence < p.carry.carried);
  // Segment `at` is where a chain of its own begins; with a carried state there is a link for it.
  const int at = kReverse ? used - 1 : 0, first = carried ? at : kReverse ? at - 1 : at + 1;
  chain.links = kReverse ? first : used - 1 - first;
  if (chain.links <= 0) return;
  chain.key_dim = p.key_dim, chain.rows = minimum(p.value_dim - row, kRows);
  float* ends =
      static_cast<float*>(kReverse ? p.grad_ends : p.summaries) + run * values + row_offset;
  const long long segment_ends = p.value_heads * values, segment_maps = p.value_heads * keys;
  chain.ends = ends + first * segment_ends;
  chain.end_stride = kReverse ? -segment_ends : segment_ends;
  chain.transitions = static_cast<const float*>(p.transitions) + run * keys + first * segment_maps;
  chain.transition_stride = kReverse ? -segment_maps : segment_maps;
  chain.begin = ends + at * segment_ends;
  if (carried) {
    const int before = kReverse ? p.carry.open : 0;
    const long long from = static_cast<long long>(sequence - before) * p.value_heads + head;
    chain.begin = static_cast<const float*>(kReverse ? p.carry.grads : p.carry.states) +
                  from * values + row_offset;
  }
  chain.run();
}

// The launch has few rows in a block or as many as there is room for: the more, the less of M is
// read, and the fewer the less waits for it where blocks are few.
template <class Config, bool kReverse>
__device__ __forceinline__ void merge_some_rows(const KdaMergeParams& p, unsigned block,
                                                unsigned shared) {
  constexpr int kMost = KdaMergeSmem<Config>::kRows;
  if constexpr (kMost > 16) {
    if (p.rows == kMost) {
      merge_segments<Config, kReverse, kMost / 16>(p, block, shared);
      return;
    }
  }
  merge_segments<Config, kReverse, 1>(p, block, shared);
}

template <class Config>
__device__ void kda_merge(const KdaMergeParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const unsigned forward_blocks =
      Config::kStates ? p.sequences * p.value_heads * ceil_div(p.value_dim, p.rows) : 0;
  if constexpr (Config::kStates) {
    if (blockIdx.x < forward_blocks) {
      merge_some_rows<Config, false>(p, blockIdx.x, shared_address(shared));
      return;
    }
  }
  if constexpr (Config::kGrads) {
    merge_some_rows<Config, true>(p, blockIdx.x - forward_blocks, shared_address(shared));
  }
}

}  // namespace lathe
