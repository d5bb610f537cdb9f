// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_ragged_order: which tiles the packed queries of a call have, into how many splits their
// keys are cut, and in which order they are worked on. With i over sequences, HK key heads and S
// blocks of threads:
//
//   tiles_i = ceil(rows_i / tokens of a tile),  blocks_i: blocks of kTileN keys of its last tile
//   seen_i  = the same of its average tile, W = HK sum_i tiles_i seen_i
//   part    = max(ceil(W / S), kLeastPart); of tiles of few rows max(ceil(W / 4 S), kLeastPart)
//   splits_i = clamp(ceil(blocks_i / part), 1, kMostSplits)
//
// A partial result of few rows costs next to nothing, and small parts are dealt out more evenly.
// Sequences are sorted by the keys of a split, the most first, among each kThreads of them. One
// block of threads does it ahead of the attention, whose blocks then find each tile by a search.
#pragma once
#include "attention/decode/ragged.cuh"
#include "attention/sm90/ragged_sequence.cuh"

namespace lathe {

constexpr int kFewRows = 16;  // of a tile
constexpr int kPartsOfFewRows = 4;

template <class Config>
struct RaggedOrderSmem {
  static constexpr int kValues = 0, kSizes = 8 * Config::kThreads;
  static constexpr int kSums = kSizes + 4 * Config::kThreads;
  static constexpr int kBytes = kSums + 8 * (Config::kThreads / 32);
};

template <class Config>
struct RaggedOrder {
  using Smem = RaggedOrderSmem<Config>;
  static constexpr int kThreads = Config::kThreads, kWarps = kThreads / 32;

  const AttentionRaggedOrderParams& p;
  long long* const values;
  int* const sizes;
  long long* const sums;

  struct Share {
    int sequence, splits, size;  // size: blocks of keys of a split
    long long tiles;             // of all key heads
    int groups;                  // of partial results of a split of a tile
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
    Share out = {number, 1, 0, static_cast<long long>(of.tiles) * heads(),
                 RaggedSequence<Config>::partial_groups(of.rows, group())};
    const bool few = of.rows <= kFewRows / group();
    const long long of_one = few ? small_part : part;
    const long long wanted = of_one > 0 ? (blocks + of_one - 1) / of_one : blocks;
    const long long most = of_one > 0 ? kMostSplits : p.decode.splits;
    const long long count = wanted < most ? wanted : most;
    out.splits = count > 1 && p.decode.slots > 0 ? static_cast<int>(count) : 1;
    out.size = static_cast<int>((blocks + out.splits - 1) / out.splits);
    return out;
  }
  // Where the thread's sequence comes among `count`, of which each thread has one.
  __device__ __forceinline__ int rank(int size, int count) const {
    const int thread = static_cast<int>(threadIdx.x);
    sizes[thread] = size;
    __syncthreads();  // the sizes are there
    int rank = 0;
    for (int i = 0; i < count; ++i) {
      const int other = sizes[i];
      rank += other > size || (other == size && i < thread);
    }
    return thread < count ? rank : thread;
  }

  static __device__ __forceinline__ int saturated(long long value) {
    return static_cast<int>(value < 0x7fffffff ? value : 0x7fffffff);
  }
  __device__ __forceinline__ void run() const {
    const int thread = static_cast<int>(threadIdx.x), sequences = p.decode.forward.sequences + 1;
    long long part = 0, small_part = 0;
    if (p.decode.share > 0) {
      const long long work = this->work(), share = p.decode.share;
      part = (work + share - 1) / share, small_part = part / kPartsOfFewRows + 1;
      part = part > kLeastPart ? part : kLeastPart;
      small_part = small_part > kLeastPart ? small_part : kLeastPart;
    }
    AttentionRaggedEntry* const order = static_cast<AttentionRaggedEntry*>(p.order);
    long long items = 0, groups = 0, used = 0;
#pragma unroll 1
    for (int first = 0; first < sequences; first += kThreads) {
      const int count = minimum(sequences - first, kThreads);
      Share share = {0, 1, -1, 0, 0};
      if (thread < count) share = this->share(first + thread, part, small_part);
      const int rank = this->rank(share.size, count);
      long long all = 0;
      const long long more = share.splits > 1 ? share.tiles * share.splits * share.groups : 0;
      const long long groups_at = groups + ahead(rank, more, all);
      groups += all;
      // Offsets that nobody has checked may ask for more than there is room for: tiles are whole.
      const bool fits = groups_at + more <= p.decode.slots;
      if (!fits) share.splits = 1;
      used += sum(fits ? more : 0);
      const long long items_at = items + ahead(rank, share.tiles * share.splits, all);
      items += all;
      if (thread >= count) continue;
      AttentionRaggedEntry entry = {saturated(items_at), saturated(groups_at), share.sequence,
                                    share.splits};
      order[first + rank] = entry;
    }
    if (thread > 0) return;
    AttentionRaggedEntry totals = {saturated(items), saturated(groups), 0, 0};
    order[sequences] = totals;
    if (p.decode.slots > 0) *static_cast<int*>(p.decode.used_slots) = static_cast<int>(used);
  }
};

template <class Config>
__device__ void attention_ragged_order(const AttentionRaggedOrderParams& p) {
  using Smem = RaggedOrderSmem<Config>;
  extern __shared__ __align__(16) char shared[];
  RaggedOrder<Config>{p, reinterpret_cast<long long*>(shared + Smem::kValues),
                      reinterpret_cast<int*>(shared + Smem::kSizes),
                      reinterpret_cast<long long*>(shared + Smem::kSums)}
      .run();
}

}  // namespace lathe
