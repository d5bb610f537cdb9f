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
// Products run beside the warps that ask for them. A warpgroup asks for the scores of the next
// block before it waits for the last products of this one: while it adds to dq and computes p and
// ds, the tensor cores have work.
#pragma once
#include "attention/backward/gradient_sums.cuh"
#include "attention/backward/score_gradients.cuh"
#include "attention/sm90/dq_tiles.cuh"
#include "attention/sm90/dq_turns.cuh"
#include "attention/sm90/gradient_ring.cuh"
#include "attention/sm90/gradients_by_columns.cuh"
#include "attention/sm90/register_split.cuh"
#include "common/wgmma.cuh"

namespace lathe {

// How many queries have scores at a time where a spec doesn't say it: 64, or 32 where dk and dv
// leave no more registers.
template <class Config, class = void>
struct QueriesOfScores {
  static constexpr int kValue = Config::kWidth + Config::kValueWidth > 256 ? 32 : 64;
};
template <class Config>
struct QueriesOfScores<Config, typename Exists<decltype(Config::kQueries)>::Type> {
  static constexpr int kValue = Config::kQueries;
};

// A warpgroup that multiplies.
template <class Config>
struct GradientConsumer {
  using Element = typename Config::Element;
  using Ring = GradientRing<Config>;
  using Dq = DqTile<Config>;
  static constexpr int kM = Config::kTileM, kN = Config::kTileN;
  static constexpr int kWidth = Config::kWidth, kValueWidth = Config::kValueWidth;
  static constexpr int kThreads = kConsumerThreads<Config>;
  static constexpr bool kMods = GradientUnits<Config>::kMods;
  static constexpr bool kListed = HasMaskMod<Config>::kValue;
  static constexpr int kQueries = QueriesOfScores<Config>::kValue;
  static constexpr int kHalves = kM / kQueries;
  // Each warpgroup has a part of dq; if one is left over, the two share it.
  static constexpr bool kShared = Dq::kParts % 2 == 1;
  static_assert(kN == kThreads / 2, "64 keys a warpgroup");
  static_assert(Config::kStages == 2, "ds has as many");
  static_assert(Dq::kParts / 2 == kThreads / 256, "a part of dq a warpgroup");

  // A thread has 240 registers: dk and dv take half of the widths, s, dp and p 80 or 40.
  static constexpr bool kTight =
      (Config::kSoftcap && kWidth + kValueWidth > 128) || kWidth + kValueWidth > 256 || kMods;

  using Scores = float[1][kQueries / 8][4];
  using Operands = Accumulated<Element, kQueries / 8>[1];
  using State = PipelineState<Config::kStages>;

  const AttentionBackwardWarpgroupsParams& p;
  const Ring ring;
  volatile KeyTile* const tile;
  const GradientVisits<Config> visits;
  const GradientUnits<Config> units;
  // Computed ahead, because there is no time where they are used, unless registers are tight.
  const int kept_thread, kept_group;
  float* const kept_dq_sums;
  float dk[1][kWidth / 8][4] = {}, dv[1][kValueWidth / 8][4] = {};

  __device__ __forceinline__ GradientConsumer(const AttentionBackwardWarpgroupsParams& params,
                                              const Ring& shared_ring, volatile KeyTile* key_tile)
      : p(params),
        ring(shared_ring),
        tile(key_tile),
        visits{params.backward, key_tile},
        units(params.backward),
        kept_thread(threadIdx.x),
        kept_group(warp_uniform(threadIdx.x / 128)),
        kept_dq_sums(lane_dq_sums()) {}

  __device__ __forceinline__ int thread() const { return kTight ? thread_index() : kept_thread; }
  // The warpgroup's number says which keys and which part of dq it has.
  __device__ __forceinline__ int group() const {
    return kTight ? warp_uniform(threadIdx.x / 128) : kept_group;
  }
  // The lane's first column of scores.
  __device__ __forceinline__ int lane_query() const { return thread() % 4 * 2; }

  static __device__ __forceinline__ void arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
  }

  // A block of queries that is in the ring, its number as index.
  __device__ __forceinline__ QueryCursor queries(const QueryCursor& at, const State& state) const {
    if constexpr (kListed) return ring.visit_cursor(state.stage);
    return at;
  }
  __device__ __forceinline__ bool is_full(const QueryCursor& at, const State& state) const {
    if constexpr (kListed) return ring.visit_full(state.stage);
    return uniform(visits.full(at));
  }

  // sums = own 64 rows of `keys` times kQueries rows of a stage, those of a half: s^T or dp^T. Who
  // has the first half has all of them.
  template <int kColumns>
  __device__ __forceinline__ void start_scores(unsigned keys, unsigned queries, int half,
                                               unsigned full, unsigned phase, Scores& sums) const {
    const WgmmaTile a = wgmma_columns(keys + group() * 64 * 128);
    const WgmmaTile b = wgmma_columns(queries + half * kQueries * 128);
    if (half == 0) mbarrier_wait(full, phase);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
      const unsigned panel = step / 4, inside = step % 4 * 32;
      Wgmma<kQueries, false, Element>::run(reinterpret_cast<float(&)[kQueries / 2]>(sums),
                                           a.at(panel * kN * 128 + inside),
                                           b.at(panel * kM * 128 + inside), step > 0);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void start_s(const State& state, int half, Scores& s) const {
    start_scores<kWidth>(ring.k(), ring.q(state.stage), half, ring.q_full(state.stage), state.phase,
                         s);
  }
  __device__ __forceinline__ void start_dp(const State& state, int half, Scores& dp) const {
    start_scores<kValueWidth>(ring.v(), ring.dout(state.stage), half, ring.dout_full(state.stage),
                              state.phase, dp);
  }
  // sums += words times the rows of `queries`: dv += p^T dout or dk += ds^T q.
  template <int kColumns>
  __device__ __forceinline__ void start_gradient(const Operands& words, unsigned queries,
                                                 float (&sums)[1][kColumns / 8][4]) const {
    const WgmmaTile b = wgmma_rows<kM * 128>(queries);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < kQueries / 16; ++step) {
      Wgmma<kColumns, true, Element>::run(reinterpret_cast<float(&)[kColumns / 2]>(sums),
                                          words[0].word[step], b.at(step * 16 * 128), 1);
    }
    wgmma_commit();
  }
  // dq = ds k of the warpgroup's part, over all keys.
  __device__ __forceinline__ void start_dq(unsigned ds, float (&dq)[32]) const {
    const int part = group();
    const WgmmaTile a = wgmma_rows<kN * 128>(ds + Dq::row(part) / 64 * kN * 128);
    const WgmmaTile b = wgmma_rows<kN * 128>(ring.k() + Dq::column(part) / 64 * kN * 128);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < kN / 16; ++step) {
      Wgmma<64, true, Element>::run_turned(dq, a.at(step * 16 * 128), b.at(step * 16 * 128),
                                           step > 0);
    }
    wgmma_commit();
  }

  // Scores that are under way become weights, while the product of dp runs. A block that masks cut
  // in part is told apart from one that is full.
  __device__ __forceinline__ void make_p(const QueryCursor& visit, bool full, const State& state,
                                         int half, Scores& s, Scores& dp, Operands& p_words) const {
    const QueryCursor at = queries(visit, state);
    ScoreTile scores;
    scores.key = tile->first + thread() / 32 * 16 + thread() % 32 / 4;
    scores.lane_query = lane_query();
    scores.query = at.index * kM + half * kQueries;
    if constexpr (Config::kAlibi) {
      const AttentionBackwardParams& b = p.backward;
      scores.offset = tile->keys - tile->rows;
      scores.slope = load_element(static_cast<const float*>(b.alibi_slopes) +
                                  tile->sequence * b.alibi_batch_stride + at.head);
    }
    if constexpr (kMods) scores.sequence = tile->sequence, scores.head = at.head;
    const unsigned rows = ring.rows(state.stage) + 4 * kQueries * half + 4 * lane_query();
    start_dp(state, half, dp);
    wgmma_wait<1>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kQueries / 2]>(s));
    if (kTight ? is_full(visit, state) : full) {
      score_weights<Config, false>(s, p_words, units, scores, KeyWindow{}, 0, rows,
                                   UnclampedPositions{});
    } else {
      score_weights<Config, true>(s, p_words, units, scores, tile->window(), tile->rows, rows);
    }
    wgmma_wait<0>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kQueries / 2]>(dp));
  }

  // ds, of which other warpgroups get a copy [keys][queries], and the products that sum up: dv and
  // dk of the own keys and, when ds of the whole block is there, the own part of dq.
  template <int kHalf>
  __device__ __forceinline__ void start_gradients(bool full, const State& state, const Scores& s,
                                                  const Scores& dp, const Operands& p_words,
                                                  float (&dq)[32]) {
    Operands ds;
    const unsigned rows = ring.rows(state.stage) + 4 * (kM + kQueries * kHalf) + 4 * lane_query();
    if (full) {
      score_gradients<Config, false>(s, dp, ds, rows);
    } else {
      score_gradients<Config, true>(s, dp, ds, rows);
    }
    // The other stage may still be read by the other warpgroup. This one is free: both have waited
    // for the dq of two blocks ago before they came to the last barrier.
    constexpr int kFirst = kHalf * kQueries / 16, kSteps = kQueries / 16;
    const unsigned to = ring.ds(state.stage) + kFirst / 4 * kN * 128 +
                        panel_offset(thread() / 32 * 16 + thread() % 16, thread() % 32 / 16);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      store_matrix(to ^ ((kFirst % 4 + step) * 32), ds[0].word[step]);
    }
    // Ahead of the barrier behind which wgmma reads ds.
    if constexpr (kHalf == kHalves - 1) fence_shared_writes();
    start_gradient<kValueWidth>(p_words, ring.dout(state.stage) + kHalf * kQueries * 128, dv);
    if constexpr (kHalf == kHalves - 1) {
      named_barrier_wait<1, kThreads>();  // ds of all keys is there
      start_dq(ring.ds(state.stage), dq);
    }
    start_gradient<kWidth>(ds, ring.q(state.stage) + kHalf * kQueries * 128, dk);
  }
  // All that comes before dk's product is there; that one may still run.
  __device__ __forceinline__ void finish_dv() {
    wgmma_wait<1>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kValueWidth / 2]>(dv));
  }
  // The lane's address in the tile of dq.
  __device__ __forceinline__ float* dq_tile(const QueryCursor& visit, const State& state) const {
    const QueryCursor at = queries(visit, state);
    float* const sums = kTight ? lane_dq_sums() : kept_dq_sums;
    return sums + (static_cast<long long>(at.head) * p.dq_tiles + at.index) * Dq::kFloats;
  }
  __device__ __forceinline__ void finish_dq(const QueryCursor& at, const State& state,
                                            float (&dq)[32]) {
    float* const to = dq_tile(at, state);
    finish_dv();
    wgmma_fence_operands(dq);
    arrive(ring.dout_empty(state.stage));
    if (p.backward.dq == nullptr) return;
    if constexpr (Config::kDeterministic) mbarrier_wait(ring.dq_turn(state.stage), state.phase);
    if (is_first_of_dq(state)) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (Dq::has_group(group(), n)) put_four(to + n * Dq::kGroupFloats, dq + 4 * n);
      }
    } else {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (Dq::has_group(group(), n)) add_four(to + n * Dq::kGroupFloats, dq + 4 * n);
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
  __device__ __forceinline__ void tell_dq_added(const State& state) {
    if constexpr (Config::kDeterministic) {
      __syncwarp();
      arrive(ring.dq_added(state.stage));
    }
  }
  template <int kPending>
  __device__ __forceinline__ void finish_dk() {
    wgmma_wait<kPending>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kWidth / 2]>(dk));
  }

  // Each warpgroup has 32 columns of the part of dq that both share. dk's product is waited for
  // too.
  __device__ __forceinline__ void add_shared_dq(const QueryCursor& at, const State& state) {
    float dq[16];
    const WgmmaTile a = wgmma_rows<kN * 128>(ring.ds(state.stage));
    const WgmmaTile b = wgmma_rows<kN * 128>(ring.k() + (Dq::kParts - 1) * kN * 128 + group() * 64);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < kN / 16; ++step) {
      Wgmma<32, true, Element>::run_turned(dq, a.at(step * 16 * 128), b.at(step * 16 * 128),
                                           step > 0);
    }
    wgmma_commit();
    finish_dk<0>();
    wgmma_fence_operands(dq);
    if (p.backward.dq == nullptr) return;
    // dq_tile() is in the warpgroup's own part.
    constexpr int kPart = Dq::kPartFloats, kHalfPart = kPart / 2;
    float* const to = dq_tile(at, state) + (Dq::kParts - 1) * kPart - group() * (kPart - kHalfPart);
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
  // The next scores run beside the last products of a block, unless a shared part of dq has their
  // registers.
  __device__ __forceinline__ void start_next(const QueryCursor& at, const State& state,
                                             const State& ahead, Scores& s) {
    if constexpr (kShared) {
      add_shared_dq(at, state);
      start_s(ahead, 0, s);
    } else {
      start_s(ahead, 0, s);
      finish_dk<1>();
    }
    arrive(ring.q_empty(state.stage));
  }

  // All but the last kQueries queries of a block: their sums, and the scores of the next ones.
  // While dk's product runs, the next scores are asked for.
  template <int kHalf = 0>
  __device__ __forceinline__ void first_halves(const QueryCursor& at, bool full, const State& state,
                                               Scores& s, Scores& dp, Operands& p_words,
                                               float (&dq)[32]) {
    if constexpr (kHalf < kHalves - 1) {
      start_gradients<kHalf>(full, state, s, dp, p_words, dq);
      finish_dv();
      start_s(state, kHalf + 1, s);
      finish_dk<1>();
      make_p(at, full, state, kHalf + 1, s, dp, p_words);
      first_halves<kHalf + 1>(at, full, state, s, dp, p_words, dq);
    }
  }
  // All blocks of queries. Where the loop begins and ends no product is under way: the compiler
  // follows none around it or out of it. Outside of it masks are applied to full blocks too, which
  // saves code.
  __device__ __forceinline__ void walk(QueryCursor at) {
    constexpr int kLast = kHalves - 1;
    State state;
    Scores s, dp;
    float dq[32];
    Operands p_words;
    bool full = false, more = false;
    if constexpr (!kListed) {
      full = uniform(visits.full(at)), more = uniform(visits.there(visits.next(at)));
    }
    start_s(state, 0, s);
    if constexpr (kListed) {
      full = ring.visit_full(state.stage), more = ring.more_visits(state.stage);
    }
    make_p(at, false, state, 0, s, dp, p_words);
#pragma unroll 1
    while (more) {
      first_halves(at, full, state, s, dp, p_words, dq);
      start_gradients<kLast>(full, state, s, dp, p_words, dq);
      QueryCursor next = at;
      if constexpr (!kListed) {
        next = visits.next(at);
        full = uniform(visits.full(next)), more = uniform(visits.there(visits.next(next)));
      }
      State ahead = state;
      ahead.next();
      finish_dq(at, state, dq);
      start_next(at, state, ahead, s);
      if constexpr (kListed) {
        full = ring.visit_full(ahead.stage), more = ring.more_visits(ahead.stage);
      }
      make_p(next, full, ahead, 0, s, dp, p_words);
      at = next, state = ahead;
    }
    first_halves(at, false, state, s, dp, p_words, dq);
    start_gradients<kLast>(false, state, s, dp, p_words, dq);
    finish_dq(at, state, dq);
    if constexpr (kShared) {
      add_shared_dq(at, state);
    } else {
      finish_dk<0>();
    }
  }

  // The lane's address in the tiles of the sequence, of head 0.
  __device__ __forceinline__ float* lane_dq_sums() const {
    return static_cast<float*>(p.backward.dq) +
           first_dq_tile_of_head<Config>(p, tile) * Dq::kFloats +
           threadIdx.x / 128 * Dq::kPartFloats + threadIdx.x % 128 * 4;
  }

  __device__ __forceinline__ void store() const {
    const AttentionBackwardParams& b = p.backward;
    using Stored = typename Choose<Config::kHeadsApart, float, Element>::Type;
    const int keys = tile->keys, written = tile->written;
    const int head = Config::kHeadsApart ? tile->first_head : tile->kv_head;
    const int row = tile->first + thread_index() / 32 * 16;
    const auto start = [&](long long batch_stride, long long token_stride) {
      return Config::kPacked ? tile->start_k * token_stride : tile->sequence * batch_stride;
    };
    if (b.dk) {
      Stored* to = static_cast<Stored*>(b.dk) + start(b.dk_batch_stride, b.dk_token_stride) +
                   head * b.dk_head_stride;
      store_rows<ColumnShare<kWidth, 1>>(dk[0], 0, b.softmax_scale, to, b.dk_token_stride, row,
                                         keys, written, b.head_dim);
    }
    if (b.dv) {
      Stored* to = static_cast<Stored*>(b.dv) + start(b.dv_batch_stride, b.dv_token_stride) +
                   head * b.dv_head_stride;
      store_rows<ColumnShare<kValueWidth, 1>>(dv[0], 0, 1.0f, to, b.dv_token_stride, row, keys,
                                              written, b.value_dim);
    }
  }

  __device__ __forceinline__ void run() {
    const QueryCursor first = visits.begin();
    if (uniform(visits.there(first))) walk(first);
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
        GradientConsumer<Config>(p, ring, tile).run();
      }
    }
  }
}

}  // namespace lathe
