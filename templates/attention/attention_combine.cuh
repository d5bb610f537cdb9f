// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_combine: the partial results of split keys become one, by the formula of merge.cuh.
//
//   out[b, i, h] = sum_s (w_s / W) o[s, b, h, i],  lse[b, h, i] = mu + ln W,  the sink one part
//   more
//
// A warp owns a row of a head: its lanes hold the lse of all splits, then 4 columns each, twice; a
// row of more than 256 columns takes more passes. The sum
// runs over the splits in their order, so the result does not depend on when they finished; o of a
// split without weight is not read, for nobody may have written it.
#pragma once
#include "attention/decode/calls.cuh"
#include "attention/merge.cuh"
#include "params/attention.h"

namespace lathe {

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  }
  return value;
}

constexpr int kCombineParts = 8;  // of a lane: 256 splits
constexpr int kCombineColumns = 4, kCombinePass = 2 * 32 * kCombineColumns;

// The sums of a lane's columns, and of the weights.
struct CombinedColumns {
  float o[2][kCombineColumns], sum;
};

// A row of a head and where it lies: its splits are `stride` rows apart in the partial results.
struct CombineRow {
  int query, head, splits;
  long long batch, partial, stride, lse;
  bool there;
};

// Columns start + 4 lane and 128 further on, of the row whose first split begins at `from`.
__device__ __forceinline__ CombinedColumns combine_columns(const AttentionCombineParams& p,
                                                           const CombineRow& row, const float* from,
                                                           int start,
                                                           const float (&part)[kCombineParts]) {
  constexpr int kAtOnce = 4;
  const int first_column = start + kCombineColumns * static_cast<int>(threadIdx.x % 32);
  CombinedColumns out = {};
#pragma unroll
  for (int i = 0; i < kCombineParts; ++i) {
    const int count = minimum(row.splits - 32 * i, 32);
#pragma unroll 1
    for (int first = 0; first < count; first += kAtOnce) {
      float weight[kAtOnce];
      Words<16> raw[kAtOnce][2];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {  // all loads of a batch are under way together
        weight[s] = __shfl_sync(0xffffffffu, part[i], first + s);
        const float* split = from + (32 * i + first + s) * (row.stride * p.value_dim);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = first_column + 128 * half;
          raw[s][half] = {};
          if (weight[s] != 0.0f && column < p.value_dim) {
            load_global(split + column, raw[s][half]);
          }
        }
      }
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        out.sum += weight[s];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int c = 0; c < kCombineColumns; ++c) {
            const float value = bit_cast<float>(raw[s][half].word[c]);
            out.o[half][c] = __fmaf_rn(weight[s], value, out.o[half][c]);
          }
        }
      }
    }
  }
  return out;
}

// Row `number` of all heads, [B, H, Sq].
__device__ __forceinline__ CombineRow combine_row(const AttentionCombineParams& p,
                                                  long long number) {
  const long long other = number / p.seq_q;
  return {static_cast<int>(number % p.seq_q),
          static_cast<int>(other % p.heads),
          p.splits,
          other / p.heads,
          number,
          p.rows,
          number,
          number < p.rows};
}

// Row `number` of all used slots, [slots, rows of a slot].
template <class Config>
__device__ __forceinline__ CombineRow combine_slot_row(const AttentionCombineParams& p,
                                                       long long number) {
  using Offset = typename Config::CuSeqlens;
  const long long slot = number / p.tile_rows;
  CombineRow out = {};
  const auto entry = static_cast<const AttentionCombineEntry*>(p.combine_list)[slot];
  const int group = p.heads / p.kv_heads;
  const int of_slot = static_cast<int>(number % p.tile_rows), row = entry.first + of_slot;
  const int start = offset_at<Offset>(p.cu_seqlens_q, entry.sequence, p.seq_q);
  const int end = offset_at<Offset>(p.cu_seqlens_q, entry.sequence + 1, p.seq_q);
  out.query = start + row / group, out.head = entry.head * group + row % group;
  out.splits = entry.count;
  out.partial = number, out.stride = entry.stride;
  out.lse = static_cast<long long>(out.head) * p.seq_q + out.query;
  out.there = entry.count > 0 && of_slot < entry.rows && out.query < end;
  return out;
}

// A warp joins the splits of a row.
template <class Config>
__device__ __forceinline__ void join_row(const AttentionCombineParams& p, const CombineRow& row) {
  constexpr int kParts = kCombineParts, kColumns = kCombineColumns;
  const int lane = threadIdx.x % 32;
  if (!row.there) return;

  float part[kParts], largest = minus_infinity();
  const float* lse = static_cast<const float*>(p.partial_lse) + row.partial;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int split = 32 * i + lane;
    part[i] = split < row.splits ? load_element(lse + split * row.stride) : minus_infinity();
    largest = fmaxf(largest, part[i]);
  }
  largest = warp_max(largest);
  float sink = minus_infinity();
  if constexpr (Config::kSinks) {
    sink = load_element(static_cast<const float*>(p.sinks) + row.head);
    largest = fmaxf(largest, sink);
  }
  const float base = merge_base(largest);
#pragma unroll
  for (int i = 0; i < kParts; ++i) part[i] = merge_weight(part[i], base);

  using Element = typename Config::Element;
  const float* from = static_cast<const float*>(p.partial_out) + row.partial * p.value_dim;
  Element* out = static_cast<Element*>(p.out) + row.batch * p.out_batch_stride +
                 row.query * p.out_token_stride + row.head * p.out_head_stride;
#pragma unroll 1
  for (int start = 0; start < p.value_dim; start += kCombinePass) {
    CombinedColumns all = combine_columns(p, row, from, start, part);
    if constexpr (Config::kSinks) all.sum += merge_weight(sink, base);
    if (lane == 0 && start == 0) {
      store_element(static_cast<float*>(p.lse) + row.lse, merge_lse(base, all.sum));
    }
    const float scale = merge_scale(all.sum);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = start + kColumns * lane + 128 * half;
      if (column >= p.value_dim) continue;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) all.o[half][c] *= scale;
      store_aligned<kAlignmentOf<Config, Element>>(
          out + column, pack<Element, kColumns * sizeof(Element)>(all.o[half]));
    }
  }
}

// Packed queries have room for more slots than most calls use: the grid is that of a full device,
// and walks those that the attention has counted.
template <class Config>
__device__ void attention_combine(const AttentionCombineParams& p) {
  constexpr int kWarps = Config::kThreads / 32;
  const long long first =
      static_cast<long long>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  if constexpr (IsRagged<Config>::kValue) {
    const long long rows =
        static_cast<long long>(load_element(static_cast<const int*>(p.used_slots))) * p.tile_rows;
    const long long step = static_cast<long long>(gridDim.x) * kWarps;
#pragma unroll 1
    for (long long number = first; number < rows; number += step) {
      join_row<Config>(p, combine_slot_row<Config>(p, number));
    }
  } else {
    join_row<Config>(p, combine_row(p, first));
  }
}

}  // namespace lathe
