// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_block_backward_warpgroups: attention_block_backward.cuh's results by ranges, by
// warpgroups with roles (sm_90a).
//
// The roles, the ring and the products are those of attention_backward_warpgroups.cuh. Which rows a
// tile of keys visits follows from ranges in memory: the warp that copies walks them and sends each
// visit along with its queries. dq is added to the caller's rows.
#pragma once
#include "attention/sm90/attention_backward_warpgroups.cuh"
#include "attention/sm90/block_gradient_ring.cuh"

namespace lathe {

// A warpgroup that multiplies.
template <class Config>
struct BlockGradientConsumer : GradientConsumer<Config> {
  using Base = GradientConsumer<Config>;
  using Base::dk;
  using Base::dv;
  using Base::kHalves;
  using Base::kM;
  using Base::kN;
  using Base::kThreads;
  using Base::kValueWidth;
  using Base::kWidth;
  using Base::ring;
  using Base::tile;
  using Base::units;
  using typename Base::Dq;
  using typename Base::Element;
  using typename Base::Operands;
  using typename Base::Ring;
  using typename Base::Scores;
  using typename Base::State;
  using Messages = VisitMessages<Config::kStages>;

  const AttentionBlockBackwardWarpgroupsParams& step;
  const Messages messages;

  __device__ __forceinline__ BlockGradientConsumer(
      const AttentionBlockBackwardWarpgroupsParams& params, const Ring& shared_ring,
      volatile KeyTile* key_tile, const Messages& visit_messages)
      : Base(params.main, shared_ring, key_tile), step(params), messages(visit_messages) {}

  __device__ __forceinline__ unsigned visit_keys() const {
    return ring.shared + AttentionBlockBackwardWarpgroupsSmem<Config>::kVisitKeys;
  }

  // Scores that are under way become weights, while the product of dp runs.
  __device__ __forceinline__ void make_p(bool full, const State& state, int half, Scores& s,
                                         Scores& dp, Operands& p_words) const {
    const unsigned message = messages.of(state);
    ScoreTile scores;
    scores.key = tile->first + this->thread() / 32 * 16 + this->thread() % 32 / 4;
    scores.lane_query = this->lane_query();
    scores.query = messages.at(message) + half * 64;
    if constexpr (Config::kAlibi) {
      const AttentionBackwardParams& b = step.main.backward;
      scores.offset = messages.get(message).offset;
      scores.slope =
          load_element(static_cast<const float*>(b.alibi_slopes) +
                       tile->sequence * b.alibi_batch_stride + messages.word(message, kHeadWord));
    }
    const unsigned rows = ring.rows(state.stage) + 256 * half + 4 * this->lane_query();
    this->start_dp(state, half, dp);
    wgmma_wait<1>();
    wgmma_fence_operands(reinterpret_cast<float(&)[32]>(s));
    if (full) {
      score_weights<Config, false>(s, p_words, units, scores, KeyWindow{}, 0, rows);
    } else {
      const Visit v = messages.get(message);
      const VisitWindow window = {{v.last, v.low, v.high}, v.first, v.last};
      score_weights<Config, true>(s, p_words, units, scores, window, v.end, rows);
    }
    wgmma_wait<0>();
    wgmma_fence_operands(reinterpret_cast<float(&)[32]>(dp));
  }

  // Copies the keys of a visit and zeros in the place of others, when no product reads the copy any
  // more: all have waited for their last one.
  __device__ __forceinline__ void copy_visit_keys(unsigned message) const {
    named_barrier_wait<2, kThreads>();
    const int thread = this->thread();
    const int first = messages.first(message) - tile->first;
    const int last = messages.last(message) - tile->first;
#pragma unroll 1
    for (int at = thread; at < kN * kWidth / 8; at += kThreads) {
      const int row = at / 8 % kN;
      unsigned word[4] = {};
      if (row >= first && row < last) load_shared_words(ring.k() + 16 * at, word);
      store_shared_words(visit_keys() + 16 * at, word);
    }
  }
  // dq = ds k of the warpgroup's part, over the visit's keys.
  __device__ __forceinline__ void start_dq(unsigned ds, unsigned keys, float (&dq)[32]) const {
    const int part = this->group();
    const WgmmaTile a = wgmma_rows<kN * 128>(ds + Dq::row(part) / 64 * kN * 128);
    const WgmmaTile b = wgmma_rows<kN * 128>(keys + Dq::column(part) / 64 * kN * 128);
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < kN / 16; ++i) {
      Wgmma<64, true, Element>::run_turned(dq, a.at(i * 16 * 128), b.at(i * 16 * 128), i > 0);
    }
    wgmma_commit();
  }

  // As attention_backward_warpgroups'.
  template <int kHalf>
  __device__ __forceinline__ void start_gradients(bool full, const State& state, const Scores& s,
                                                  const Scores& dp, const Operands& p_words,
                                                  float (&dq)[32]) {
    constexpr bool kLast = kHalf == kHalves - 1;
    Operands ds;
    const unsigned rows = ring.rows(state.stage) + 4 * kM + 256 * kHalf + 4 * this->lane_query();
    if (full) {
      score_gradients<Config, false>(s, dp, ds, rows);
    } else {
      score_gradients<Config, true>(s, dp, ds, rows);
    }
    const int thread = this->thread();
    const unsigned to = ring.ds(state.stage) + kHalf * kN * 128 +
                        panel_offset(thread / 32 * 16 + thread % 16, thread % 32 / 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) store_matrix(to ^ (i * 32), ds[0].word[i]);
    unsigned keys = ring.k();
    if constexpr (kLast) {
      const unsigned message = messages.of(state);
      const int which = warp_uniform(messages.word(message, kKeysWord));
      if (uniform(which == kNewVisitKeys)) copy_visit_keys(message);
      if (which != kAllKeys) keys = visit_keys();
      fence_shared_writes();  // ahead of the barrier behind which wgmma reads ds and keys
    }
    this->template start_gradient<kValueWidth>(p_words, ring.dout(state.stage) + kHalf * 64 * 128,
                                               dv);
    if constexpr (kLast) {
      named_barrier_wait<1, kThreads>();  // ds of all keys is there
      start_dq(ring.ds(state.stage), keys, dq);
    }
    this->template start_gradient<kWidth>(ds, ring.q(state.stage) + kHalf * 64 * 128, dk);
  }
  __device__ __forceinline__ void finish_dq(const State& state, float (&dq)[32]) {
    const AttentionBackwardParams& b = step.main.backward;
    const unsigned message = messages.of(state);
    this->finish_dv();
    wgmma_fence_operands(dq);
    this->arrive(ring.dout_empty(state.stage));
    const int part = this->group(), column = Dq::column(part);
#pragma unroll
    for (int i = 0; i < 32; ++i) dq[i] *= b.softmax_scale;
    float* const to = static_cast<float*>(b.dq) + tile->sequence * b.dq_batch_stride +
                      messages.word(message, kHeadWord) * b.dq_head_stride + column;
    const int row = messages.at(message) + Dq::row(part) + this->thread() / 32 % 4 * 16;
    SumTile<ColumnShare<64, 1>>{
        to, b.dq_token_stride, row, messages.end(message), b.head_dim - column, 0}
        .add(reinterpret_cast<const float(&)[1][8][4]>(dq));
  }

  template <int kHalf = 0>
  __device__ __forceinline__ void first_halves(bool full, const State& state, Scores& s, Scores& dp,
                                               Operands& p_words, float (&dq)[32]) {
    if constexpr (kHalf < kHalves - 1) {
      start_gradients<kHalf>(full, state, s, dp, p_words, dq);
      this->finish_dv();
      this->start_s(state, kHalf + 1, s);
      this->template finish_dk<1>();
      make_p(full, state, kHalf + 1, s, dp, p_words);
      first_halves<kHalf + 1>(full, state, s, dp, p_words, dq);
    }
  }
  // All visits of all heads. Outside of the loop masks are applied to full ones too, which saves
  // code.
  __device__ __forceinline__ void walk() {
    constexpr int kLast = kHalves - 1;
    State state;
    Scores s, dp;
    Operands p_words;
    float dq[32];
    this->start_s(state, 0, s);
    bool full = messages.is(messages.of(state), VisitKind::plain);
    bool more = messages.more(messages.of(state));
    make_p(false, state, 0, s, dp, p_words);
#pragma unroll 1
    while (more) {
      first_halves(full, state, s, dp, p_words, dq);
      start_gradients<kLast>(full, state, s, dp, p_words, dq);
      State ahead = state;
      ahead.next();
      finish_dq(state, dq);
      this->start_s(ahead, 0, s);
      this->template finish_dk<1>();
      this->arrive(ring.q_empty(state.stage));
      full = messages.is(messages.of(ahead), VisitKind::plain);
      more = messages.more(messages.of(ahead));
      make_p(full, ahead, 0, s, dp, p_words);
      state = ahead;
    }
    first_halves(false, state, s, dp, p_words, dq);
    start_gradients<kLast>(false, state, s, dp, p_words, dq);
    finish_dq(state, dq);
    this->template finish_dk<0>();
  }

  // dk and dv travel with the block and hold what other ranks have added.
  __device__ __forceinline__ void store() const {
    const AttentionBackwardParams& b = step.main.backward;
    const int row = tile->first + thread_index() / 32 * 16, head = tile->kv_head;
    float* to_k =
        static_cast<float*>(b.dk) + tile->sequence * b.dk_batch_stride + head * b.dk_head_stride;
    float* to_v =
        static_cast<float*>(b.dv) + tile->sequence * b.dv_batch_stride + head * b.dv_head_stride;
    const auto add = [&](float* at, float first, float second) {
      float there[2] = {0.0f, 0.0f};
      if (!step.first_keys) load_pair(at, there[0], there[1]);
      store_pair(at, there[0] + first, there[1] + second);
    };
    SumTile<ColumnShare<kWidth, 1>>{to_k, b.dk_token_stride, row, b.seq_k, b.head_dim, 0}
        .template each<1>([&](float* at, int, int n, int half) {
          add(at, dk[0][n][2 * half] * b.softmax_scale, dk[0][n][2 * half + 1] * b.softmax_scale);
        });
    SumTile<ColumnShare<kValueWidth, 1>>{to_v, b.dv_token_stride, row, b.seq_k, b.value_dim, 0}
        .template each<1>([&](float* at, int, int n, int half) {
          add(at, dv[0][n][2 * half], dv[0][n][2 * half + 1]);
        });
  }

  __device__ __forceinline__ void run() {
    mbarrier_wait(ring.q_full(0), 0);  // the first message is there
    const bool any = !messages.is(0, VisitKind::end);
    if (any) walk();
    if (any || step.first_keys) store();
  }
};

template <class Config>
__device__ void attention_block_backward_warpgroups(
    const AttentionBlockBackwardWarpgroupsParams& p) {
  static_assert(Config::kRanges && !Config::kPacked && !Config::kHeadsApart, "not of a block step");
  static_assert(!Config::kDeterministic, "blocks add to dq in no order");
  extern __shared__ __align__(1024) char shared[];
  using Smem = AttentionBlockBackwardWarpgroupsSmem<Config>;
  const unsigned memory = shared_address(shared);
  const GradientRing<Config> ring = {memory};
  const VisitMessages<Config::kStages> messages = {memory + Smem::kMessages};
  volatile KeyTile* const tile = reinterpret_cast<volatile KeyTile*>(shared + Smem::Ring::kTileAt);
  constexpr unsigned kConsumers = kConsumerThreads<Config>;
  if (threadIdx.x == kConsumers) {
    const AttentionBackwardParams& b = p.main.backward;
    const int slice = static_cast<int>(blockIdx.x % b.slices);
    key_tile_begin<Config>(b, blockIdx.x / b.slices, slice, tile);
    tile->first = slice * Config::kTileN;
    ring.init();
  }
  __syncthreads();  // the tile and the barriers are there for all
  if (threadIdx.x >= kConsumers) {
    setmaxnreg_dec<kBackwardConsumers.producer>();
    if (threadIdx.x / 32 == kConsumers / 32) {
      const VisitQueue queue = {memory + Smem::kQueue};
      BlockGradientProducer<Config>{p, ring, messages, queue, tile}.run();
    }
  } else {
    setmaxnreg_inc<kBackwardConsumers.consumer>();
    BlockGradientConsumer<Config>(p, ring, tile, messages).run();
  }
}

}  // namespace lathe
