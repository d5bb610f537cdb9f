// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_summary: what each segment of a sequence makes of any state before it and of any gradient
// behind it, all segments at once.
//
// A run of tokens is an affine map of the state, S' = M S + E, and of its gradient backwards,
// dS = M^T dS' + D, with the same M. E is the walk of kda_forward from 0 (the first segment: from
// the initial state), and M the same walk from the identity with v = 0: a column of M is a column
// of a state, and a thread block has no more to know of it than where its columns begin. So a head
// has thread blocks for the columns of V, which leave E, and for those of K, which leave M. D is
// the walk back of kda_backward_scan from 0 (the last segment: from the gradient of the final
// state). Nothing that belongs to a token is written.
//
// Walked are those that the chain of kda_merge reads: no E of the last segment, no M of the first
// and the last, no D of the first. Of a sequence that goes on behind the rank's part the last
// segment is one like all others, which hands its E on, and so is the first one of a sequence that
// began before: both start from 0, what is before and behind them being elsewhere.
//
// (Yang et al., Parallelizing Linear Transformers with the Delta Rule, 2024, on the transition of a
// chunk; Kimi Linear, 2025.)
#pragma once
#include "kda/kda_backward_scan.cuh"

namespace lathe {

// The walks' Config with nothing stored on the way.
template <class Config>
struct KdaQuiet : Config {
  static constexpr bool kOutput = false, kSaved = false, kChunkStates = false, kFinalState = false;
  static constexpr bool kInitialStateGrad = false, kRanks = false, kCheckpoints = false;
};

// Says what a thread block of the forward direction makes: columns of E, or of M.
template <class Config>
struct KdaSummaryTile {
  KdaScanTile tile;
  int key;  // its first column of M; below 0: of E
  bool carried, wanted;

  __device__ __forceinline__ KdaSummaryTile(const KdaSummaryParams& p, unsigned block, int values) {
    const int states = Config::kStates ? p.in.value_tiles : 0;
    const int tiles = states + ceil_div(p.in.key_dim, values);
    if (p.wanted_only) {
      const unsigned each = tiles * (p.in.segments - 1) - (tiles - states);
      const unsigned of_sequence = each * p.in.value_heads, all = block + p.forward_skipped;
      const unsigned run = all / each, sequence = all / of_sequence;
      const unsigned job = all - run * each + (tiles - states);
      const unsigned segment = job < tiles ? 0 : job / tiles;
      const unsigned at = job < tiles ? job - (tiles - states) : job - segment * tiles;
      tile = kda_scan_tile_of<Config>(p.in, static_cast<int>(sequence), static_cast<int>(segment),
                                      static_cast<int>(run - sequence * p.in.value_heads),
                                      static_cast<int>(at) * values);
    } else {
      tile = kda_scan_tile<Config>(p.in, block + p.forward_skipped, tiles, values);
    }
    key = tile.value - states * values;
    carried = tile.sequence < p.carried;
    const bool goes_on = !tile.last || tile.sequence >= p.open;
    wanted = !tile.idle() && goes_on && (key < 0 || tile.segment > 0 || carried);
    // Columns from value_tiles * values on are none of v: their rows are read as zeros.
    if (!Config::kStates) tile.value += p.in.value_tiles * values;
  }
  // The warp's first row of E^T or M^T.
  template <class Walk>
  __device__ __forceinline__ int row(const Walk& walk) const {
    return 16 * walk.warp + (key < 0 ? tile.value : key);
  }
  template <class Walk>
  __device__ __forceinline__ void begin(const Walk& walk, KdaState<Config>& state) const {
    if (key >= 0) {
      state.identity(row(walk));
    } else if (tile.segment == 0 && !carried) {
      walk.load_initial_state(state);
      if constexpr (kPooled<Config>) {
        state.template store<true>(static_cast<float*>(walk.p.pool.before) + walk.warp_state(),
                                   row(walk), walk.in.key_dim, walk.in.value_dim);
      }
    } else {
      state.clear();
    }
  }
  template <class Walk>
  __device__ __forceinline__ void end(const KdaSummaryParams& p, const Walk& walk,
                                      KdaState<Config>& state) const {
    const int rows = key < 0 ? p.in.value_dim : p.in.key_dim;
    float* to = static_cast<float*>(key < 0 ? p.summaries : p.transitions);
    state.template store<true>(to + walk.summary(tile.segment, rows), row(walk), p.in.key_dim,
                               rows);
  }
};

template <class Config>
__device__ __forceinline__ void summarize_forward(const KdaSummaryParams& p, unsigned shared) {
  using Quiet = KdaQuiet<Config>;
  const KdaSummaryTile<Quiet> of(p, blockIdx.x, KdaScanSmem<Quiet>::kValues);
  if (!of.wanted) return;
  KdaForwardParams walk = {};
  walk.in = p.in, walk.initial_state = p.initial_state;
  if constexpr (kPooled<Config>) walk.pool = p.pool;
  const KdaForward<Quiet> forward(walk, of.tile, shared);
  KdaState<Quiet> state;
  of.begin(forward, state);
  forward.walk(state);
  of.end(p, forward, state);
}

template <class Config>
__device__ __forceinline__ void summarize_back(const KdaSummaryParams& p, unsigned block,
                                               unsigned shared) {
  using Quiet = KdaQuiet<Config>;
  KdaBackwardScanParams walk = {};
  walk.in = p.in, walk.d_o = p.d_o, walk.dht = p.dht;
  walk.do_batch_stride = p.do_batch_stride, walk.do_token_stride = p.do_token_stride;
  walk.do_head_stride = p.do_head_stride;
  const KdaReverse<Quiet, false> reverse(walk, block, shared);
  const KdaScanTile& tile = reverse.tile;
  if (tile.idle() || !(tile.segment > 0 || tile.sequence < p.carried)) return;
  KdaState<Quiet> state;
  if (tile.last && tile.sequence < p.open) {
    reverse.load_final_grad(state);
  } else {
    state.clear();
  }
  reverse.walk(state);
  state.template store<true>(
      static_cast<float*>(p.grad_ends) + reverse.summary(tile.segment, p.in.value_dim),
      reverse.warp_value(), p.in.key_dim, p.in.value_dim);
}

template <class Config>
__device__ void kda_summary(const KdaSummaryParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  if constexpr (Config::kGrads) {
    if (static_cast<int>(blockIdx.x) >= p.forward_blocks) {
      summarize_back<Config>(p, blockIdx.x - p.forward_blocks + p.back_skipped,
                             shared_address(shared));
      return;
    }
  }
  summarize_forward<Config>(p, shared_address(shared));
}

}  // namespace lathe
