// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Blocks of tokens whose decays need several parts (kda/sm90/preparer.cuh). They are rare, and read
// their inputs again.
#pragma once
#include "kda/sm90/preparer.cuh"

namespace lathe {

// One part of every column: rows of ke and qg as they are seen from its beginning, kd of its tokens
// alone. Read from memory, as the record does not hold the inputs any more. Returns the last part
// of the lane's columns, and a bit for each that is cut.
template <class Config>
__device__ __forceinline__ int KdaPreparing<Config>::pass(const Record& record, int first, int part,
                                                          unsigned& cut) const {
  int last = 0;
  cut = 0;
#pragma unroll 1
  for (int piece = 0; piece < kPieces; ++piece) {
    last = maximum(last, pass(record, first, part, piece, cut));
  }
  return last;
}

template <class Config>
__device__ __forceinline__ int KdaPreparing<Config>::pass(const Record& record, int first, int part,
                                                          int piece, unsigned& cut) const {
  const int lane = fresh_lane();
  const auto from = scan.rows();
  const int left = scan.tile.count - first, column = lane_column(lane, piece);
  float factor[kEach], seen[kEach], bias[kEach];
  load_bias(piece, bias);
  int number[kEach], last = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) factor[e] = kScaling, seen[e] = 0.0f, number[e] = 0;
#pragma unroll 1
  for (int token = 0; token < 16; ++token) {
    const long long row = first + token;
    const bool there = token < left && column < from.key_dim;
    KdaColumns<Element, 4, kEach> k, q;
    KdaColumns<typename Config::GateElement, 4, kEach> g;
    k.load(from.k + row * from.k_stride, column, from.key_dim, there);
    q.load(from.q + row * from.q_stride, column, from.key_dim, there);
    g.load(from.g + row * from.g_stride, column, from.key_dim, there);
    float rows[3][kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const float alpha = kda_step_decay<Element>(logarithm(g.at(e), bias[e], token < left));
      factor[e] = __fmul_rn(factor[e], alpha);
      if (factor[e] < kLeast) factor[e] = kScaling, ++number[e];
      seen[e] = number[e] == part ? factor[e] : number[e] < part ? 0.0f : __fmul_rn(seen[e], alpha);
      rows[0][e] = __fmul_rn(-k.at(e), seen[e]);
      rows[1][e] = __fmul_rn(q.at(e), seen[e]);
      rows[2][e] = number[e] == part ? __fmul_rn(k.at(e), rcp_normal(factor[e])) : 0.0f;
    }
    const unsigned at = lane_at(record, lane, token, piece);
    store_shared(at, pack<Element, 2 * kEach>(rows[0]));
    if constexpr (Config::kOutput) {
      store_shared(at + Smem::kQ, pack<Element, 2 * kEach>(rows[1]));
    }
    store_shared(at + Smem::kG, pack<Element, 2 * kEach>(rows[2]));
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (number[e] > 0) cut |= 1u << (piece * kEach + e);
    last = maximum(last, number[e]);
  }
  return last;
}

// In columns that are cut, kd becomes kg: the decay of the whole block then comes before the sum.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::end_columns(const Record& record, int first,
                                                                  unsigned cut) const {
#pragma unroll 1
  for (int piece = 0; piece < kPieces; ++piece) end_piece(record, first, piece, cut);
}

template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::end_piece(const Record& record, int first,
                                                                int piece, unsigned cut) const {
  const int lane = fresh_lane();
  const auto from = scan.rows();
  const int left = scan.tile.count - first, column = lane_column(lane, piece);
  float after[kEach], bias[kEach];
  load_bias(piece, bias);
#pragma unroll
  for (int e = 0; e < kEach; ++e) after[e] = kUnscaling;
#pragma unroll 1
  for (int token = 15; token >= 0; --token) {
    const long long row = first + token;
    const bool there = token < left && column < from.key_dim;
    KdaColumns<Element, 4, kEach> k;
    KdaColumns<typename Config::GateElement, 4, kEach> g;
    k.load(from.k + row * from.k_stride, column, from.key_dim, there);
    g.load(from.g + row * from.g_stride, column, from.key_dim, there);
    Raw raw;
    float rows[kEach];
    const unsigned at = lane_at(record, lane, token, piece) + Smem::kG;
    load_shared(at, raw);
    unpack<Element>(raw, rows);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (cut >> (piece * kEach + e) & 1) rows[e] = __fmul_rn(k.at(e), after[e]);
      after[e] *= kda_step_decay<Element>(logarithm(g.at(e), bias[e], token < left));
    }
    store_shared(at, pack<Element, 2 * kEach>(rows));
  }
}

}  // namespace lathe
