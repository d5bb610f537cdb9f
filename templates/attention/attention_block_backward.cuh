// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_block_backward: what a block of keys adds to the gradients, in a step of a ring. With
// lse and delta those of all blocks together, each block's part is attention_backward's sums over
// the pairs of rows and keys that are kept, and parts only add:
//
//   dq += softmax_scale ds k,  dk += softmax_scale ds^T q,  dv += p^T dout          all float32
//
// With first_keys dk and dv are written: = in the place of +=, and 0 where no row sees a key.
//
// A block of threads owns kTileN keys, so that dk and dv have one writer, and walks the rows that
// see them, which a queue of visits tells it (visit_queue.cuh), each block of rows for every query
// head of the key head. dq is added to in no order; with kDeterministic into accumulators that
// attention_block_finish adds up, one for each block of threads of a head, without softmax_scale.
#pragma once
#include "attention/attention_backward.cuh"
#include "attention/backward/position_gradients.cuh"
#include "attention/ranges.cuh"

namespace lathe {

// The tiles of the backward, its key tile, and the queue.
template <class Config>
struct AttentionBlockBackwardSmem {
  static constexpr int kQueue = AttentionBackwardSmem<Config>::kBytes;
  static constexpr int kBytes = kQueue + VisitQueue::kBytes;
};

// A block of rows of one head.
struct VisitCursor {
  int head, visit;
};

template <class Config>
struct AttentionBlockBackward {
  using Backward = AttentionBackward<Config>;
  using Element = typename Config::Element;
  using Shape = typename Backward::Shape;
  using Smem = typename Backward::Smem;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;
  static constexpr int kFloats = kAlignmentOf<Config, float>;  // of dq, dk and dv

  const AttentionBlockBackwardParams& all;
  const AttentionBackwardParams& p;
  const Backward backward;
  volatile KeyTile* const tile;
  const unsigned shared;
  const VisitQueue queue;

  __device__ __forceinline__ AttentionBlockBackward(const AttentionBlockBackwardParams& params,
                                                    char* memory)
      : all(params),
        p(params.backward),
        backward(params.backward, memory),
        tile(backward.tile),
        shared(backward.shared),
        queue{shared + AttentionBlockBackwardSmem<Config>::kQueue} {}

  __device__ __forceinline__ auto walk() const {
    const int first = tile->first, last = minimum(first + kTileN, p.seq_k) - 1;
    const VisitMask<Config> mask = {captures_of(p), tile->sequence, tile->first_head,
                                    tile->end_head};
    if constexpr (Config::kRanges) {
      return RangeWalk<RowsOfKeys<kTileM, kTileN>, VisitMask<Config>>{
          queue,
          {{static_cast<const int*>(all.ranges), all.range_count, p.seq_q, p.seq_k, p.window_left,
            p.window_right},
           first,
           last},
          mask,
          static_cast<const int*>(all.range_batches)};
    } else {  // the difference of positions seen from the keys
      return PositionWalk<kTileM, false, VisitMask<Config>>{
          queue,
          static_cast<const int*>(all.k_positions) + first,
          static_cast<const int*>(all.row_ranges),
          last + 1 - first,
          p.seq_q,
          -highest_difference(p.window_right),
          -lowest_difference(p.window_left),
          last + 1 - first == kTileN,
          mask};
    }
  }

  __device__ __forceinline__ void copy_q(const VisitCursor& at, int turn) const {
    const int visit = warp_uniform(at.visit), row = queue.at(visit);
    const Element* q = static_cast<const Element*>(p.q) +
                       backward.query_offset(p.q_batch_stride, p.q_token_stride) +
                       at.head * p.q_head_stride;
    copy_tile<kTileM, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        backward.q_tile(turn), q, queue.end(visit) - row, p.head_dim,
        [&](int r) { return (row + r) * p.q_token_stride; });
  }
  // dout and what belongs to its rows. Rows past the visit's last have 0 for both.
  __device__ __forceinline__ void copy_dout(const VisitCursor& at) const {
    const int visit = warp_uniform(at.visit), row = queue.at(visit), end = queue.end(visit);
    const Element* dout = static_cast<const Element*>(p.dout) +
                          backward.query_offset(p.dout_batch_stride, p.dout_token_stride) +
                          at.head * p.dout_head_stride;
    copy_tile<kTileM, Config::kValueWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        shared + Smem::kDoutAt, dout, end - row, p.value_dim,
        [&](int r) { return (row + r) * p.dout_token_stride; });
    const long long first =
        (static_cast<long long>(tile->sequence) * p.heads + at.head) * p.seq_q + row;
    copy_row_values<kTileM, Config::kThreads>(shared + Smem::kRowsAt, p.lse2, p.delta, first,
                                              end - row);
  }

  template <bool kMasked>
  __device__ __forceinline__ void make_p(const VisitCursor& at, typename Shape::Scores& s,
                                         typename Shape::Operands& words) const;
  __device__ __forceinline__ void scores(const VisitCursor& at, unsigned q,
                                         typename Shape::Operands& ds,
                                         typename Shape::DvAccumulators& dv) const;
  __device__ __forceinline__ void dq_step(const VisitCursor& at) const;
  __device__ __forceinline__ void step(const VisitCursor& at, const VisitCursor& next, int turn,
                                       typename Shape::DkAccumulators& dk,
                                       typename Shape::DvAccumulators& dv) const;
  __device__ __forceinline__ void store(const typename Shape::DkAccumulators& dk,
                                        const typename Shape::DvAccumulators& dv) const;
  __device__ __forceinline__ void run() const;
};

// Scores -> p and what ds is p times of.
template <class Config>
template <bool kMasked>
__device__ __forceinline__ void AttentionBlockBackward<Config>::make_p(
    const VisitCursor& at, typename Shape::Scores& s, typename Shape::Operands& words) const {
  const int visit = warp_uniform(at.visit);
  ScoreTile scores;
  scores.key = tile->first + Shape::key_block() * 16 + Shape::lane() / 4;
  scores.query = queue.at(visit);
  scores.lane_query = Shape::first_query() + Shape::lane() % 4 * 2;
  if constexpr (Config::kAlibi) {
    scores.slope = load_element(static_cast<const float*>(p.alibi_slopes) +
                                tile->sequence * p.alibi_batch_stride + at.head);
  }
  constexpr bool kMods = kHasMods<Config>;
  if constexpr (kMods) scores.sequence = tile->sequence, scores.head = at.head;
  const unsigned lse2 = shared + Smem::kRowsAt + 4 * scores.lane_query;
  if constexpr (Config::kRanges) {
    const Visit v = kMasked || Config::kAlibi || kMods ? queue.get(visit) : Visit{};
    const VisitWindow window = {{v.last, v.low, v.high}, v.first, v.last};
    VisitPositions positions = {v.at, v.end, v.first, v.last, {}};
    if constexpr (kMods) {
      positions.from = queue.origin(visit);
      scores.sequence = positions.from.batch;
    }
    scores.offset = v.offset;
    score_weights<Config, kMasked>(s, words, backward.units, scores, window, v.end, lse2,
                                   positions);
  } else {
    score_weights_by_position<Config, kMasked>(s, words, backward.units, scores, all, lse2);
  }
}

// As attention_backward's.
template <class Config>
__device__ __forceinline__ void AttentionBlockBackward<Config>::scores(
    const VisitCursor& at, unsigned q, typename Shape::Operands& ds,
    typename Shape::DvAccumulators& dv) const {
  const unsigned dout = shared + Smem::kDoutAt;
  const unsigned delta =
      shared + Smem::kRowsAt + Smem::kRow + 4 * (Shape::first_query() + Shape::lane() % 4 * 2);
  const bool full = queue.is(warp_uniform(at.visit), VisitKind::plain);
  typename Shape::Scores s = {}, dp = {};
  typename Shape::Operands p_words;
  add_scores<Config, Config::kWidth>(shared, q, s);
  if (full) {
    make_p<false>(at, s, p_words);
  } else {
    make_p<true>(at, s, p_words);
  }
  if constexpr (Shape::kExchange) {
    exchange<Config>(p_words, shared + Smem::kPAt);
  } else {
    add_products<Config, typename Shape::ValueShare, Config::kValueWidth>(p_words, 0, dout,
                                                                          p.value_dim, dv);
  }
  add_scores<Config, Config::kValueWidth>(shared + Smem::kVAt, dout, dp);
  if (full) {
    score_gradients<Config, false>(s, dp, ds, delta);
  } else {
    score_gradients<Config, true>(s, dp, ds, delta);
  }
  // In float32 each of the warps that share keys has all of ds.
  if (!Shape::kSplit || Shape::kExchange || uniform(Shape::width_warp() == 0)) {
    exchange<Config>(ds, shared + Smem::kDsAt);
  }
}

template <class Config>
__device__ __forceinline__ void AttentionBlockBackward<Config>::dq_step(
    const VisitCursor& at) const {
  // It is computed anew after the product, which leaves no registers for it.
  const auto dq_tile = [&] {
    const int visit = warp_uniform(at.visit);
    float* to = static_cast<float*>(p.dq) +
                backward.query_offset(p.dq_batch_stride, p.dq_token_stride) +
                at.head * p.dq_head_stride;
    if constexpr (Config::kDeterministic) to += tile->slice * p.dq_slice_stride;
    const int row = queue.at(visit) + 16 * Shape::dq_block();
    // In order, the sums are in the workspace.
    constexpr int kAlignment = Config::kDeterministic ? 16 : kFloats;
    return SumTile<typename Shape::DqShare, kAlignment>{
        to, p.dq_token_stride, row, queue.end(visit), p.head_dim, Shape::dq_way()};
  };
  typename Shape::DqAccumulators dq = {};
  if constexpr (Config::kDeterministic) dq_tile().load(dq);
  if constexpr (Config::kRanges) {
    // Keys of other ranges, or of none, lie in the tile as well.
    const int visit = warp_uniform(at.visit), first = queue.first(visit) - tile->first;
    const int last = queue.last(visit) - 1 - tile->first;
    if (uniform(first <= 0 && last >= minimum(kTileN, p.seq_k - tile->first) - 1)) {
      add_dq<Config>(shared + Smem::kDsAt, shared, p.head_dim, dq);
    } else {
      add_dq<Config>(shared + Smem::kDsAt, shared, p.head_dim, dq, KeysBetween{first, last});
    }
  } else {
    add_dq<Config>(shared + Smem::kDsAt, shared, p.head_dim, dq);
  }
  if constexpr (Config::kDeterministic) {
    dq_tile().store(dq);
  } else {
#pragma unroll
    for (int b = 0; b < Shape::kDqRowBlocks; ++b) {
#pragma unroll
      for (int n = 0; n < 2 * Shape::DqShare::kBlocks; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) dq[b][n][i] *= p.softmax_scale;
      }
    }
    dq_tile().add(dq);
  }
}

// One block of rows of one head; copies and barriers are attention_backward's. The queue grows
// behind the first barrier of a visit's first head: its new slot is read after another barrier, and
// was read for the last time before this one.
template <class Config>
__device__ __forceinline__ void AttentionBlockBackward<Config>::step(
    const VisitCursor& at, const VisitCursor& next, int turn, typename Shape::DkAccumulators& dk,
    typename Shape::DvAccumulators& dv) const {
  const unsigned q = backward.q_tile(turn);
  const bool more = !queue.is(warp_uniform(next.visit), VisitKind::end);
  typename Shape::Operands ds;
  copy_async_wait<0>();
  __syncthreads();  // all is there for all; all have left ds, and with two stages the other Q
  if constexpr (Config::kStages == 2) {
    if (more) copy_q(next, turn + 1);
    copy_async_commit();
  }
  if (uniform(at.head == tile->first_head && thread_index() < 32) &&
      !queue.is(warp_uniform(at.visit) + 1, VisitKind::end)) {
    walk().append(at.visit + 2);
  }
  scores(at, q, ds, dv);
  __syncthreads();  // p and ds are there for all; without exchange, all have left dout
  if constexpr (Shape::kExchange) {
    add_products<Config, typename Shape::ValueShare, Config::kValueWidth>(
        ds, shared + Smem::kPAt, shared + Smem::kDoutAt, p.value_dim, dv);
  } else {
    if (more) copy_dout(next);
    copy_async_commit();
  }
  add_products<Config, typename Shape::KeyShare, Config::kWidth>(ds, shared + Smem::kDsAt, q,
                                                                 p.head_dim, dk);
  if constexpr (Shape::kExchange || Config::kStages == 1) {
    __syncthreads();  // all have left Q, and with an exchange dout
    if (more) {
      if constexpr (Shape::kExchange) copy_dout(next);
      if constexpr (Config::kStages == 1) copy_q(next, turn + 1);
    }
    copy_async_commit();
  }
  dq_step(at);
}

// dk and dv travel with the block and hold what other ranks have added.
template <class Config>
__device__ __forceinline__ void AttentionBlockBackward<Config>::store(
    const typename Shape::DkAccumulators& dk, const typename Shape::DvAccumulators& dv) const {
  const int way = Shape::width_warp(), head = tile->kv_head;
  float* to_k = static_cast<float*>(p.dk) +
                backward.key_offset(p.dk_batch_stride, p.dk_token_stride) + head * p.dk_head_stride;
  float* to_v = static_cast<float*>(p.dv) +
                backward.key_offset(p.dv_batch_stride, p.dv_token_stride) + head * p.dv_head_stride;
  const int row = tile->first + Shape::key_block() * 16;
  const auto add = [&](float* at, float first, float second) {
    float there[2] = {0.0f, 0.0f};
    if (!all.first_keys) load_pair<kFloats>(at, there[0], there[1]);
    store_pair<kFloats>(at, there[0] + first, there[1] + second);
  };
  SumTile<typename Shape::KeyShare>{to_k, p.dk_token_stride, row, p.seq_k, p.head_dim, way}
      .template each<Shape::kRowBlocks>([&](float* at, int b, int n, int half) {
        add(at, dk[b][n][2 * half] * p.softmax_scale, dk[b][n][2 * half + 1] * p.softmax_scale);
      });
  SumTile<typename Shape::ValueShare>{to_v, p.dv_token_stride, row, p.seq_k, p.value_dim, way}
      .template each<Shape::kRowBlocks>([&](float* at, int b, int n, int half) {
        add(at, dv[b][n][2 * half], dv[b][n][2 * half + 1]);
      });
}

// One tile of keys. Where no row sees them, nothing is read, and written only what is new.
template <class Config>
__device__ __forceinline__ void AttentionBlockBackward<Config>::run() const {
  if (uniform(thread_index() < 32)) {
    walk().start();
    walk().append(0);
    walk().append(1);
  }
  __syncthreads();  // the first visits are known to all
  const bool any = !queue.is(0, VisitKind::end);
  if (!any && !all.first_keys) return;
  typename Shape::DkAccumulators dk = {};
  typename Shape::DvAccumulators dv = {};
  VisitCursor at = {tile->first_head, 0};
  if (any) {
    backward.copy_keys();
    copy_q(at, 0);
    copy_dout(at);
    copy_async_commit();
  }
#pragma unroll 1
  for (int turn = 0; !queue.is(warp_uniform(at.visit), VisitKind::end); ++turn) {
    VisitCursor next = {at.head + 1, at.visit};
    if (next.head == tile->end_head) next = {tile->first_head, at.visit + 1};
    step(at, next, turn, dk, dv);
    at = next;
  }
  store(dk, dv);
}

// The tiles of keys of one slice: every slices-th of a head.
template <class Config>
__device__ __forceinline__ void block_backward_slice(const AttentionBlockBackward<Config>& work,
                                                     unsigned at) {
  const AttentionBackwardParams& p = work.p;
  volatile KeyTile* const tile = work.tile;
  const int slices = p.slices, slice = static_cast<int>(at % slices);
  const bool lead = threadIdx.x == 0;
  if (lead) key_tile_begin<Config>(p, at / slices, slice, tile);
#pragma unroll 1
  for (long long first = static_cast<long long>(slice) * Config::kTileN; first < p.seq_k;
       first += static_cast<long long>(slices) * Config::kTileN) {
    if (lead) tile->first = static_cast<int>(first);
    __syncthreads();  // the tile is there for all
    work.run();
    __syncthreads();  // all have left the tile, its keys and the queue
  }
}

template <class Config>
__device__ void attention_block_backward(const AttentionBlockBackwardParams& p) {
  static_assert(!Config::kPacked && !Config::kHeadsApart, "not of a block step");
  extern __shared__ __align__(1024) char shared[];
  const AttentionBlockBackward<Config> work(p, shared);
  if constexpr (Config::kPersistent) {
    const AttentionBackwardParams& b = p.backward;
    take_turns(work.queue, static_cast<unsigned>(b.slices) * b.kv_heads * b.sequences,
               [&](unsigned at) { block_backward_slice(work, at); });
  } else {
    block_backward_slice(work, blockIdx.x);
  }
}

}  // namespace lathe
