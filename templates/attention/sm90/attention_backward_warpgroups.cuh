// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_backward_warpgroups: attention_backward.cuh's results, by warpgroups with roles
// (sm_90a).
//
//   s^T = k q^T,  dp^T = v dout^T                    64 keys of a warpgroup by kTileM queries
//   p = exp(x - lse),  ds = p (dp - delta)           in registers, as the portable kernel has them
//   dv += p^T dout,  dk += ds^T q                    A: the registers of p and ds as they stand
//   dq  = ds k                                       A: ds of all keys, through shared memory
//
// A block has 128 keys and two warpgroups that own 64 of them each, with dk and dv in registers. It
// walks the blocks of queries that see its keys. A third warpgroup copies: one thread q and dout by
// tensor maps into a ring of kStages, one warp lse2 and delta. Of dq's 64 x 128 or 128 x 64 sums a
// warpgroup has a part of 64 x 64, which it adds to a tile in memory (dq_tiles.cuh), in no order
// or, with kDeterministic, in that of the keys (dq_order.cuh), which two more warps keep; of
// 64 x 192 each has 32 columns of the third part too.
//
// Products run beside the warps that ask for them, and the tensor cores should always have some. A
// warpgroup asks for dv before it computes ds, for dk before it gives others ds and waits for
// theirs, and for the scores of the next block before it waits for dq.
#pragma once
#include "attention/sm90/dq_turns.cuh"
#include "attention/sm90/gradient_consumer.cuh"
#include "attention/sm90/gradients_by_columns.cuh"
#include "attention/sm90/register_split.cuh"

namespace lathe {

// The visits of a tile of keys by cursor. With a mask_mod the visit lies beside its queries in the
// ring, and the cursor stays where it is.
template <class Config>
struct CursorQueries {
  using Consumer = GradientConsumer<Config>;
  using Visit = QueryCursor;
  using State = typename Consumer::State;
  using Dq = typename Consumer::Dq;
  static constexpr bool kListed = HasMaskMod<Config>::kValue, kKnownAhead = !kListed;
  static constexpr bool kReadsFullAgain = Consumer::kTight;
  static constexpr int kN = Config::kTileN;
  // Each warpgroup has a part of dq; if one is left over, the two share it.
  static constexpr bool kShared = Dq::kParts % 2 == 1;

  const AttentionBackwardWarpgroupsParams& p;
  const GradientRing<Config> ring;
  volatile KeyTile* const tile;
  const GradientVisits<Config> visits;
  float* const kept_dq_sums;  // computed ahead, unless registers are tight

  __device__ __forceinline__ CursorQueries(const AttentionBackwardWarpgroupsParams& params,
                                           const GradientRing<Config>& shared_ring,
                                           volatile KeyTile* key_tile)
      : p(params),
        ring(shared_ring),
        tile(key_tile),
        visits{params.backward, key_tile},
        kept_dq_sums(lane_dq_sums()) {}

  // The block of queries that is in the ring, its number as index.
  __device__ __forceinline__ QueryCursor queries(const QueryCursor& at, const State& state) const {
    if constexpr (kListed) return ring.visit_cursor(state.stage);
    return at;
  }
  __device__ __forceinline__ QueryCursor next(const QueryCursor& at) const {
    return visits.next(at);
  }
  __device__ __forceinline__ bool full(const QueryCursor& at, const State& state) const {
    if constexpr (kListed) return ring.visit_full(state.stage);
    return uniform(visits.full(at));
  }
  __device__ __forceinline__ bool more(const QueryCursor& at, const State& state) const {
    if constexpr (kListed) return ring.more_visits(state.stage);
    return uniform(visits.there(visits.next(at)));
  }
  __device__ __forceinline__ void find_scores(const Consumer& c, const QueryCursor& visit,
                                              const State& state, int half,
                                              ScoreTile& scores) const {
    const QueryCursor at = queries(visit, state);
    scores.key = tile->first + c.thread() / 32 * 16 + c.thread() % 32 / 4;
    scores.lane_query = c.lane_query();
    scores.query = at.index * Config::kTileM + half * Consumer::kQueries;
    if constexpr (Config::kAlibi) {
      const AttentionBackwardParams& b = p.backward;
      scores.offset = tile->keys - tile->rows;
      scores.slope = load_element(static_cast<const float*>(b.alibi_slopes) +
                                  tile->sequence * b.alibi_batch_stride + at.head);
    }
    if constexpr (Consumer::kMods) scores.sequence = tile->sequence, scores.head = at.head;
  }
  template <class Scores, class Operands, class Lse>
  __device__ __forceinline__ void apply_masked(const Consumer& c, const State&, Scores& s,
                                               Operands& p_words, const ScoreTile& scores,
                                               const Lse& lse) const {
    score_weights<Config, true>(s, p_words, c.units, scores, tile->window(), tile->rows, lse);
  }
  __device__ __forceinline__ unsigned keys_of_dq(const Consumer&, const State&) const {
    return ring.k();
  }
  // The lane's address in the tile of dq.
  __device__ __forceinline__ float* dq_target(const Consumer&, const QueryCursor& visit,
                                              const State& state) const {
    const QueryCursor at = queries(visit, state);
    float* const sums = Consumer::kTight ? lane_dq_sums() : kept_dq_sums;
    return sums + (static_cast<long long>(at.head) * p.dq_tiles + at.index) * Dq::kFloats;
  }
  __device__ __forceinline__ void add_dq(const Consumer& c, float* to, const State& state,
                                         const float (&dq)[32]) const {
    if (p.backward.dq == nullptr) return;
    if constexpr (Config::kDeterministic) mbarrier_wait(ring.dq_turn(state.stage), state.phase);
    if (is_first_of_dq(state)) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (Dq::has_group(c.group(), n)) put_four(to + n * Dq::kGroupFloats, dq + 4 * n);
      }
    } else {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (Dq::has_group(c.group(), n)) add_four(to + n * Dq::kGroupFloats, dq + 4 * n);
      }
    }
    if constexpr (!kShared) tell_dq_added(state);
  }
  // True if nobody has added before: the first block of keys stores, so that the sums are not
  // zeroed. The warp's turn has come.
  __device__ __forceinline__ bool is_first_of_dq(const State& state) const {
    if constexpr (Config::kDeterministic) {
      return uniform(load_shared_word(ring.dq_first(state.stage)) != 0);
    } else {
      return false;
    }
  }
  // The warp has added all that it has of the block's dq.
  __device__ __forceinline__ void tell_dq_added(const State& state) const {
    if constexpr (Config::kDeterministic) {
      __syncwarp();
      Consumer::arrive(ring.dq_added(state.stage));
    }
  }
  // Each warpgroup has 32 columns of the part of dq that both share.
  __device__ __forceinline__ void add_shared_dq(const Consumer& c, const QueryCursor& at,
                                                const State& state) const {
    float dq[16];
    const WgmmaTile a = wgmma_rows<kN * 128>(ring.ds(state.stage));
    const WgmmaTile b =
        wgmma_rows<kN * 128>(ring.k() + (Dq::kParts - 1) * kN * 128 + c.group() * 64);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kN / 16; ++step) {
      Wgmma<32, true, typename Config::Element>::run_turned(dq, a.at(step * 16 * 128),
                                                            b.at(step * 16 * 128), step > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_fence_operands(dq);
    if (p.backward.dq == nullptr) return;
    // dq_target() is in the warpgroup's own part.
    constexpr int kPart = Dq::kPartFloats, kHalfPart = kPart / 2;
    float* const to =
        dq_target(c, at, state) + (Dq::kParts - 1) * kPart - c.group() * (kPart - kHalfPart);
    const bool first = is_first_of_dq(state);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (first) {
        put_four(to + n * Dq::kGroupFloats, dq + 4 * n);
      } else {
        add_four(to + n * Dq::kGroupFloats, dq + 4 * n);
      }
    }
    tell_dq_added(state);
  }
  // The lane's address in the tiles of the sequence, of head 0.
  __device__ __forceinline__ float* lane_dq_sums() const {
    return static_cast<float*>(p.backward.dq) +
           first_dq_tile_of_head<Config>(p, tile) * Dq::kFloats +
           threadIdx.x / 128 * Dq::kPartFloats + threadIdx.x % 128 * 4;
  }
};

template <class Config>
struct BackwardConsumer {
  GradientConsumer<Config> consumer;
  const CursorQueries<Config> source;

  // Stores dk and dv.
  __device__ __forceinline__ void store() const {
    using Stored = typename Choose<Config::kHeadsApart, float, typename Config::Element>::Type;
    const AttentionBackwardParams& b = consumer.p;
    volatile KeyTile* const tile = consumer.tile;
    const int keys = tile->keys, written = tile->written;
    const int head = Config::kHeadsApart ? tile->first_head : tile->kv_head;
    const int row = tile->first + thread_index() / 32 * 16;
    const auto start = [&](long long batch_stride, long long token_stride) {
      return Config::kPacked ? tile->start_k * token_stride : tile->sequence * batch_stride;
    };
    if (b.dk) {
      Stored* to = static_cast<Stored*>(b.dk) + start(b.dk_batch_stride, b.dk_token_stride) +
                   head * b.dk_head_stride;
      store_rows<ColumnShare<Config::kWidth, 1>>(consumer.dk[0], 0, b.softmax_scale, to,
                                                 b.dk_token_stride, row, keys, written, b.head_dim);
    }
    if (b.dv) {
      Stored* to = static_cast<Stored*>(b.dv) + start(b.dv_batch_stride, b.dv_token_stride) +
                   head * b.dv_head_stride;
      store_rows<ColumnShare<Config::kValueWidth, 1>>(
          consumer.dv[0], 0, 1.0f, to, b.dv_token_stride, row, keys, written, b.value_dim);
    }
  }
  __device__ __forceinline__ void run() {
    const QueryCursor first = source.visits.begin();
    if (uniform(source.visits.there(first))) consumer.walk(source, first);
    store();
  }
};

template <class Config>
__device__ void attention_backward_warpgroups(const AttentionBackwardWarpgroupsParams& p) {
  extern __shared__ __align__(1024) char shared[];
  const GradientRing<Config> ring = {shared_address(shared)};
  volatile KeyTile* const tile = reinterpret_cast<volatile KeyTile*>(
      shared + AttentionBackwardWarpgroupsSmem<Config>::kTileAt);
  constexpr unsigned kConsumers = kConsumerThreads<Config>;
  if (threadIdx.x == kConsumers) {
    const TicketTile ticket = ticket_tile<Config>(p);
    key_tile_begin<Config>(p.backward, ticket.sequence_head, ticket.slice, tile);
    key_tile_at<Config>(ticket.slice * Config::kTileN, tile);
    ring.init();
  }
  __syncthreads();  // the tile and the barriers are there for all
  const bool work = tile->first < tile->written;
  if (threadIdx.x >= kConsumers) {
    setmaxnreg_dec<kBackwardConsumers.producer>();
    if (work && threadIdx.x == kConsumers) copy_tiles<Config>(p, ring, tile);
    if (work && threadIdx.x / 32 == kConsumers / 32 + 1) {
      copy_row_values<Config>(p.backward, ring, tile);
    }
    if (Config::kDeterministic && work && p.backward.dq != nullptr) {
      const DqTurns<Config> turns = {p, ring, tile};
      if constexpr (HasMaskMod<Config>::kValue) {
        if (threadIdx.x / 32 == kConsumers / 32 + 2) turns.take_listed();
      } else {
        if (threadIdx.x == kConsumers + 64) turns.take();
      }
      if (threadIdx.x == kConsumers + 96) turns.pass();
    }
  } else {
    setmaxnreg_inc<kBackwardConsumers.consumer>();
    if (work) {
      if constexpr (kByColumns<Config>) {
        ColumnConsumer<Config>(p, ring, tile).run();
      } else {
        BackwardConsumer<Config>{{p.backward, ring, tile}, {p, ring, tile}}.run();
      }
    }
  }
}

}  // namespace lathe
