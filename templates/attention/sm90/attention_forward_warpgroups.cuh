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
#include "attention/sm90/attention_copies.cuh"
#include "common/wgmma.cuh"

namespace lathe {

// With mods the widest sums leave no register for a barrier's number or for two maxima at a time:
// these are always exchanged, those of one half of the rows after the other's.
template <class Config>
constexpr bool kOneByOne =
    (HasScoreMod<Config>::kValue || HasMaskMod<Config>::kValue) && Config::kValueWidth == 256;

// A warpgroup's turn to issue products: barrier 1 is the turn of the first one, and each gives the
// turn to the next when its products are issued. The first has a turn to begin with, which the last
// gives it once; what is given after the last round of a tile begins the next tile. The last turn
// of all belongs to nobody.
template <class Config>
struct Turns {
  static constexpr unsigned kGroups = ConsumerConfig<Config>::kThreads / 128;
  unsigned group;

  template <unsigned kOf = 0>
  __device__ __forceinline__ void wait() const {
    if constexpr (kOf < kGroups && kGroups > 1) {
      if (group == kOf) {
        named_barrier_wait<1 + kOf, 256>();
      } else {
        wait<kOf + 1>();
      }
    }
  }
  // Without a branch, which costs more behind products than elsewhere.
  template <unsigned kOf = 0>
  __device__ __forceinline__ void give() const {
    if constexpr (!kOneByOne<Config>) {
      if constexpr (kGroups > 1) named_barrier_arrive<256>(group + 1 < kGroups ? group + 2 : 1);
    } else if constexpr (kOf < kGroups) {
      if (group == kOf) {
        named_barrier_arrive<1 + (kOf + 1) % kGroups, 256>();
      } else {
        give<kOf + 1>();
      }
    }
  }
  __device__ __forceinline__ void begin() const {
    if (group == kGroups - 1) give();
  }
};

// A larger maximum makes the weights of later blocks smaller and wants the sums of all columns
// scaled. It is not taken before weights would exceed 2^kLate, which leaves float32 sums and 16-bit
// weights as exact as they were: after the first blocks hardly any row is scaled. So a thread asks
// this of its own scores, and lanes exchange maxima, by shuffles that queue behind wgmma's reads of
// shared memory, only where one of a warp's threads has met such a score.
constexpr float kLate = 8.0f;

__device__ __forceinline__ bool is_late(float most, float most_so_far, float t) {
  return __fmul_rn(__fsub_rn(most, most_so_far), t) > kLate;
}
// A row may have met no key yet, and -inf - -inf must not arise.
__device__ __forceinline__ float base_of(float most) {
  return most == minus_infinity() ? 0.0f : most;
}

// Sums, scores and weights of a thread leave few of its 240 registers: it spends instructions to
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
struct AttentionMultiplier {
  using Element = typename Config::Element;
  using ConsumerThreads = ConsumerConfig<Config>;
  using Smem = AttentionWarpgroupsSmem<Config>;
  static constexpr int kTileN = Config::kTileN, kTileM = Config::kTileM;
  static constexpr int kKeyTiles = kTileN / 8, kOutTiles = Config::kValueWidth / 8;

  const Params& p;
  const AttentionRing<Config> ring;
  const Turns<Config> turns;
  PipelineState<1> q_state;
  PipelineState<Config::kStages> k_state, v_state;

  using Scores = float[1][kKeyTiles][4];
  using Sums = float[1][kOutTiles][4];
  using Weights = Accumulated<Element, kKeyTiles>;

  static __device__ __forceinline__ void arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
  }

  // Descriptors are in registers that a warp shares, and the compiler does not see that what they
  // are computed from is the same in all threads: it would move each descriptor there by itself.
  // The shuffle is made before the turn is waited for, where its latency costs nobody anything.
  static __device__ __forceinline__ WgmmaTile the_same(WgmmaTile tile) {
    return {static_cast<unsigned>(in_place(static_cast<int>(tile.low)))};
  }
  __device__ __forceinline__ WgmmaTile values() const {
    return the_same(wgmma_rows<kTileN * 128>(ring.v(v_state.stage)));
  }

  // s = q k^T. Returns the list's entry, with kListed.
  __device__ __forceinline__ int start_scores(WgmmaTile q, Scores& s) {
    const WgmmaTile k = the_same(wgmma_columns(ring.k(k_state.stage)));
    mbarrier_wait(ring.k_full(k_state.stage), k_state.phase);
    const int entry = Config::kListed ? load_shared_word(ring.entry(k_state.stage)) : 0;
    turns.wait();
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
  __device__ __forceinline__ void start_sums(WgmmaTile v, const Weights& weights, Sums& o) {
    mbarrier_wait(ring.v_full(v_state.stage), v_state.phase);
    auto& d = reinterpret_cast<float(&)[Config::kValueWidth / 2]>(o);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < kTileN / 16; ++step) {
      Wgmma<Config::kValueWidth, true, Element>::run(d, weights.word[step], v.at(step * 16 * 128),
                                                     1);
    }
    wgmma_commit();
  }
  template <int kPending>
  __device__ __forceinline__ void finish_scores(Scores& s) {
    wgmma_wait<kPending>();
    in_registers(reinterpret_cast<float(&)[kTileN / 2]>(s));
    arrive(ring.k_empty(k_state.stage));
    k_state.next();
  }
  __device__ __forceinline__ void finish_sums(Sums& o) {
    wgmma_wait<0>();
    in_registers(reinterpret_cast<float(&)[Config::kValueWidth / 2]>(o));
    arrive(ring.v_empty(v_state.stage));
    v_state.next();
  }

  // Scores become weights, still in float32 since those of the block before are in use. One code
  // serves all blocks: which masks a block needs is the same for the whole warpgroup.
  __device__ __forceinline__ bool soften(Scores& s, const ScoreUnits<ConsumerThreads>& units,
                                         const QueryTile& tile,
                                         const Visits<ConsumerThreads>& visits, int cursor,
                                         int entry, RunningSoftmax<1>& softmax, float (&scale)[2]) {
    const WarpRows<ConsumerThreads> rows(tile);
    const int key = (Config::kListed ? entry >> 1 : cursor) * kTileN;
    const bool masked =
        Config::kListed ? (entry & 1) != 0 : cursor >= visits.right || cursor < visits.left;
    if (uniform(masked)) {
      modify_scores<ConsumerThreads, AttentionMask::both>(s, units, rows, tile, visits.window, key);
    } else {
      modify_scores<ConsumerThreads, AttentionMask::none>(s, units, rows, tile, visits.window, key);
    }
    return weigh(s, units.t, softmax, scale);
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
  static __device__ __forceinline__ void take_maximum(float most, float t, float& before,
                                                      float& sum, float& scale) {
    most = quad_max(most);
    if (!is_late(most, before, t)) most = before;
    scale = ex2_flushed(__fmul_rn(__fsub_rn(before, base_of(most)), t));
    sum = __fmul_rn(sum, scale);
    before = most;
  }
  // Scores of half the rows become weights.
  static __device__ __forceinline__ void weigh_half(Scores& s, int half, float t,
                                                    RunningSoftmax<1>& softmax) {
    const float base = base_of(softmax.most[0][half]), shift = __fmul_rn(base, t);
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
  static __device__ __forceinline__ bool weigh(Scores& s, float t, RunningSoftmax<1>& softmax,
                                               float (&scale)[2]) {
    auto& before = softmax.most[0];
    if constexpr (kOneByOne<Config>) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        take_maximum(larger_of(before[half], s, half), t, before[half], softmax.sum[0][half],
                     scale[half]);
        weigh_half(s, half, t, softmax);
      }
      return uniform(scale[0] != 1.0f || scale[1] != 1.0f);
    }
    const float most[2] = {larger_of(before[0], s, 0), larger_of(before[1], s, 1)};
    const bool grows =
        __any_sync(~0u, is_late(most[0], before[0], t) || is_late(most[1], before[1], t));
    if (grows) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        take_maximum(most[half], t, before[half], softmax.sum[0][half], scale[half]);
      }
    }
    weigh_half(s, 0, t, softmax);
    weigh_half(s, 1, t, softmax);
    return grows;
  }
  static __device__ __forceinline__ void pack(const Scores& s, Weights& weights) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      weights.put(n, 0, s[0][n][0], s[0][n][1]);
      weights.put(n, 1, s[0][n][2], s[0][n][3]);
    }
  }

  static __device__ __forceinline__ void rescale(Sums& o, const float (&scale)[2]) {
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
    Sums o = {};
    RunningSoftmax<1> softmax;
    start_empty(softmax);
    if (visits.begin < visits.end) {
      Scores s;
      Weights weights;
      float scale[2];
      int cursor = visits.end - 1;
      mbarrier_wait(ring.q_full(), q_state.phase);
      q_state.next();
      const WgmmaTile q = the_same(wgmma_columns(ring.q() + threadIdx.x / 128 * 64 * 128));
      int entry = start_scores(q, s);
      turns.give();
      finish_scores<0>(s);
      soften(s, units, tile, visits, cursor, entry, softmax, scale);
      pack(s, weights);
      // One more key block, while the values of the one before are multiplied.
#pragma unroll 1
      for (--cursor; cursor >= visits.begin; --cursor) {
        const WgmmaTile v = values();
        entry = start_scores(q, s);
        start_sums(v, weights, o);
        turns.give();
        finish_scores<1>(s);
        const bool grows = soften(s, units, tile, visits, cursor, entry, softmax, scale);
        finish_sums(o);
        pack(s, weights);
        if (grows) rescale(o, scale);
      }
      arrive(ring.q_empty());  // the last scores are there
      start_sums(values(), weights, o);
      finish_sums(o);
    }
    store_results<ConsumerThreads>(p.forward, kept.get(), units.t, softmax, o);
  }

  __device__ __forceinline__ void run() {
    turns.begin();
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
  constexpr unsigned kMultiply = ConsumerConfig<Config>::kThreads;
  if (threadIdx.x == kMultiply) {
    prefetch_tensor_map(p.q);
    if (p.forward.seq_k > 0) {  // without keys there are no maps of them
      prefetch_tensor_map(p.k);
      prefetch_tensor_map(p.v);
    }
    ring.init();
  }
  clear_unused_rows(p.forward, ring);
  __syncthreads();  // the barriers and what is cleared are there for all
  if (threadIdx.x >= kMultiply) {
    give_registers<kMultiply == 256 ? kCopyingRegisters : 32>();
    if (threadIdx.x == kMultiply) AttentionCopies<Config>{p, ring}.run();
  } else {
    take_registers<kMultiply == 256 ? kMultiplyingRegisters : 160>();
    AttentionMultiplier<Config>{p, ring, {threadIdx.x / 128}}.run();
  }
}

}  // namespace lathe
