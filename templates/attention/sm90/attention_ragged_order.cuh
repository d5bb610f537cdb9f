// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_ragged_order: which block of threads works on which tile of packed queries, and when.
//
// The items, splits of tiles (ragged_shares.cuh), stand in an order in which those that share keys
// are neighbours, and those with most keys come first. A turn gives each block of threads one: the
// next items, of which the one with most keys goes to the block that has had least so far, and so
// on. So all blocks end together, whatever the lengths are, to within the last turns' short tiles.
// One block of threads does it ahead of the attention.
#pragma once
#include "attention/sm90/ragged_shares.cuh"

namespace lathe {

// The cost of an item, in quarters of a block of keys of a tile of many rows. One of few rows waits
// for memory; what begins and ends a tile counts as one block.
constexpr int kBlockCost = 4, kFewRowsCost = 6, kTileCost = 4;

template <class Config>
struct RaggedOrderSmem {
  static constexpr int kCosts = RaggedSharesSmem<Config>::kBytes;
  static constexpr int kLoads = kCosts + 4 * Config::kThreads;
  static constexpr int kBundleLoads = kLoads + 4 * Config::kThreads;
  static constexpr int kByLoad = kBundleLoads + 4 * Config::kThreads;
  static constexpr int kMixed = kByLoad + 4 * Config::kThreads;
  static constexpr int kRanks = kMixed + 4 * Config::kThreads;
  static constexpr int kBytes = kRanks + 4 * Config::kThreads;
};

template <class Config>
struct RaggedOrder {
  using Smem = RaggedOrderSmem<Config>;
  static constexpr int kThreads = Config::kThreads, kTileN = Config::kTileN;
  // Blocks of threads are sorted by bundles: to compare all of them takes sixteen times as long,
  // and shares no better.
  static constexpr int kBundle = Config::kBundle;

  const AttentionRaggedOrderParams& p;
  const RaggedWork* const work_list;
  unsigned* const costs;         // sort keys, of the items of some turns
  int* const loads;              // of each block of threads so far
  unsigned* const bundle_loads;  // sort keys
  int* const by_load;            // blocks of threads, that of the least load first
  int* const mixed;              // of each turn: whether its items are not in their order
  int* const ranks;              // of the items of some turns

  const int group, tokens;  // query heads of a key head, and tokens of a tile
  const int few;            // tokens of a sequence whose tiles have few rows

  // The entry that item `at` is of: the last one that begins there or before it.
  template <class ItemsBefore>
  __device__ __forceinline__ int entry_of(int at, const ItemsBefore& items_before) const {
    int low = 0, high = p.decode.forward.sequences + 1;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      const bool before = items_before(middle) <= at;
      low = before ? middle : low, high = before ? high : middle;
    }
    return low;
  }
  __device__ __forceinline__ RaggedWork work_at(int at) const {
    if (p.decode.forward.sequences < kThreads) {
      return work_list[entry_of(at, [&](int i) { return work_list[i].entry.items; })];
    }
    const auto* entries = static_cast<const AttentionRaggedEntry*>(p.entries);
    const AttentionRaggedEntry entry =
        entries[entry_of(at, [&](int i) { return entries[i].items; })];
    return ragged_work(p, entry, RaggedSequence<Config>(p.decode, entry.sequence, group));
  }
  // Within a sequence, tiles of a section of heads, whose keys L2 can hold, go from the last one,
  // which sees most under a causal mask, to the first one; splits are slower still. Returns the
  // cost.
  __device__ __forceinline__ int item_at(int at, AttentionRaggedItem& out) const {
    const AttentionForwardParams& f = p.decode.forward;
    const RaggedWork of = work_at(at);
    const unsigned tiles = of.tiles, all = tiles * f.kv_heads, within = at - of.entry.items;
    const unsigned split = of.entry.splits > 1 ? within / all : 0, left = within - split * all;
    const unsigned wide = of.wide;
    const unsigned section = of.wide < f.kv_heads ? left / (wide * tiles) : 0;
    const unsigned of_section = left - section * wide * tiles;
    const unsigned at_once = minimum(wide, f.kv_heads - section * wide);
    out.sequence = of.entry.sequence;
    const unsigned from_last = of_section / at_once;
    out.head = static_cast<int>(section * wide + of_section - from_last * at_once);
    out.tile = static_cast<int>(tiles - 1 - from_last);
    out.split = static_cast<int>(split), out.splits = of.entry.splits;
    if (out.splits > 1) {
      const int slots = RaggedSequence<Config>::partial_slots(of.rows, group);
      const int before = (out.head * of.tiles + out.tile) * out.splits + out.split;
      out.partial = (of.entry.slots + before * slots) * kPartialRows;
    }
    return cost(of, out);
  }
  __device__ __forceinline__ int cost(const RaggedWork& of, const AttentionRaggedItem& item) const {
    const AttentionForwardParams& f = p.decode.forward;
    const int first = item.tile * tokens;
    const int last = minimum(first + tokens, of.rows), ahead = of.keys - of.rows;
    const int end =
        f.window_right < 0 ? of.keys : minimum(of.keys, maximum(ahead + last + f.window_right, 0));
    const int begin = f.window_left < 0 ? 0 : maximum(ahead + first - f.window_left, 0);
    const int blocks = maximum(ceil_div(end, kTileN) - begin / kTileN, 0);
    const int part = item.splits > 1 ? ceil_div(blocks, item.splits) : blocks;
    const int visited = maximum(minimum(blocks - item.split * part, part), 0);
    return kTileCost + visited * (of.rows <= few ? kFewRowsCost : kBlockCost);
  }

  // Sorts the blocks of threads by the loads of their bundles, and within a bundle by their own. By
  // all threads, of which each has a block at most.
  __device__ __forceinline__ void sort_blocks() const {
    const int thread = static_cast<int>(threadIdx.x), count = p.blocks / kBundle;
    const int lane = thread % kBundle, bundle = thread / kBundle;
    const int mine = loads[thread];
    int load = mine, place = 0;
#pragma unroll
    for (int other = 1; other < kBundle; ++other) {
      const int value = __shfl_xor_sync(~0u, mine, other);
      load += value;
      place += value < mine || (value == mine && (lane ^ other) < lane);
    }
    const unsigned key = sort_key(load, bundle);
    if (lane == 0 && bundle < count) bundle_loads[bundle] = key;
    __syncthreads();  // the loads of bundles are there
    int rank = bundle < count ? keys_below(bundle_loads, count, key, lane, kBundle) : 0;
#pragma unroll
    for (int other = 1; other < kBundle; other *= 2) rank += __shfl_xor_sync(~0u, rank, other);
    if (bundle < count) by_load[rank * kBundle + place] = thread;
    __syncthreads();  // the blocks are sorted
  }
  // The place of a thread's item among those of its turn, the dearest first. Mostly they stand in
  // this order; where not, all threads compare them.
  __device__ __forceinline__ int rank_of(int cost, int row, int column, int at_once) const {
    const int thread = static_cast<int>(threadIdx.x), count = p.blocks;
    const bool there = row < at_once;
    costs[thread] = falling_key(cost, column);
    ranks[thread] = 0, mixed[thread] = 0;
    __syncthreads();  // the costs are there
    if (there && column > 0 && costs[thread - 1] > costs[thread]) atomicOr(mixed + row, 1);
    __syncthreads();  // every turn has been looked at
    for (int r = 0; r < at_once; ++r) {
      if (mixed[r] == 0 || !there) continue;
      const unsigned* const turn = costs + r * count;
      const unsigned key = turn[column];
      int below = 0;
      if (count % 4 == 0) {
        below = keys_below(turn, count, key, row, at_once);
      } else {
        for (int i = row; i < count; i += at_once) below += turn[i] < key;
      }
      atomicAdd(ranks + r * count + column, below);
    }
    __syncthreads();  // all have been compared
    return there && mixed[row] != 0 ? ranks[thread] : column;
  }

  static __device__ __forceinline__ void put(const AttentionRaggedItem& item,
                                             AttentionRaggedItem* to) {
    Words<16> first, second = {};
    first.word[0] = item.sequence, first.word[1] = item.head;
    first.word[2] = item.tile, first.word[3] = item.split;
    second.word[0] = item.splits, second.word[1] = item.partial;
    store_global(to, first);
    store_global(&to->splits, second);
  }
  __device__ __forceinline__ void run(int items) const {
    const int thread = static_cast<int>(threadIdx.x), blocks = p.blocks;
    const int turns = ceil_div(items, blocks), at_once = kThreads / blocks;
    const int row = thread / blocks, column = thread % blocks;  // a thread has one item at a time
    loads[thread] = 0;
    bundle_loads[thread] = kNoKey;
    __syncthreads();  // what nobody adds up is there
#pragma unroll 1
    for (int turn = 0; turn < turns; turn += at_once) {
      const int at = (turn + row) * blocks + column;
      AttentionRaggedItem item = {-1, 0, 0, 0, 1, 0, {0, 0}};
      const int cost = row < at_once && at < items ? item_at(at, item) : 0;
      const int rank = rank_of(cost, row, column, at_once);
#pragma unroll 1
      for (int r = 0; r < at_once && turn + r < turns; ++r) {
        sort_blocks();
        if (row == r) {
          const int owner = by_load[rank];  // of the dearest item that of the least load
          loads[owner] += cost;
          put(item, static_cast<AttentionRaggedItem*>(p.items) + ((turn + r) * blocks + owner));
        }
        __syncthreads();  // the loads are there
      }
    }
  }
};

template <class Config>
__device__ void attention_ragged_order(const AttentionRaggedOrderParams& p) {
  using Smem = RaggedOrderSmem<Config>;
  using Shares = RaggedSharesSmem<Config>;
  extern __shared__ __align__(16) char shared[];
  const int group = p.decode.forward.heads / p.decode.forward.kv_heads;
  auto* const work = reinterpret_cast<RaggedWork*>(shared + Shares::kWork);
  const RaggedShares<Config> shares = {p, work,
                                       reinterpret_cast<long long*>(shared + Shares::kValues),
                                       reinterpret_cast<unsigned*>(shared + Shares::kSizes),
                                       reinterpret_cast<long long*>(shared + Shares::kSums)};
  const RaggedOrder<Config> order = {p,
                                     work,
                                     reinterpret_cast<unsigned*>(shared + Smem::kCosts),
                                     reinterpret_cast<int*>(shared + Smem::kLoads),
                                     reinterpret_cast<unsigned*>(shared + Smem::kBundleLoads),
                                     reinterpret_cast<int*>(shared + Smem::kByLoad),
                                     reinterpret_cast<int*>(shared + Smem::kMixed),
                                     reinterpret_cast<int*>(shared + Smem::kRanks),
                                     group,
                                     Config::kTileM / group,
                                     kFewRows / group};
  const int items = shares.run();
  __syncthreads();  // the entries are there for all
  order.run(items);
}

}  // namespace lathe
