// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_forward_warpgroups: attention_forward.cuh's results, by warpgroups with roles (sm_90a).
//
// A block is persistent. One thread of its last warpgroup copies: q of a tile of kTileM rows, then
// k and v of each key block that the tile visits, from the right to the left, by tensor maps into a
// ring of kStages. Of packed sequences a warp beside it looks for the tiles, as lengths on the
// device decide, and sends the others messages of them. The other warpgroups consume: each owns 64
// rows. While P V of the last key block runs, a warpgroup computes the softmax of the next block;
// of two warpgroups one computes softmax while the other's products run (Shah et al.,
// FlashAttention-3). The softmax, the masks and the options are those of the portable kernel.
#pragma once
#include "attention/sm90/attention_consumer.cuh"

namespace lathe {

// The visits of a tile by cursor: the cursor is the block of keys, or with kListed the entry that
// lies beside the block's keys names it.
template <class Config>
struct CursorVisits : Visits<ConsumerConfig<Config>> {
  using Consumers = ConsumerConfig<Config>;
  using Visit = int;  // the cursor
  using State = PipelineState<Config::kStages>;
  static constexpr bool kFromZero = true;
  using Visits<Consumers>::Visits;

  __device__ __forceinline__ Visit first(const State&) const { return this->end - 1; }
  __device__ __forceinline__ void advance(Visit& cursor, const State&) const { --cursor; }
  __device__ __forceinline__ bool there(const Visit& cursor) const { return cursor >= this->begin; }
  __device__ __forceinline__ int landed(const AttentionRing<Config>& ring, const State& k) const {
    return Config::kListed ? load_shared_word(ring.entry(k.stage)) : 0;
  }
  __device__ __forceinline__ void products_issued(Visit&, int) const {}
  // One code serves all blocks: which masks a block needs is the same for the whole warpgroup.
  template <class Scores>
  __device__ __forceinline__ void modify(Visit cursor, int entry, Scores& s,
                                         const ScoreUnits<Consumers>& units,
                                         const QueryTile& tile) const {
    const WarpRows<Consumers> rows(tile);
    const int key = (Config::kListed ? entry >> 1 : cursor) * Config::kTileN;
    const bool masked =
        Config::kListed ? (entry & 1) != 0 : cursor >= this->right || cursor < this->left;
    if (uniform(masked)) {
      modify_scores<Consumers, AttentionMask::both>(s, units, rows, tile, this->window, key);
    } else {
      modify_scores<Consumers, AttentionMask::none>(s, units, rows, tile, this->window, key);
    }
  }
};

template <class Config>
struct ForwardConsumer {
  using Consumers = ConsumerConfig<Config>;
  const AttentionWarpgroupsParams& p;
  const FoundTiles<Config> messages;
  AttentionConsumer<Config> consumer;
  typename FoundTiles<Config>::State state;

  __device__ __forceinline__ float walk(const QueryTile& tile, RunningSoftmax<1>& softmax,
                                        typename AttentionConsumer<Config>::O& o) {
    const ScoreUnits<Consumers> units(p.forward, tile, WarpRows<Consumers>(tile));
    const CursorVisits<Config> visits(p.forward, tile);
    if (visits.begin < visits.end) consumer.walk(visits, tile, units, softmax, o);
    return units.t;
  }
  // A packed tile. Its end reads the message again rather than hold it all the while.
  __device__ __forceinline__ void run_message(int group) {
    typename AttentionConsumer<Config>::O o = {};
    RunningSoftmax<1> softmax;
    start_empty(softmax);
    const float t = walk(messages.read(state, group), softmax, o);
    const QueryTile tile = messages.read(state, group);
    messages.release(state);
    state.next();
    store_results<Consumers>(p.forward, tile, t, softmax, o);
  }
  // A dense tile, which each warp has found for itself.
  __device__ __forceinline__ void run_tile(const QueryTile& tile) {
    const KeptTile<kTight<Config>> kept = {tile, consumer.ring.kept(threadIdx.x / 32)};
    kept.put();
    const ScoreUnits<Consumers> units(p.forward, tile, WarpRows<Consumers>(tile));
    CursorVisits<Config> visits(p.forward, tile);
    typename AttentionConsumer<Config>::O o = {};
    RunningSoftmax<1> softmax;
    start_empty(softmax);
    if (visits.begin < visits.end) consumer.walk(visits, tile, units, softmax, o);
    store_results<Consumers>(p.forward, kept.get(), units.t, softmax, o);
  }
  __device__ __forceinline__ void run() {
    consumer.ping_pong.start();
    if constexpr (Config::kPacked) {
      const int group = p.forward.heads / p.forward.kv_heads;
#pragma unroll 1
      while (messages.wait(state)) run_message(group);
      return;
    }
    const TileOrder<Consumers> order = {p.forward, p.order};
    for (unsigned turn = 0; turn < order.turns(); ++turn) {
      QueryTile tile;
      if (order.tile(turn, tile)) run_tile(tile);
    }
  }
};

template <class Config>
__device__ void attention_forward_warpgroups(const AttentionWarpgroupsParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const AttentionRing<Config> ring = {shared_address(shared)};
  const FoundTiles<Config> messages = {ring.messages()};
  constexpr unsigned kConsumers = ConsumerConfig<Config>::kThreads;
  static_assert(!Config::kPacked || kConsumers == 256, "who looks for tiles needs registers");
  constexpr RegisterSplit kRegisters = Config::kPacked     ? kPagedProducer
                                       : kConsumers == 256 ? kTwoConsumers
                                                           : kThreeConsumers;
  if (threadIdx.x == kConsumers) {
    prefetch_tensor_map(p.q);
    if (p.forward.seq_k > 0) {  // without keys there are no maps of them
      prefetch_tensor_map(p.k);
      prefetch_tensor_map(p.v);
    }
    if constexpr (Config::kPacked) messages.init();
    ring.init();
  }
  clear_unused_rows(p.forward, ring);
  __syncthreads();  // the barriers and what is cleared are there for all
  if (threadIdx.x >= kConsumers) {
    setmaxnreg_dec<kRegisters.producer>();
    if (threadIdx.x == kConsumers) AttentionProducer<Config>{p, ring, messages}.run();
    if constexpr (Config::kPacked) {
      if (threadIdx.x / 32 == kConsumers / 32 + 1) find_tiles<Config>(p, messages);
    }
  } else {
    setmaxnreg_inc<kRegisters.consumer>();
    ForwardConsumer<Config>{p, messages, {ring, {threadIdx.x / 128}}}.run();
  }
}

}  // namespace lathe
