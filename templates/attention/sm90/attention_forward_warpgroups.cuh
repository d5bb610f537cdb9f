// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_forward_warpgroups: attention_forward.cuh's results, by warpgroups with roles (sm_90a).
//
// A block is persistent. One thread of its last warpgroup copies: q of a tile of kTileM rows, then
// k and v of each key block that the tile visits, from the right to the left, by tensor maps into a
// ring of kStages. The other warpgroups own 64 rows each and multiply. While the product of the
// last key block's weights with its values runs, a warpgroup computes the softmax of the next
// block; of two warpgroups one computes softmax while the other's products run (Shah et al.,
// FlashAttention-3). The softmax, the masks and the options are those of the portable kernel.
#pragma once
#include "attention/results.cuh"
#include "attention/scores.cuh"
#include "attention/sm90/attention_producer.cuh"
#include "attention/sm90/lazy_rescale.cuh"
#include "attention/sm90/ping_pong.cuh"
#include "attention/sm90/register_split.cuh"
#include "attention/sm90/uniform_tile.cuh"

namespace lathe {

// O, scores and weights of a thread leave few of its 240 registers: it spends instructions to
// hold less.
template <class Config>
constexpr bool kTight = Config::kValueWidth / 2 + Config::kTileN / 2 + Config::kTileN / 4 > 160;

// What the end of a tile needs of it. Where registers are tight a warp keeps it in shared memory
// while it walks the keys.
template <bool kInMemory>
struct KeptTile {
  const QueryTile& tile;
  unsigned slot;

  __device__ __forceinline__ void put() const {
    if constexpr (!kInMemory) return;
    __syncwarp();  // the tile before has been read
    if (threadIdx.x % 32 == 0) {
      const int words[] = {tile.sequence, tile.head,  tile.start_q, tile.rows,
                           tile.written,  tile.first, tile.group};
#pragma unroll
      for (int i = 0; i < 7; ++i) store_shared_word(slot + 4 * i, words[i]);
    }
    __syncwarp();
  }
  __device__ __forceinline__ QueryTile get() const {
    if constexpr (!kInMemory) return tile;
    const auto word = [&](int i) { return load_shared_word(slot + 4 * i); };
    QueryTile kept = {};
    kept.sequence = word(0), kept.head = word(1), kept.start_q = word(2);
    kept.rows = word(3), kept.written = word(4), kept.first = word(5);
    kept.group = word(6);
    return kept;
  }
};

// A warpgroup that multiplies. Params: those of a whole forward, or of a block step.
template <class Config, class Params = AttentionWarpgroupsParams>
struct AttentionConsumer {
  using Element = typename Config::Element;
  using ConsumerThreads = ConsumerConfig<Config>;
  using Smem = AttentionWarpgroupsSmem<Config>;
  static constexpr int kTileN = Config::kTileN, kTileM = Config::kTileM;
  static constexpr int kKeyTiles = kTileN / 8, kOutTiles = Config::kValueWidth / 8;

  const Params& p;
  const AttentionRing<Config> ring;
  const PingPongBarrier<Config> ping_pong;
  PipelineState<1> q_state;
  PipelineState<Config::kStages> k_state, v_state;

  using Scores = float[1][kKeyTiles][4];
  using O = float[1][kOutTiles][4];
  using P = Accumulated<Element, kKeyTiles>;

  static __device__ __forceinline__ void arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
  }

  __device__ __forceinline__ WgmmaTile values() const {
    return warp_uniform(wgmma_rows<kTileN * 128>(ring.v(v_state.stage)));
  }

  // s = q k^T. Returns the list's entry, with kListed.
  __device__ __forceinline__ int start_qk(WgmmaTile q, Scores& s) {
    const WgmmaTile k = warp_uniform(wgmma_columns(ring.k(k_state.stage)));
    mbarrier_wait(ring.k_full(k_state.stage), k_state.phase);
    const int entry = Config::kListed ? load_shared_word(ring.entry(k_state.stage)) : 0;
    ping_pong.sync();
    auto& d = reinterpret_cast<float(&)[kTileN / 2]>(s);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < Config::kWidth / 16; ++step) {
      const unsigned panel = step / 4, inside = step % 4 * 32;
      Wgmma<kTileN, false, Element>::run(d, q.at(panel * kTileM * 128 + inside),
                                         k.at(panel * kTileN * 128 + inside), step > 0);
    }
    wgmma_commit();
    return entry;
  }
  // o += weights v
  __device__ __forceinline__ void start_pv(WgmmaTile v, const P& p_words, O& o) {
    mbarrier_wait(ring.v_full(v_state.stage), v_state.phase);
    auto& d = reinterpret_cast<float(&)[Config::kValueWidth / 2]>(o);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < kTileN / 16; ++step) {
      Wgmma<Config::kValueWidth, true, Element>::run(d, p_words.word[step], v.at(step * 16 * 128),
                                                     1);
    }
    wgmma_commit();
  }
  template <int kPending>
  __device__ __forceinline__ void finish_qk(Scores& s) {
    wgmma_wait<kPending>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kTileN / 2]>(s));
    arrive(ring.k_empty(k_state.stage));
    k_state.next();
  }
  __device__ __forceinline__ void finish_pv(O& o) {
    wgmma_wait<0>();
    wgmma_fence_operands(reinterpret_cast<float(&)[Config::kValueWidth / 2]>(o));
    arrive(ring.v_empty(v_state.stage));
    v_state.next();
  }

  // Scores become weights, still in float32 since those of the block before are in use. One code
  // serves all blocks: which masks a block needs is the same for the whole warpgroup.
  __device__ __forceinline__ bool mask_and_softmax(Scores& s,
                                                   const ScoreUnits<ConsumerThreads>& units,
                                                   const QueryTile& tile,
                                                   const Visits<ConsumerThreads>& visits,
                                                   int cursor, int entry,
                                                   RunningSoftmax<1>& softmax, float (&scale)[2]) {
    const WarpRows<ConsumerThreads> rows(tile);
    const int key = (Config::kListed ? entry >> 1 : cursor) * kTileN;
    const bool masked =
        Config::kListed ? (entry & 1) != 0 : cursor >= visits.right || cursor < visits.left;
    if (uniform(masked)) {
      modify_scores<ConsumerThreads, AttentionMask::both>(s, units, rows, tile, visits.window, key);
    } else {
      modify_scores<ConsumerThreads, AttentionMask::none>(s, units, rows, tile, visits.window, key);
    }
    return online_softmax(s, units.t, softmax, scale);
  }
  // The largest score of a row in one key block and before; each lane's own.
  static __device__ __forceinline__ float larger_of(float most, const Scores& s, int half) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      most = fmaxf(most, fmaxf(s[0][n][2 * half], s[0][n][2 * half + 1]));
    }
    return most;
  }
  // Takes the maximum of a row if it is late, and scales the sum of its weights.
  static __device__ __forceinline__ void raise_maximum(float most, float t, float& before,
                                                       float& sum, float& scale) {
    most = quad_max(most);
    if (!exceeds_threshold(most, before, t)) most = before;
    scale = ex2_flushed(__fmul_rn(__fsub_rn(before, finite_base(most)), t));
    sum = __fmul_rn(sum, scale);
    before = most;
  }
  // Scores of half the rows become weights.
  static __device__ __forceinline__ void exponentiate_half(Scores& s, int half, float t,
                                                           RunningSoftmax<1>& softmax) {
    const float base = finite_base(softmax.most[0][half]), shift = __fmul_rn(base, t);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      float(&pair)[4] = s[0][n];
      pair[2 * half] = weight<Element>(pair[2 * half], base, t, shift);
      pair[2 * half + 1] = weight<Element>(pair[2 * half + 1], base, t, shift);
      sum += pair[2 * half] + pair[2 * half + 1];
    }
    softmax.sum[0][half] += sum;
  }
  // Returns whether sums are to be scaled.
  static __device__ __forceinline__ bool online_softmax(Scores& s, float t,
                                                        RunningSoftmax<1>& softmax,
                                                        float (&scale)[2]) {
    auto& before = softmax.most[0];
    if constexpr (kOneByOne<Config>) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        raise_maximum(larger_of(before[half], s, half), t, before[half], softmax.sum[0][half],
                      scale[half]);
        exponentiate_half(s, half, t, softmax);
      }
      return uniform(scale[0] != 1.0f || scale[1] != 1.0f);
    }
    const float most[2] = {larger_of(before[0], s, 0), larger_of(before[1], s, 1)};
    const bool grows = __any_sync(
        ~0u, exceeds_threshold(most[0], before[0], t) || exceeds_threshold(most[1], before[1], t));
    if (grows) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        raise_maximum(most[half], t, before[half], softmax.sum[0][half], scale[half]);
      }
    }
    exponentiate_half(s, 0, t, softmax);
    exponentiate_half(s, 1, t, softmax);
    return grows;
  }
  static __device__ __forceinline__ void pack(const Scores& s, P& p_words) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      p_words.put(n, 0, s[0][n][0], s[0][n][1]);
      p_words.put(n, 1, s[0][n][2], s[0][n][3]);
    }
  }

  static __device__ __forceinline__ void rescale(O& o, const float (&scale)[2]) {
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) o[0][n][c] *= scale[c / 2];
    }
  }

  __device__ __forceinline__ void run_tile(const QueryTile& tile) {
    const KeptTile<kTight<Config>> kept = {tile, ring.kept(threadIdx.x / 32)};
    kept.put();
    const ScoreUnits<ConsumerThreads> units(p.forward, tile, WarpRows<ConsumerThreads>(tile));
    const Visits<ConsumerThreads> visits(p.forward, tile);
    O o = {};
    RunningSoftmax<1> softmax;
    start_empty(softmax);
    if (visits.begin < visits.end) {
      Scores s;
      P p_words;
      float scale[2];
      int cursor = visits.end - 1;
      mbarrier_wait(ring.q_full(), q_state.phase);
      q_state.next();
      const WgmmaTile q = warp_uniform(wgmma_columns(ring.q() + threadIdx.x / 128 * 64 * 128));
      int entry = start_qk(q, s);
      ping_pong.arrive();
      finish_qk<0>(s);
      mask_and_softmax(s, units, tile, visits, cursor, entry, softmax, scale);
      pack(s, p_words);
      // One more key block, while the values of the one before are multiplied.
#pragma unroll 1
      for (--cursor; cursor >= visits.begin; --cursor) {
        const WgmmaTile v = values();
        entry = start_qk(q, s);
        start_pv(v, p_words, o);
        ping_pong.arrive();
        finish_qk<1>(s);
        const bool grows = mask_and_softmax(s, units, tile, visits, cursor, entry, softmax, scale);
        finish_pv(o);
        pack(s, p_words);
        if (grows) rescale(o, scale);
      }
      arrive(ring.q_empty());  // the last scores are there
      start_pv(values(), p_words, o);
      finish_pv(o);
    }
    store_results<ConsumerThreads>(p.forward, kept.get(), units.t, softmax, o);
  }

  __device__ __forceinline__ void run() {
    ping_pong.start();
    const TileOrder<ConsumerThreads> order = {p.forward, p.order};
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
  constexpr unsigned kConsumers = ConsumerConfig<Config>::kThreads;
  constexpr RegisterSplit kRegisters = kConsumers == 256 ? kTwoConsumers : kThreeConsumers;
  if (threadIdx.x == kConsumers) {
    prefetch_tensor_map(p.q);
    if (p.forward.seq_k > 0) {  // without keys there are no maps of them
      prefetch_tensor_map(p.k);
      prefetch_tensor_map(p.v);
    }
    ring.init();
  }
  clear_unused_rows(p.forward, ring);
  __syncthreads();  // the barriers and what is cleared are there for all
  if (threadIdx.x >= kConsumers) {
    setmaxnreg_dec<kRegisters.producer>();
    if (threadIdx.x == kConsumers) AttentionProducer<Config>{p, ring}.run();
  } else {
    setmaxnreg_inc<kRegisters.consumer>();
    AttentionConsumer<Config>{p, ring, {threadIdx.x / 128}}.run();
  }
}

}  // namespace lathe
