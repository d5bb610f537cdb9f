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

template <class Config>
struct RaggedQueue {
  const AttentionRaggedWarpgroupsParams& p;
  int group, turns;

  __device__ __forceinline__ explicit RaggedQueue(const AttentionRaggedWarpgroupsParams& params)
      : p(params), group(params.decode.forward.heads / params.decode.forward.kv_heads) {
    const auto* entries = static_cast<const AttentionRaggedEntry*>(p.entries);
    const int items = load_element(&entries[p.decode.forward.sequences + 1].items);
    turns = ceil_div(items, static_cast<int>(gridDim.x));
  }

  // The tile of a turn, or of the next one that has a tile for the block. Returns whether there is
  // one.
  __device__ __forceinline__ bool find(int& turn, RaggedTile& out) const {
    Words<16> words[2];
    for (;; ++turn) {
      if (turn >= turns) return false;
      const auto* from = static_cast<const AttentionRaggedItem*>(p.items) +
                         (static_cast<long long>(turn) * gridDim.x + blockIdx.x);
      load_global(from, words[0]);
      load_global(&from->splits, words[1]);
      if (static_cast<int>(words[0].word[0]) >= 0) break;
    }
    const auto word = [&](int i) { return static_cast<int>(words[i / 4].word[i % 4]); };
    const int number = word(0);
    const RaggedSequence<Config> sequence(p.decode, number, group);
    QueryTile& tile = out.tile;
    tile.head = tile.kv_head = word(1);
    tile.first = word(2) * (Config::kTileM / group * group);
    // Rows of padding look up nothing that belongs to a sequence.
    tile.sequence = maximum(minimum(number, p.decode.forward.sequences - 1), 0);
    tile.group = group, tile.list = 0;
    tile.start_q = sequence.start, tile.start_k = 0;
    tile.rows = sequence.rows, tile.keys = sequence.keys, tile.written = sequence.written;
    out.split = {word(3), word(4), word(5)};
    return true;
  }
};

// Messages of the producer to the consumers of a tile, two tiles at a time: [words][barriers],
// behind the ring.
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
