// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_block_backward_warpgroups: attention_block_backward.cuh's results by ranges, by
// warpgroups with roles (sm_90a).
//
// The roles, the ring and the products are those of attention_backward_warpgroups.cuh. Which rows a
// tile of keys visits follows from ranges in memory: the warp that copies walks them and sends each
// visit along with its queries. dq is added to the caller's rows.
#pragma once
#include "attention/sm90/block_gradient_ring.cuh"
#include "attention/sm90/gradient_consumer.cuh"
#include "attention/sm90/register_split.cuh"

namespace lathe {

// The visits of a tile of keys by messages, which the producer sends along with the queries.
template <class Config>
struct MessageQueries {
  using Consumer = GradientConsumer<Config>;
  using State = typename Consumer::State;
  using Dq = typename Consumer::Dq;
  using Messages = VisitMessages<Config::kStages>;
  struct Visit {};  // all of it lies in the message
  static constexpr bool kKnownAhead = false, kReadsFullAgain = false, kShared = false;
  static constexpr int kN = Config::kTileN;
  static_assert(Consumer::kQueries == 64 && Dq::kParts % 2 == 0, "whole parts of dq");

  const AttentionBlockBackwardWarpgroupsParams& step;
  const GradientRing<Config> ring;
  volatile KeyTile* const tile;
  const Messages messages;

  __device__ __forceinline__ unsigned visit_keys() const {
    return ring.shared + AttentionBlockBackwardWarpgroupsSmem<Config>::kVisitKeys;
  }
  __device__ __forceinline__ bool full(const Visit&, const State& state) const {
    return messages.is(messages.of(state), VisitKind::plain);
  }
  __device__ __forceinline__ bool more(const Visit&, const State& state) const {
    return messages.more(messages.of(state));
  }
  __device__ __forceinline__ void find_scores(const Consumer& c, const Visit&, const State& state,
                                              int half, ScoreTile& scores) const {
    const unsigned message = messages.of(state);
    scores.key = tile->first + c.thread() / 32 * 16 + c.thread() % 32 / 4;
    scores.lane_query = c.lane_query();
    scores.query = messages.at(message) + half * 64;
    if constexpr (Config::kAlibi) {
      const AttentionBackwardParams& b = step.main.backward;
      scores.offset = messages.get(message).offset;
      scores.slope =
          load_element(static_cast<const float*>(b.alibi_slopes) +
                       tile->sequence * b.alibi_batch_stride + messages.word(message, kHeadWord));
    }
  }
  template <class Scores, class Operands, class Lse>
  __device__ __forceinline__ void apply_masked(const Consumer& c, const State& state, Scores& s,
                                               Operands& p_words, const ScoreTile& scores,
                                               const Lse& lse) const {
    const lathe::Visit v = messages.get(messages.of(state));
    const VisitWindow window = {{v.last, v.low, v.high}, v.first, v.last};
    score_weights<Config, true>(s, p_words, c.units, scores, window, v.end, lse);
  }

  // Copies the keys of a visit and zeros in the place of others, when no product reads the copy any
  // more: all have waited for their last one.
  __device__ __forceinline__ void copy_visit_keys(const Consumer& c, unsigned message) const {
    named_barrier_sync<2, Consumer::kThreads>();
    const int thread = c.thread();
    const int first = messages.first(message) - tile->first;
    const int last = messages.last(message) - tile->first;
#pragma unroll 1
    for (int at = thread; at < kN * Config::kWidth / 8; at += Consumer::kThreads) {
      const int row = at / 8 % kN;
      unsigned word[4] = {};
      if (row >= first && row < last) load_shared_words(ring.k() + 16 * at, word);
      store_shared_words(visit_keys() + 16 * at, word);
    }
  }
  __device__ __forceinline__ unsigned keys_of_dq(const Consumer& c, const State& state) const {
    const unsigned message = messages.of(state);
    const int which = warp_uniform(messages.word(message, kKeysWord));
    if (uniform(which == kNewVisitKeys)) copy_visit_keys(c, message);
    return which != kAllKeys ? visit_keys() : ring.k();
  }
  __device__ __forceinline__ unsigned dq_target(const Consumer&, const Visit&,
                                                const State& state) const {
    return messages.of(state);
  }
  // Adds to the caller's rows.
  __device__ __forceinline__ void add_dq(const Consumer& c, unsigned message, const State&,
                                         float (&dq)[32]) const {
    const AttentionBackwardParams& b = step.main.backward;
    const int part = c.group(), column = Dq::column(part);
#pragma unroll
    for (int i = 0; i < 32; ++i) dq[i] *= b.softmax_scale;
    float* const to = static_cast<float*>(b.dq) + tile->sequence * b.dq_batch_stride +
                      messages.word(message, kHeadWord) * b.dq_head_stride + column;
    const int row = messages.at(message) + Dq::row(part) + c.thread() / 32 % 4 * 16;
    SumTile<ColumnShare<64, 1>>{
        to, b.dq_token_stride, row, messages.end(message), b.head_dim - column, 0}
        .add(reinterpret_cast<const float(&)[1][8][4]>(dq));
  }
};

template <class Config>
struct BlockBackwardConsumer {
  GradientConsumer<Config> consumer;
  const AttentionBlockBackwardWarpgroupsParams& step;
  const MessageQueries<Config> source;

  // dk and dv travel with the block and hold what other ranks have added.
  __device__ __forceinline__ void store() const {
    const AttentionBackwardParams& b = step.main.backward;
    volatile KeyTile* const tile = consumer.tile;
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
    SumTile<ColumnShare<Config::kWidth, 1>>{to_k, b.dk_token_stride, row, b.seq_k, b.head_dim, 0}
        .template each<1>([&](float* at, int, int n, int half) {
          add(at, consumer.dk[0][n][2 * half] * b.softmax_scale,
              consumer.dk[0][n][2 * half + 1] * b.softmax_scale);
        });
    SumTile<ColumnShare<Config::kValueWidth, 1>>{to_v,    b.dv_token_stride, row,
                                                 b.seq_k, b.value_dim,       0}
        .template each<1>([&](float* at, int, int n, int half) {
          add(at, consumer.dv[0][n][2 * half], consumer.dv[0][n][2 * half + 1]);
        });
  }
  __device__ __forceinline__ void run() {
    mbarrier_wait(consumer.ring.q_full(0), 0);  // the first message is there
    const bool any = !source.messages.is(0, VisitKind::end);
    if (any) consumer.walk(source, {});
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
    BlockBackwardConsumer<Config>{{p.main.backward, ring, tile}, p, {p, ring, tile, messages}}
        .run();
  }
}

}  // namespace lathe
