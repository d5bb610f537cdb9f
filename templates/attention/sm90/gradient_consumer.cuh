// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A warpgroup that computes the backward's products: one loop over the blocks of queries that a
// tile of keys visits, whoever names them. The kernels give it a source of visits (CursorQueries,
// MessageQueries):
//
//   Visit, next(at)          what the walk keeps of a visit, and the one behind it
//   kKnownAhead              whether a visit is known before its queries have landed
//   full(at, state)          true if no mask cuts the block
//   more(at, state)          true if another visit follows
//   find_scores(...)         says where the visit's scores lie
//   apply_masked(...)        makes P of scores that a mask cuts
//   keys_of_dq(c, state)     the keys that make dq: the tile's, or a copy of the visit's alone
//   dq_target(c, at, state)  says where dq is added,
//   add_dq(c, target, ...)   and adds it there
//   kShared, add_shared_dq   the part of dq that two warpgroups share, if there is one
#pragma once
#include "attention/backward/gradient_sums.cuh"
#include "attention/backward/score_gradients.cuh"
#include "attention/sm90/dq_tiles.cuh"
#include "attention/sm90/gradient_ring.cuh"
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

template <class Config>
struct GradientConsumer {
  using Element = typename Config::Element;
  using Ring = GradientRing<Config>;
  using Dq = DqTile<Config>;
  static constexpr int kM = Config::kTileM, kN = Config::kTileN;
  static constexpr int kWidth = Config::kWidth, kValueWidth = Config::kValueWidth;
  static constexpr int kThreads = kConsumerThreads<Config>;
  static constexpr bool kMods = GradientUnits<Config>::kMods;
  static constexpr int kQueries = QueriesOfScores<Config>::kValue;
  static constexpr int kHalves = kM / kQueries;
  static_assert(kN == kThreads / 2, "64 keys a warpgroup");
  static_assert(Config::kStages == 2, "ds has as many");
  static_assert(Dq::kParts / 2 == kThreads / 256, "a part of dq a warpgroup");

  // A thread has 240 registers: dk and dv take half of the widths, s, dp and p 80 or 40.
  static constexpr bool kTight =
      (kScoresBent<Config> && kWidth + kValueWidth > 128) || kWidth + kValueWidth > 256 || kMods;

  // Where there are registers lse2 is read while the scores are under way. Behind them it would
  // queue with what the product of dp reads.
  static constexpr bool kLseAhead = !kTight && kWidth + kValueWidth <= 128;
  using Lse = typename Choose<kLseAhead, RowValues<kQueries / 8>, unsigned>::Type;

  using Scores = float[1][kQueries / 8][4];
  using Operands = Accumulated<Element, kQueries / 8>[1];
  using State = PipelineState<Config::kStages>;

  const AttentionBackwardParams& p;
  const Ring ring;
  volatile KeyTile* const tile;
  const GradientUnits<Config> units;
  // Computed ahead, because there is no time where they are used, unless registers are tight.
  const int kept_thread, kept_group;
  float dk[1][kWidth / 8][4] = {}, dv[1][kValueWidth / 8][4] = {};

  __device__ __forceinline__ GradientConsumer(const AttentionBackwardParams& params,
                                              const Ring& shared_ring, volatile KeyTile* key_tile)
      : p(params),
        ring(shared_ring),
        tile(key_tile),
        units(params),
        kept_thread(threadIdx.x),
        kept_group(warp_uniform(threadIdx.x / 128)) {}

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

  // sums = own 64 rows of `keys` times kQueries rows of a stage, those of a half: s^T or dp^T. Who
  // has the first half has all of them.
  template <int kColumns>
  __device__ __forceinline__ void start_scores(unsigned keys, unsigned queries, int half,
                                               unsigned full, unsigned phase, Scores& sums) const {
    const WgmmaTile a = wgmma_columns(keys + group() * 64 * 128);
    const WgmmaTile b = wgmma_columns(queries + half * kQueries * 128);
    if (half == 0) mbarrier_wait(full, phase);
    start_rows_by_rows<Element, kColumns, kN, kM>(a, b,
                                                  reinterpret_cast<float(&)[kQueries / 2]>(sums));
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
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kQueries / 16; ++step) {
      Wgmma<kColumns, true, Element>::run(reinterpret_cast<float(&)[kColumns / 2]>(sums),
                                          words[0].word[step], b.at(step * 16 * 128), 1);
    }
    wgmma_commit();
  }
  // dq = ds k of the warpgroup's part, over all keys of a tile.
  __device__ __forceinline__ void start_dq(unsigned ds, unsigned keys, float (&dq)[32]) const {
    const int part = group();
    const WgmmaTile a = wgmma_rows<kN * 128>(ds + Dq::row(part) / 64 * kN * 128);
    const WgmmaTile b = wgmma_rows<kN * 128>(keys + Dq::column(part) / 64 * kN * 128);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kN / 16; ++step) {
      Wgmma<64, true, Element>::run_turned(dq, a.at(step * 16 * 128), b.at(step * 16 * 128),
                                           step > 0);
    }
    wgmma_commit();
  }

  // Scores that are under way become P, while the product of dp runs. A block that masks cut in
  // part is told apart from one that is full.
  template <class Source>
  __device__ __forceinline__ void make_p(const Source& source, const typename Source::Visit& at,
                                         bool full, const State& state, int half, Scores& s,
                                         Scores& dp, Operands& p_words) const {
    ScoreTile scores;
    source.find_scores(*this, at, state, half, scores);
    const unsigned rows = ring.rows(state.stage) + 4 * kQueries * half + 4 * lane_query();
    start_dp(state, half, dp);
    const Lse lse(rows);
    wgmma_wait<1>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kQueries / 2]>(s));
    if (Source::kReadsFullAgain ? source.full(at, state) : full) {
      score_weights<Config, false>(s, p_words, units, scores, KeyWindow{}, 0, lse,
                                   UnclampedPositions{});
    } else {
      source.apply_masked(*this, state, s, p_words, scores, lse);
    }
    wgmma_wait<0>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kQueries / 2]>(dp));
  }

  // ds, of which other warpgroups get a copy [keys][queries], and the products that sum up: dv and
  // dk of the own keys, each as soon as it can begin, and, when ds of the whole block is there, the
  // own part of dq.
  template <int kHalf, class Source>
  __device__ __forceinline__ void start_gradients(const Source& source, bool full,
                                                  const State& state, const Scores& s,
                                                  const Scores& dp, const Operands& p_words,
                                                  float (&dq)[32]) {
    Operands ds;
    const unsigned rows = ring.rows(state.stage) + 4 * (kM + kQueries * kHalf) + 4 * lane_query();
    start_gradient<kValueWidth>(p_words, ring.dout(state.stage) + kHalf * kQueries * 128, dv);
    if (full) {
      score_gradients<Config, false>(s, dp, ds, rows);
    } else {
      score_gradients<Config, true>(s, dp, ds, rows);
    }
    start_gradient<kWidth>(ds, ring.q(state.stage) + kHalf * kQueries * 128, dk);
    // The other stage may still be read by the other warpgroup. This one is free: both have waited
    // for the dq of two blocks ago before they came to the last barrier.
    constexpr int kFirst = kHalf * kQueries / 16, kSteps = kQueries / 16;
    const unsigned to = ring.ds(state.stage) + kFirst / 4 * kN * 128 +
                        panel_offset(thread() / 32 * 16 + thread() % 16, thread() % 32 / 16);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      store_matrix(to ^ ((kFirst % 4 + step) * 32), ds[0].word[step]);
    }
    unsigned keys = 0;
    if constexpr (kHalf == kHalves - 1) {
      keys = source.keys_of_dq(*this, state);
      fence_shared_writes();  // ahead of the barrier behind which wgmma reads ds and keys
    }
    if constexpr (kHalf == kHalves - 1) {
      named_barrier_sync<1, kThreads>();  // ds of all keys is there
      start_dq(ring.ds(state.stage), keys, dq);
    }
  }
  // To the compiler: the products of dv and dk that were waited for are there.
  __device__ __forceinline__ void fence_gradients() {
    wgmma_fence_operands(reinterpret_cast<float(&)[kValueWidth / 2]>(dv));
    wgmma_fence_operands(reinterpret_cast<float(&)[kWidth / 2]>(dk));
  }
  // Waits for dq, behind which kPending products are under way, and adds it.
  template <int kPending, class Source>
  __device__ __forceinline__ void finish_dq(const Source& source, const typename Source::Visit& at,
                                            const State& state, float (&dq)[32]) {
    const auto target = source.dq_target(*this, at, state);
    wgmma_wait<kPending>();
    wgmma_fence_operands(dq);
    source.add_dq(*this, target, state, dq);
    if constexpr (Source::kShared) source.add_shared_dq(*this, at, state);
  }

  // All but the last kQueries queries of a block: their sums, and the scores of the next ones.
  // While dk's product runs, the next scores are asked for.
  template <int kHalf = 0, class Source>
  __device__ __forceinline__ void first_halves(const Source& source,
                                               const typename Source::Visit& at, bool full,
                                               const State& state, Scores& s, Scores& dp,
                                               Operands& p_words, float (&dq)[32]) {
    if constexpr (kHalf < kHalves - 1) {
      start_gradients<kHalf>(source, full, state, s, dp, p_words, dq);
      start_s(state, kHalf + 1, s);
      make_p(source, at, full, state, kHalf + 1, s, dp, p_words);
      first_halves<kHalf + 1>(source, at, full, state, s, dp, p_words, dq);
    }
  }
  // Walks all visits of a tile that has one. Where the loop begins and ends no product is under
  // way: the compiler follows none around it or out of it. Outside of it masks are applied to full
  // blocks too, which saves code.
  template <class Source>
  __device__ __forceinline__ void walk(const Source& source, typename Source::Visit at) {
    constexpr int kLast = kHalves - 1;
    State state;
    Scores s, dp;
    float dq[32];
    Operands p_words;
    bool full = false, more = false;
    if constexpr (Source::kKnownAhead) {
      full = source.full(at, state), more = source.more(at, state);
    }
    start_s(state, 0, s);
    if constexpr (!Source::kKnownAhead) {
      full = source.full(at, state), more = source.more(at, state);
    }
    make_p(source, at, false, state, 0, s, dp, p_words);
#pragma unroll 1
    while (more) {
      first_halves(source, at, full, state, s, dp, p_words, dq);
      start_gradients<kLast>(source, full, state, s, dp, p_words, dq);
      typename Source::Visit next = at;
      if constexpr (Source::kKnownAhead) {
        next = source.next(at);
        full = source.full(next, state), more = source.more(next, state);
      }
      State ahead = state;
      ahead.next();
      // dv and dk are there, and their operands' registers free; dq may be on its way.
      wgmma_wait<1>();
      fence_gradients();
      arrive(ring.dout_empty(state.stage));
      // The next scores run beside the sums of dq, unless a shared part of it has their registers.
      if constexpr (Source::kShared) {
        finish_dq<0>(source, at, state, dq);
        start_s(ahead, 0, s);
      } else {
        start_s(ahead, 0, s);
        finish_dq<1>(source, at, state, dq);
      }
      arrive(ring.q_empty(state.stage));  // what says where dq is added lies beside q
      if constexpr (!Source::kKnownAhead) {
        full = source.full(next, ahead), more = source.more(next, ahead);
      }
      make_p(source, next, full, ahead, 0, s, dp, p_words);
      at = next, state = ahead;
    }
    first_halves(source, at, false, state, s, dp, p_words, dq);
    start_gradients<kLast>(source, false, state, s, dp, p_words, dq);
    finish_dq<0>(source, at, state, dq);
    fence_gradients();
  }
};

}  // namespace lathe
