// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_block: a step of ring attention. A partial result (out, lse) over the keys so far, both
// float32, goes on over the keys of one more block, as if it had never stopped:
//
//   m = lse, l = 1, o = out  (lse = -inf or `first`: m = -inf, l = 0, o = 0)
//   attention_forward's loop over the keys that are kept by ranges or by positions
//   out = o / l, lse = m + ln l
//
// Liu et al., Ring Attention; the state is never rounded between steps. A block of threads owns
// kTileM query rows and all that they see, so that (out, lse) has one writer. Which keys that is, a
// walk over ranges or positions tells the queue (visit_queue.cuh). Tiles that see none end at once.
#pragma once
#include "attention/attention_forward.cuh"
#include "attention/partials.cuh"
#include "attention/positions.cuh"
#include "attention/ranges.cuh"

namespace lathe {

// The tiles of the forward, and the queue.
template <class Config>
struct AttentionBlockSmem {
  static constexpr int kQueue = AttentionForwardSmem<Config>::kBytes;
  static constexpr int kBytes = kQueue + VisitQueue::kBytes;
};

template <class Config>
struct AttentionBlock {
  using Forward = AttentionForward<Config>;
  using Shape = typename Forward::Shape;
  using Smem = typename Forward::Smem;
  static constexpr int kRowBlocks = Shape::kRowBlocks, kStages = Config::kStages;

  const AttentionBlockParams& p;
  const QueryTile& tile;
  const Forward forward;
  const VisitQueue queue;

  __device__ __forceinline__ AttentionBlock(const AttentionBlockParams& params,
                                            const QueryTile& query_tile, unsigned shared)
      : p(params),
        tile(query_tile),
        forward(params.forward, query_tile, shared),
        queue{shared + AttentionBlockSmem<Config>::kQueue} {}

  __device__ __forceinline__ auto walk() const {
    const AttentionForwardParams& f = p.forward;
    const int last = minimum(tile.first + Config::kTileM, tile.rows) - 1;
    const VisitMask<Config> mask = {captures_of(f), tile.sequence, tile.head, tile.head + 1};
    if constexpr (Config::kRanges) {
      return RangeWalk<KeysOfRows<Config::kTileN>, VisitMask<Config>>{
          queue,
          {{static_cast<const int*>(p.ranges), p.range_count, tile.rows, tile.keys, f.window_left,
            f.window_right},
           tile.first,
           last},
          mask,
          static_cast<const int*>(p.range_batches)};
    } else {
      return PositionWalk<Config::kTileN, true, VisitMask<Config>>{
          queue,
          static_cast<const int*>(p.q_positions) + tile.first,
          static_cast<const int*>(p.key_ranges),
          last + 1 - tile.first,
          tile.keys,
          lowest_difference(f.window_left),
          highest_difference(f.window_right),
          true,
          mask};
    }
  }

  __device__ __forceinline__ void copy_k(int visit) const {
    const int i = warp_uniform(visit);
    forward.rows_of_keys.copy_k(forward.k_tile + Forward::stage(i) * Smem::kK, queue.at(i),
                                queue.end(i), p.forward.head_dim);
  }
  __device__ __forceinline__ void copy_v(int visit) const {
    const int i = warp_uniform(visit);
    forward.rows_of_keys.copy_v(forward.v_tile + Forward::stage(i) * Smem::kV, queue.at(i),
                                queue.end(i), p.forward.value_dim);
  }

  // Applies mods and masks to the scores of a visit.
  template <bool kMasked, class Scores>
  __device__ __forceinline__ void modify(int visit, const ScoreUnits<Config>& units,
                                         const WarpRows<Config>& rows, Scores& s) const {
    if constexpr (Config::kRanges) {
      constexpr bool kMods = kHasMods<Config>;
      // Otherwise nothing is read of the visit.
      constexpr bool kNear = kMasked || Config::kAlibi || kMods;
      const Visit v = kNear ? queue.get(warp_uniform(visit)) : Visit{};
      const VisitWindow window = {{v.end, v.low, v.high}, v.first, v.last};
      VisitPositions positions = {v.first, v.last, v.at, v.end, {}};
      QueryTile shifted = tile;  // of which the distance of positions is read
      shifted.keys = v.offset, shifted.rows = 0;
      if constexpr (kMods) {
        positions.from = queue.origin(warp_uniform(visit));
        shifted.sequence = positions.from.batch;
      }
      modify_scores<Config, kMasked ? AttentionMask::both : AttentionMask::none>(
          s, units, rows, shifted, window, v.at, positions);
    } else {
      modify_scores_by_position<Config, kMasked>(s, units, rows, tile, p, queue.at(visit));
    }
  }

  // Which tile this is, without a register that has held it since.
  __device__ __forceinline__ unsigned turn() const {
    if constexpr (Config::kPersistent) return load_shared_word(queue.cursor(VisitQueue::kTurn));
    return warp_uniform(blockIdx.x);
  }

  template <bool kMasked, class Fragments, class O>
  __device__ __forceinline__ void step(int visit, const Fragments& q,
                                       const ScoreUnits<Config>& units,
                                       const WarpRows<Config>& rows,
                                       RunningSoftmax<kRowBlocks>& softmax, O& o) const;
  __device__ __forceinline__ void run() const;
};

// One key block; the copies are those of attention_forward. The queue grows between the barriers:
// its new slot is read from the next step on, and was read for the last time in the last but one.
template <class Config>
template <bool kMasked, class Fragments, class O>
__device__ __forceinline__ void AttentionBlock<Config>::step(int visit, const Fragments& q,
                                                             const ScoreUnits<Config>& units,
                                                             const WarpRows<Config>& rows,
                                                             RunningSoftmax<kRowBlocks>& softmax,
                                                             O& o) const {
  constexpr int kPending = kStages - 1;
  const bool more = !queue.is(warp_uniform(visit) + 1, VisitKind::end);

  copy_async_wait<kPending>();
  __syncthreads();  // K is there for all; all have left the stage that is refilled next
  if constexpr (kStages == 1) {
    copy_v(visit);
  } else if (more) {
    copy_k(visit + 1);
  }
  copy_async_commit();
  if (more && uniform(thread_index() < 32)) walk().append(visit + 2);

  float s[kRowBlocks][Shape::kKeyTiles][4] = {};
  forward.multiply_keys(visit, q, s);
  modify<kMasked>(visit, units, rows, s);
  Accumulated<typename Config::Element, Shape::kKeyTiles> p_words[kRowBlocks];
  softmax_step<kMasked || HasScoreMod<Config>::kValue>(s, units.t, softmax, o, p_words);

  copy_async_wait<kPending>();
  __syncthreads();  // V is there for all; all have left K; the queue has grown
  if (more) {
    if constexpr (kStages == 1) {
      copy_k(visit + 1);
    } else {
      copy_v(visit + 1);
    }
  }
  copy_async_commit();

  forward.multiply_values(visit, p_words, softmax, o);
}

template <class Config>
__device__ __forceinline__ void AttentionBlock<Config>::run() const {
  if (uniform(thread_index() < 32)) {
    walk().start();
    walk().append(0);
    walk().append(1);
  }
  __syncthreads();  // the first visits are known to all
  const bool any = !queue.is(0, VisitKind::end);
  if (!any && !p.first) return;

  const WarpRows<Config> rows(tile);
  const ScoreUnits<Config> units(p.forward, tile, rows);
  float o[kRowBlocks][Shape::kOutTiles][4];
  RunningSoftmax<kRowBlocks> softmax;
  start_partial<Config>(p, tile, units.t, softmax, o);
  if (any) {
    forward.copy_q();
    if constexpr (Shape::kKeepQ) copy_async_commit();
    copy_k(0);
    copy_async_commit();
    if constexpr (kStages == 2) {
      copy_v(0);
      copy_async_commit();
    }
    Fragment<typename Config::Element> q[kRowBlocks][Shape::kKeepQ ? Shape::kSteps : 1];
    if constexpr (Shape::kKeepQ) forward.keep_q(q);
#pragma unroll 1
    for (int visit = 0; !queue.is(visit, VisitKind::end); ++visit) {
      if (queue.is(visit, VisitKind::masked)) {
        step<true>(visit, q, units, rows, softmax, o);
      } else {
        step<false>(visit, q, units, rows, softmax, o);
      }
    }
  }
  // The tile once more, so that nothing of it alone is kept in registers across the products.
  const QueryTile again = query_tile<Config>(p.forward, turn());
  store_partial<Config>(p, again, units.t, softmax, o);
}

template <class Config>
__device__ void attention_block(const AttentionBlockParams& p) {
  static_assert(!Config::kPacked && !Config::kPackGqa && !Config::kSinks, "not of a block step");
  extern __shared__ __align__(1024) float4 shared[];
  const unsigned memory = shared_address(shared);
  if constexpr (Config::kPersistent) {
    const unsigned tiles = p.forward.tiles * p.forward.heads * p.forward.sequences;
    take_turns(VisitQueue{memory + AttentionBlockSmem<Config>::kQueue}, tiles, [&](unsigned at) {
      const QueryTile tile = query_tile<Config>(p.forward, at);
      AttentionBlock<Config>(p, tile, memory).run();
    });
  } else {
    const QueryTile tile = query_tile<Config>(p.forward);
    AttentionBlock<Config>(p, tile, memory).run();
  }
}

}  // namespace lathe
