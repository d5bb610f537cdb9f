// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_block_warpgroups: attention_block.cuh's results by ranges, by warpgroups with roles
// (sm_90a).
//
// The roles, the ring and the products are those of attention_forward_warpgroups.cuh. Which keys a
// tile visits follows from ranges in memory: the warp that copies walks them and sends each visit
// along with its keys. A message tells too whether the tile goes on after its visit; a tile that
// sees no key gets one without keys. Keys are copied by maps that end where a visit's range does:
// what lies behind it is of other ranges, or of none, and must not even be multiplied by 0.
#pragma once
#include "attention/partials.cuh"
#include "attention/ranges.cuh"
#include "attention/sm90/attention_consumer.cuh"
#include "attention/sm90/visit_messages.cuh"

namespace lathe {

// [the forward's tiles and barriers][messages][the walk's queue]
template <class Config>
struct AttentionBlockWarpgroupsSmem {
  static constexpr int kMessages = AttentionWarpgroupsSmem<Config>::kBytes;
  static constexpr int kQueue = kMessages + VisitMessages<Config::kStages>::kBytes;
  static constexpr int kBytes = kQueue + VisitQueue::kBytes;
};

// The warp that walks and copies.
template <class Config>
struct AttentionBlockProducer {
  using Smem = AttentionWarpgroupsSmem<Config>;
  using Walk = RangeWalk<KeysOfRows<Config::kTileN>, VisitMask<Config>>;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;

  const AttentionBlockWarpgroupsParams& p;
  const AttentionRing<Config>& ring;
  const VisitMessages<Config::kStages> messages;
  const VisitQueue queue;
  const bool lead;  // the lane that copies
  PipelineState<1> q_state;
  PipelineState<Config::kStages> k_state, v_state;

  __device__ __forceinline__ Walk walk(const QueryTile& tile) const {
    const AttentionForwardParams& f = p.block.forward;
    const int last = minimum(tile.first + kTileM, tile.rows) - 1;
    return {queue,
            {{static_cast<const int*>(p.block.ranges), p.block.range_count, tile.rows, tile.keys,
              f.window_left, f.window_right},
             tile.first,
             last},
            {captures_of(f), tile.sequence, tile.head, tile.head + 1},
            static_cast<const int*>(p.block.range_batches)};
  }

  __device__ __forceinline__ void copy_q(const QueryTile& tile) {
    mbarrier_wait(ring.q_empty(), q_state.phase ^ 1);
    if (lead) {
      mbarrier_arrive_expect(ring.q_full(), Smem::kQ);
#pragma unroll
      for (int panel = 0; panel < Smem::kPanels; ++panel) {
        copy_box(ring.q() + panel * kTileM * 128, p.q, ring.q_full(), panel * 64, tile.first,
                 tile.head, tile.sequence);
      }
    }
    q_state.next();
  }
  // Sends the message of a visit, and its keys.
  __device__ __forceinline__ void copy_k(const QueryTile& tile, int visit, bool more) {
    const unsigned full = ring.k_full(k_state.stage);
    messages.template put<kHasMods<Config>>(messages.of(k_state), queue, visit, more);
    if (lead) {
      const int at = queue.at(visit), end = queue.end(visit);
      mbarrier_arrive_expect(full, Smem::kK);
#pragma unroll
      for (int panel = 0; panel < Smem::kPanels; ++panel) {
        copy_box(ring.k(k_state.stage) + panel * kTileN * 128, p.k, full, panel * 64,
                 kRaggedRows - end + at, tile.kv_head, end, tile.sequence);
      }
    }
    k_state.next();
  }
  __device__ __forceinline__ void copy_v(const QueryTile& tile, int visit) {
    mbarrier_wait(ring.v_empty(v_state.stage), v_state.phase ^ 1);
    if (lead) {
      const unsigned full = ring.v_full(v_state.stage);
      const int at = queue.at(visit), end = queue.end(visit);
      mbarrier_arrive_expect(full, Smem::kV);
#pragma unroll
      for (int panel = 0; panel < Smem::kValuePanels; ++panel) {
        copy_box(ring.v(v_state.stage) + panel * kTileN * 128, p.v, full, panel * 64,
                 kRaggedRows - end + at, tile.kv_head, end, tile.sequence);
      }
    }
    v_state.next();
  }

  __device__ __forceinline__ void run_tile(const QueryTile& tile) {
    const Walk visits = walk(tile);
    visits.start();
    visits.append(0);
    bool more = !queue.is(0, VisitKind::end);
    if (!more) {
      mbarrier_wait(ring.k_empty(k_state.stage), k_state.phase ^ 1);
      messages.template put<false>(messages.of(k_state), queue, 0, false);
      if (lead) mbarrier_arrive(ring.k_full(k_state.stage));
      k_state.next();
      return;
    }
    int visit = 0;
#pragma unroll 1
    for (; more; ++visit) {
      visits.append(visit + 1);
      more = !queue.is(visit + 1, VisitKind::end);
      mbarrier_wait(ring.k_empty(k_state.stage), k_state.phase ^ 1);
      copy_k(tile, visit, more);
      if (visit == 0) {
        copy_q(tile);
      } else {
        copy_v(tile, visit - 1);
      }
      __syncwarp();  // the lane that copies has read the visit before
    }
    copy_v(tile, visit - 1);
    __syncwarp();  // and the last one
  }

  __device__ __forceinline__ void run() {
    const TileOrder<Config> order = {p.block.forward, p.order};
    for (unsigned turn = 0; turn < order.turns(); ++turn) {
      QueryTile tile;
      if (order.tile(turn, tile)) run_tile(tile);
    }
  }
};

// The visits of a tile by messages, which the producer sends along with the keys.
template <class Config>
struct MessageVisits {
  using Consumers = ConsumerConfig<Config>;
  using State = PipelineState<Config::kStages>;
  static constexpr bool kFromZero = false;
  const AttentionBlockParams& p;
  const VisitMessages<Config::kStages> messages;

  using Visit = bool;  // whether the tile has another one

  __device__ __forceinline__ bool from_zero() const { return p.first; }
  __device__ __forceinline__ Visit first(const State& k) const {
    return messages.more(messages.of(k));
  }
  __device__ __forceinline__ void advance(Visit&, const State&) const {}
  __device__ __forceinline__ bool there(const Visit& more) const { return more; }
  // Returns the number of the message.
  __device__ __forceinline__ unsigned landed(const AttentionRing<Config>&, const State& k) const {
    return messages.of(k);
  }
  __device__ __forceinline__ void products_issued(Visit& more, unsigned message) const {
    more = messages.more(message);
  }
  template <bool kMasked, class Scores>
  __device__ __forceinline__ void modify(unsigned message, Scores& s,
                                         const ScoreUnits<Consumers>& units,
                                         const QueryTile& tile) const {
    constexpr bool kMods = kHasMods<Config>;
    // Otherwise nothing is read of the visit.
    constexpr bool kNear = kMasked || Config::kAlibi || kMods;
    const auto v = kNear ? messages.get(message) : lathe::Visit{};
    const VisitWindow window = {{v.end, v.low, v.high}, v.first, v.last};
    VisitPositions positions = {v.first, v.last, v.at, v.end, {}};
    QueryTile shifted = tile;  // the distance of positions is read of it
    shifted.keys = v.offset, shifted.rows = 0;
    if constexpr (kMods) {
      positions.from = messages.origin(message);
      shifted.sequence = positions.from.batch;
    }
    modify_scores<Consumers, kMasked ? AttentionMask::both : AttentionMask::none>(
        s, units, WarpRows<Consumers>(tile), shifted, window, v.at, positions);
  }
  template <class Scores>
  __device__ __forceinline__ void modify(const Visit&, unsigned message, Scores& s,
                                         const ScoreUnits<Consumers>& units,
                                         const QueryTile& tile) const {
    if (messages.is(message, VisitKind::masked)) {
      modify<true>(message, s, units, tile);
    } else {
      modify<false>(message, s, units, tile);
    }
  }
};

template <class Config>
struct BlockConsumer {
  using Consumers = ConsumerConfig<Config>;
  const AttentionBlockWarpgroupsParams& p;
  AttentionConsumer<Config> consumer;
  const VisitMessages<Config::kStages> messages;

  __device__ __forceinline__ void run_tile(const QueryTile& tile) {
    auto& state = consumer.k_state;
    mbarrier_wait(consumer.ring.k_full(state.stage), state.phase);  // the first message is there
    const bool any = !messages.is(messages.of(state), VisitKind::end);
    if (!any) {
      consumer.arrive(consumer.ring.k_empty(state.stage));
      state.next();
      if (!p.block.first) return;
    }
    const KeptTile<kTight<Config>> kept = {tile, consumer.ring.kept(threadIdx.x / 32)};
    kept.put();
    const ScoreUnits<Consumers> units(p.block.forward, tile, WarpRows<Consumers>(tile));
    const MessageVisits<Config> visits = {p.block, messages};
    typename AttentionConsumer<Config>::O o;
    RunningSoftmax<1> softmax;
    start_partial<Consumers>(p.block, tile, units.t, softmax, o);
    if (any) consumer.walk(visits, tile, units, softmax, o);
    store_partial<Consumers>(p.block, kept.get(), units.t, softmax, o);
  }
  __device__ __forceinline__ void run() {
    consumer.ping_pong.start();
    const TileOrder<Consumers> order = {p.block.forward, p.order};
    for (unsigned turn = 0; turn < order.turns(); ++turn) {
      QueryTile tile;
      if (order.tile(turn, tile)) run_tile(tile);
    }
  }
};

template <class Config>
__device__ void attention_block_warpgroups(const AttentionBlockWarpgroupsParams& p) {
  static_assert(Config::kRanges && !Config::kPacked && !Config::kPackGqa && !Config::kSinks,
                "not of a block step");
  static_assert(!Config::kListed, "the walk makes its visits as it goes");
  extern __shared__ __align__(1024) float4 shared[];
  const unsigned memory = shared_address(shared);
  const AttentionRing<Config> ring = {memory};
  const VisitMessages<Config::kStages> messages = {memory +
                                                   AttentionBlockWarpgroupsSmem<Config>::kMessages};
  constexpr unsigned kConsumers = ConsumerConfig<Config>::kThreads;
  static_assert(kConsumers == 256, "two warpgroups multiply");
  if (threadIdx.x == kConsumers) {
    prefetch_tensor_map(p.q);
    if (p.block.forward.seq_k > 0) {  // without keys there are no maps of them
      prefetch_tensor_map(p.k);
      prefetch_tensor_map(p.v);
    }
    ring.init();
  }
  __syncthreads();  // the barriers are there for all
  if (threadIdx.x >= kConsumers) {
    setmaxnreg_dec<kWalkingProducer.producer>();
    if (threadIdx.x / 32 == kConsumers / 32) {
      const VisitQueue queue = {memory + AttentionBlockWarpgroupsSmem<Config>::kQueue};
      AttentionBlockProducer<Config>{p, ring, messages, queue, threadIdx.x % 32 == 0}.run();
    }
  } else {
    setmaxnreg_inc<kWalkingProducer.consumer>();
    BlockConsumer<Config>{p, {ring, {threadIdx.x / 128}}, messages}.run();
  }
}

}  // namespace lathe
