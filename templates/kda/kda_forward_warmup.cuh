// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward_warmup: kda_forward in segments by one launch, up to a bound. A segment does not wait
// for the one before it: it starts some tokens early, from zero, and what it then lacks is the
// state before those tokens, decayed by them. With |k| <= 1 and 0 <= beta <= 2 a token's update
// does not expand, whatever keys mix, so that this is at most
//
//   sqrt(K) prod_t max_d alpha[t, d]  <=  2^-20    of the largest entry of that state,
//
// which is what log2(e) sum_t max_d g[t, d] + log2(K) / 2 <= -20 says. The sum is one of the
// largest gates of each token, not the largest of sums over tokens: a key hands what a slow channel
// holds to a fast one and back, and a channel's own decay bounds nothing. Where the bound is not
// met before the sequence begins the walk is exact, from the initial state.
//
// g is read once more, from the segment backwards; the tokens in between are walked without output.
#pragma once
#include "kda/kda_summary.cuh"

namespace lathe {

constexpr float kKdaDropped = -20.0f;  // log2

// The sum over 16 tokens from `first` on of their weakest gates, which all lanes get. A gate that
// is no number bounds nothing.
template <class Config>
__device__ __forceinline__ float weakest_gates(const KdaScan<Config>& scan, int first) {
  constexpr int kColumns = KdaBlock<Config>::kColumns;
  const KdaRows<Config> rows = scan.rows();
  const KdaNumbers numbers = scan.numbers();
  const int token = scan.lane / 4, t = scan.lane % 4;
  float most[2] = {kKdaLeastGate, kKdaLeastGate};
#pragma unroll 1
  for (int column = t * kColumns; column < Config::kWidth; column += 4 * kColumns) {
    KdaColumns<float, Config::kVectorBytes, kColumns> bias;
    if constexpr (Config::kDtBias) bias.load(numbers.dt_bias, column, rows.key_dim, true);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      KdaColumns<typename Config::GateElement, Config::kVectorBytes, kColumns> g;
      g.load(rows.g + (first + token + 8 * h) * rows.g_stride, column, rows.key_dim, true);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const float gate_log =
            decay_log<Config>(g.at(i), Config::kDtBias ? bias.at(i) : 0.0f, numbers);
        const bool above = column + i < rows.key_dim && !(gate_log <= most[h]);
        most[h] = above ? (gate_log == gate_log ? gate_log : 0.0f) : most[h];
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 1));
    most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 2));
  }
  float sum = __fadd_rn(most[0], most[1]);
#pragma unroll
  for (int other = 4; other < 32; other *= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, other));
  }
  return sum;
}

// The token from which a walk may start at zero so as to be right from the segment's first on; 0:
// from the start of the sequence, which is exact.
template <class Config>
__device__ __forceinline__ int warmup_start(const KdaScan<Config>& scan) {
  constexpr int kWarps = KdaScan<Config>::kWarps;
  float sum = 0.5f * log2f(static_cast<float>(scan.in.key_dim));
  int start = scan.tile.first;
#pragma unroll 1
  while (start > 0) {
    const int warp_first = start - 16 * (scan.warp + 1);
    if (warp_first >= 0) {
      const float gates = weakest_gates(scan, warp_first);
      if (scan.lane == 0) store_shared(scan.blocks + 4 * scan.warp, gates);
    }
    __syncthreads();  // every warp's sum is there
#pragma unroll 1
    for (int warp = 0; warp < kWarps && start > 0; ++warp) {
      sum = __fmaf_rn(load_shared(scan.blocks + 4 * warp), kLog2E, sum);
      start -= 16;
      if (sum <= kKdaDropped) break;
    }
    __syncthreads();  // all have read the sums, which are made anew
    if (sum <= kKdaDropped) break;
  }
  return start;
}

template <class Config>
__device__ void kda_forward_warmup(const KdaForwardParams& p) {
  static_assert(!Config::kSaved, "a gradient would need what the bound drops");
  extern __shared__ __align__(1024) float4 shared[];
  using Quiet = KdaQuiet<Config>;
  const KdaForward<Config> forward(p, blockIdx.x, shared_address(shared));
  forward.clear_rest();
  if (forward.tile.idle()) return;
  KdaScanTile before = forward.tile;
  before.first = warmup_start<Config>(forward), before.count = forward.tile.first;
  KdaState<Config> state;
  if (before.first == 0) {
    forward.load_initial_state(state);
  } else {
    state.clear();
  }
  if (before.first < before.count) {
    KdaState<Quiet> early;
    early.take(state);
    KdaForward<Quiet>(p, before, shared_address(shared)).walk(early);
    state.take(early);
  }
  forward.walk(state);
  forward.store_final_state(state);
}

}  // namespace lathe
