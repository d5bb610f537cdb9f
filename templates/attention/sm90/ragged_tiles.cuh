// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which tiles of packed queries a persistent block works on, in the order that
// attention_ragged_order has made, and how the producer tells the consumers of them.
#pragma once
#include "attention/decode/ragged.cuh"
#include "attention/sm90/attention_producer.cuh"
#include "attention/sm90/ragged_sequence.cuh"

namespace lathe {

// One split of one tile.
struct RaggedTile {
  QueryTile tile;
  DecodeSplit split;  // slot: the first of its rows of partial results
};

// Items are dealt out row by row, every second row backwards, so that two rows together give each
// block the same. Within a sequence, tiles of a section of heads, whose keys L2 can hold, go from
// the last one, which sees most under a causal mask, to the first one; splits are slower still.
template <class Config>
struct RaggedQueue {
  const AttentionRaggedWarpgroupsParams& p;
  int group, items;

  __device__ __forceinline__ explicit RaggedQueue(const AttentionRaggedWarpgroupsParams& params)
      : p(params),
        group(params.decode.forward.heads / params.decode.forward.kv_heads),
        items(entry(params.decode.forward.sequences + 1).items) {}

  __device__ __forceinline__ AttentionRaggedEntry entry(int number) const {
    AttentionRaggedEntry out;
    Words<16> words;
    load_global(static_cast<const AttentionRaggedEntry*>(p.order) + number, words);
    out.items = static_cast<int>(words.word[0]), out.groups = static_cast<int>(words.word[1]);
    out.sequence = static_cast<int>(words.word[2]), out.splits = static_cast<int>(words.word[3]);
    return out;
  }

  // The tile of a turn, by a whole warp. Returns whether there is one.
  __device__ __forceinline__ bool find(unsigned turn, RaggedTile& out) const {
    const long long at = static_cast<long long>(turn) * gridDim.x +
                         (turn % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
    if (at >= items) return false;
    const int item = static_cast<int>(at);
    const AttentionForwardParams& f = p.decode.forward;
    const int* order = static_cast<const int*>(p.order);
    const AttentionRaggedEntry of = entry(last_before(
        f.sequences + 1, [&](int number) { return load_element(order + 4 * number) <= item; }));
    const RaggedSequence<Config> sequence(p.decode, of.sequence, group);
    const int tiles = sequence.tiles, all = tiles * f.kv_heads, within = item - of.items;
    const int number = within / all, left = within % all;
    const int fit = p.section_keys / maximum(sequence.keys, 1);
    const int wide = minimum(maximum(fit, 1), f.kv_heads);
    const int section = left / (wide * tiles), at_once = minimum(wide, f.kv_heads - section * wide);
    const int of_section = left - section * wide * tiles;
    QueryTile& tile = out.tile;
    tile.head = tile.kv_head = section * wide + of_section % at_once;
    const int tile_number = tiles - 1 - of_section / at_once;
    tile.first = tile_number * (Config::kTileM / group * group);
    // What belongs to a sequence is not looked up for rows of padding.
    tile.sequence = maximum(minimum(of.sequence, f.sequences - 1), 0);
    tile.group = group, tile.list = 0;
    tile.start_q = sequence.start, tile.start_k = 0;
    tile.rows = sequence.rows, tile.keys = sequence.keys, tile.written = sequence.written;
    const int groups = RaggedSequence<Config>::partial_groups(sequence.rows, group);
    const int split = (tile.head * tiles + tile_number) * of.splits + number;
    out.split = {number, of.splits, (of.groups + split * groups) * kPartialRows};
    return true;
  }
};

// What the producer tells the consumers of a tile, two tiles at a time: [words][barriers], behind
// the ring.
template <class Config>
struct TileMessages {
  static constexpr int kStages = 2, kWords = 12;
  static constexpr int kBytes = kStages * (4 * kWords + 16);
  using State = PipelineState<kStages>;
  unsigned shared;

  __device__ __forceinline__ unsigned words(unsigned stage) const {
    return shared + 4 * kWords * stage;
  }
  __device__ __forceinline__ unsigned full(unsigned stage) const {
    return shared + kStages * 4 * kWords + 8 * stage;
  }
  __device__ __forceinline__ unsigned empty(unsigned stage) const { return full(kStages + stage); }

  // By one thread; a fence for barriers and a barrier of the block follow.
  __device__ __forceinline__ void init() const {
    for (unsigned stage = 0; stage < kStages; ++stage) {
      mbarrier_init(full(stage), 1);
      mbarrier_init(empty(stage), ConsumerConfig<Config>::kThreads / 32);
    }
  }
  // By one thread. A message without a tile is the last one.
  __device__ __forceinline__ void send(bool there, const RaggedTile& of, State& state) const {
    const QueryTile& tile = of.tile;
    const unsigned to = words(state.stage);
    mbarrier_wait(empty(state.stage), state.phase ^ 1);
    const auto put = [&](unsigned at, int a, int b, int c, int d) {
      const unsigned word[4] = {static_cast<unsigned>(a), static_cast<unsigned>(b),
                                static_cast<unsigned>(c), static_cast<unsigned>(d)};
      store_shared_words(to + at, word);
    };
    put(0, there ? tile.sequence : kNoSequence, tile.head, tile.start_q, tile.first);
    put(16, tile.rows, tile.written, tile.keys, of.split.number);
    put(32, of.split.count, of.split.slot, 0, 0);
    mbarrier_arrive(full(state.stage));
  }
  // Reads a message that is there.
  __device__ __forceinline__ RaggedTile read(unsigned stage, int group) const {
    unsigned a[4], b[4], c[4];
    load_shared_words(words(stage), a);
    load_shared_words(words(stage) + 16, b);
    load_shared_words(words(stage) + 32, c);
    RaggedTile out;
    QueryTile& tile = out.tile;
    tile.sequence = static_cast<int>(a[0]), tile.head = tile.kv_head = static_cast<int>(a[1]);
    tile.start_q = static_cast<int>(a[2]), tile.first = static_cast<int>(a[3]);
    tile.rows = static_cast<int>(b[0]), tile.written = static_cast<int>(b[1]);
    tile.keys = static_cast<int>(b[2]);
    tile.group = group, tile.start_k = 0, tile.list = 0;
    out.split = {static_cast<int>(b[3]), static_cast<int>(c[0]), static_cast<int>(c[1])};
    return out;
  }
};

}  // namespace lathe
