// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Into how many splits the tiles of packed queries are cut, and in which order sequences are worked
// on. With i over sequences, HK key heads and S blocks of threads:
//
//   tiles_i = ceil(rows_i / tokens of a tile),  blocks_i: blocks of kTileN keys of its last tile
//   seen_i  = the same of its average tile, W = HK sum_i tiles_i seen_i
//   part    = max(ceil(W / S), kLeastPart); of tiles of few rows max(W / 8 S + 1, kLeastPart)
//   splits_i = clamp(ceil(blocks_i / part), 1, kMostSplits)
//
// A partial result of few rows costs next to nothing, and small parts are dealt out more evenly.
// Sequences are sorted by the keys of a split, the most first, among each kThreads of them.
#pragma once
#include "attention/decode/ragged.cuh"
#include "attention/sm90/ragged_sequence.cuh"

namespace lathe {

// Keys of a sort are numbers with a place of kPlaceBits behind them, so that no two are equal.
constexpr int kPlaceBits = 9;
constexpr int kMostNumber = (1 << (32 - kPlaceBits)) - 2;
constexpr unsigned kNoKey = 0xffffffffu;
__device__ __forceinline__ unsigned sort_key(int number, int place) {
  return static_cast<unsigned>(minimum(number, kMostNumber)) << kPlaceBits | place;
}
// The same, the largest number first.
__device__ __forceinline__ unsigned falling_key(int number, int place) {
  return sort_key(kMostNumber - minimum(number, kMostNumber), place);
}
// How many of `count` keys are below one: its place in the order, or the part that lane i of
// `lanes` finds, which compares every lanes-th four of them. kNoKey fills the last four.
__device__ __forceinline__ int keys_below(const unsigned* keys, int count, unsigned key, int lane,
                                          int lanes) {
  const auto* fours = reinterpret_cast<const uint4*>(keys);
  int below = 0;
#pragma unroll 4
  for (int i = lane; i < (count + 3) / 4; i += lanes) {
    const uint4 four = fours[i];
    below += (four.x < key) + (four.y < key) + (four.z < key) + (four.w < key);
  }
  return below;
}

constexpr int kFewRows = 16;  // of a tile
constexpr int kPartsOfFewRows = 8;

// An entry of the order, and its sequence. wide: key heads whose tiles run side by side.
struct RaggedWork {
  AttentionRaggedEntry entry;
  int rows, keys, tiles, wide;
};
template <class Config>
__device__ __forceinline__ RaggedWork ragged_work(const AttentionRaggedOrderParams& p,
                                                  const AttentionRaggedEntry& entry,
                                                  const RaggedSequence<Config>& of) {
  const int fit = p.section_keys / maximum(of.keys, 1);
  return {entry, of.rows, of.keys, of.tiles, minimum(maximum(fit, 1), p.decode.forward.kv_heads)};
}

template <class Config>
struct RaggedSharesSmem {
  static constexpr int kWork = 0, kValues = 32 * Config::kThreads;
  static constexpr int kSizes = kValues + 8 * Config::kThreads;
  static constexpr int kSums = kSizes + 4 * Config::kThreads;
  static constexpr int kBytes = kSums + 8 * (Config::kThreads / 32);
};

template <class Config>
struct RaggedShares {
  using Smem = RaggedSharesSmem<Config>;
  static constexpr int kThreads = Config::kThreads, kWarps = kThreads / 32;

  const AttentionRaggedOrderParams& p;
  RaggedWork* const work_list;  // of the first kThreads entries
  long long* const values;
  unsigned* const sizes;
  long long* const sums;

  struct Share {
    RaggedWork work;
    int splits, size;  // size: blocks of keys of a split
    long long tiles;   // of all key heads
    int slots;         // of a split of a tile
  };

  __device__ __forceinline__ int heads() const { return p.decode.forward.kv_heads; }
  __device__ __forceinline__ int group() const { return p.decode.forward.heads / heads(); }

  // Blocks of keys that the last tile of a sequence sees, which sees most under a causal mask, and
  // that an average tile does.
  struct Blocks {
    long long most, average;
  };
  __device__ __forceinline__ Blocks blocks(const RaggedSequence<Config>& of) const {
    const AttentionForwardParams& f = p.decode.forward;
    long long keys = of.keys, average = keys;
    if (f.window_left >= 0 && f.window_right >= 0) {  // which hides the rest from a tile
      const long long window =
          static_cast<long long>(f.window_left) + f.window_right + Config::kTileM / group();
      keys = keys < window ? keys : window, average = keys;
    } else if (f.window_right >= 0) {
      average -= minimum(of.rows, of.keys) / 2;
    }
    return {(keys + Config::kTileN - 1) / Config::kTileN,
            (average + Config::kTileN - 1) / Config::kTileN};
  }

  // The sum of what the threads have, in all of them.
  __device__ __forceinline__ long long sum(long long value) const {
    value = RaggedBlocks<Config>::warp_sum(value);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();  // the sums of all warps are there
    long long all = 0;
    for (int w = 0; w < kWarps; ++w) all += sums[w];
    __syncthreads();  // all have read them
    return all;
  }
  // The sum of the values of those threads that are ahead of this one in the order, and of all.
  __device__ __forceinline__ long long ahead(int rank, long long value, long long& all) const {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    values[rank] = value;
    __syncthreads();  // the values are in order
    const long long mine = values[thread];
    const long long end = RaggedBlocks<Config>::warp_scan(mine);
    if (thread % 32 == 31) sums[warp] = end;
    __syncthreads();  // the sums of all warps are there
    long long at = end - mine;
    all = 0;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) at += sums[w];
      all += sums[w];
    }
    values[thread] = at;
    __syncthreads();  // the results are there
    const long long out = values[rank];
    __syncthreads();  // all have read theirs
    return out;
  }

  __device__ __forceinline__ long long work() const {
    long long all = 0;
    for (int i = threadIdx.x; i < p.decode.forward.sequences; i += kThreads) {
      const RaggedSequence<Config> of(p.decode, i, group());
      all += of.tiles * blocks(of).average;
    }
    return sum(all) * heads();
  }
  // `part`: blocks of keys of a split, and of one of few rows; 0: num_splits is given.
  __device__ __forceinline__ Share share(int number, long long part, long long small_part) const {
    const RaggedSequence<Config> of(p.decode, number, group());
    const long long blocks = this->blocks(of).most;
    Share out = {ragged_work(p, {0, 0, number, 1}, of), 1, 0,
                 static_cast<long long>(of.tiles) * heads(),
                 RaggedSequence<Config>::partial_slots(of.rows, group())};
    const bool few = of.rows <= kFewRows / group();
    const long long of_one = few ? small_part : part;
    const long long wanted = of_one > 0 ? (blocks + of_one - 1) / of_one : blocks;
    const long long most = of_one > 0 ? kMostSplits : p.decode.splits;
    const long long count = wanted < most ? wanted : most;
    out.splits = count > 1 && p.decode.slots > 0 ? static_cast<int>(count) : 1;
    out.size = static_cast<int>((blocks + out.splits - 1) / out.splits);
    return out;
  }
  // Where the thread's sequence comes among `count`, of which each thread has one: that of the
  // largest splits first.
  __device__ __forceinline__ int rank(int size, int count) const {
    const int thread = static_cast<int>(threadIdx.x);
    const unsigned key = thread < count ? falling_key(size, thread) : kNoKey;
    sizes[thread] = key;
    __syncthreads();  // the sizes are there
    return thread < count ? keys_below(sizes, count, key, 0, 1) : thread;
  }

  static __device__ __forceinline__ int saturated(long long value) {
    return static_cast<int>(value < 0x7fffffff ? value : 0x7fffffff);
  }
  // By all threads of a block. Returns how many items there are.
  __device__ __forceinline__ int run() const {
    const int thread = static_cast<int>(threadIdx.x), sequences = p.decode.forward.sequences + 1;
    long long part = 0, small_part = 0;
    if (p.decode.share > 0) {
      const long long work = this->work(), share = p.decode.share;
      part = (work + share - 1) / share, small_part = part / kPartsOfFewRows + 1;
      part = part > kLeastPart ? part : kLeastPart;
      small_part = small_part > kLeastPart ? small_part : kLeastPart;
    }
    AttentionRaggedEntry* const entries = static_cast<AttentionRaggedEntry*>(p.entries);
    long long items = 0, slots = 0, used = 0;
#pragma unroll 1
    for (int first = 0; first < sequences; first += kThreads) {
      const int count = minimum(sequences - first, kThreads);
      Share share = {{}, 1, -1, 0, 0};
      if (thread < count) share = this->share(first + thread, part, small_part);
      const int rank = this->rank(share.size, count);
      long long all = 0;
      const long long more = share.splits > 1 ? share.tiles * share.splits * share.slots : 0;
      const long long slots_at = slots + ahead(rank, more, all);
      slots += all;
      // Offsets that nobody has checked may ask for more than there is room for: tiles are whole.
      const bool fits = slots_at + more <= p.decode.slots;
      if (!fits) share.splits = 1;
      used += sum(fits ? more : 0);
      const long long items_at = items + ahead(rank, share.tiles * share.splits, all);
      items += all;
      if (thread >= count) continue;
      AttentionRaggedEntry& entry = share.work.entry;
      entry.items = saturated(items_at), entry.slots = saturated(slots_at);
      entry.splits = share.splits;
      entries[first + rank] = entry;
      if (first == 0) work_list[rank] = share.work;
    }
    // Offsets that nobody has checked may ask for more items, too.
    const long long most = static_cast<long long>(p.most_turns) * p.blocks;
    items = items < most ? items : most;
    if (thread > 0) return static_cast<int>(items);
    AttentionRaggedEntry totals = {static_cast<int>(items), static_cast<int>(used), 0, 0};
    entries[sequences] = totals;
    if (p.decode.slots > 0) *static_cast<int*>(p.decode.used_slots) = static_cast<int>(used);
    return static_cast<int>(items);
  }
};

}  // namespace lathe
