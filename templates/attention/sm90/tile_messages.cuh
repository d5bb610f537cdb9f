// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How a warp of a persistent block tells others, the readers, which tiles they work on.
#pragma once
#include "attention/query_tile.cuh"
#include "common/mbarrier.cuh"
#include "common/shared_memory.cuh"

namespace lathe {

// [words][barriers]. One tile is at work, the next one is known, and there is a place for the one
// behind it. A message is a tile and three words more, which a kernel may use. Each reader arrives
// once: a warp of the consumers, or who copies.
template <int kReaders>
struct TileMessages {
  static constexpr int kStages = 3, kWords = 16;
  static constexpr int kBytes = kStages * (4 * kWords + 16);
  static constexpr int kNoTile = -1;  // in place of the sequence: no tile follows
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
      mbarrier_init(empty(stage), kReaders);
    }
  }
  // By one thread. A message without a tile is the last one.
  __device__ __forceinline__ void send(bool there, const QueryTile& tile, const State& state,
                                       int own0 = 0, int own1 = 0, int own2 = 0) const {
    const unsigned to = words(state.stage);
    mbarrier_wait(empty(state.stage), state.phase ^ 1);
    const auto put = [&](unsigned at, int a, int b, int c, int d) {
      const unsigned word[4] = {static_cast<unsigned>(a), static_cast<unsigned>(b),
                                static_cast<unsigned>(c), static_cast<unsigned>(d)};
      store_shared_words(to + at, word);
    };
    put(0, there ? tile.sequence : kNoTile, tile.head, tile.start_q, tile.first);
    put(16, tile.rows, tile.written, tile.keys, tile.start_k);
    put(32, static_cast<int>(tile.list), static_cast<int>(tile.list >> 32), tile.kv_head, own0);
    put(48, own1, own2, 0, 0);
    mbarrier_arrive(full(state.stage));
  }
  // Waits for a message. Returns whether it has a tile.
  __device__ __forceinline__ bool wait(const State& state) const {
    mbarrier_wait(full(state.stage), state.phase);
    return uniform(load_shared_word(words(state.stage)) != kNoTile);
  }
  // Reads a message that has come.
  __device__ __forceinline__ QueryTile read(const State& state, int group) const {
    unsigned a[4], b[4], c[4];
    load_shared_words(words(state.stage), a);
    load_shared_words(words(state.stage) + 16, b);
    load_shared_words(words(state.stage) + 32, c);
    QueryTile tile;
    tile.sequence = static_cast<int>(a[0]), tile.head = static_cast<int>(a[1]);
    tile.start_q = static_cast<int>(a[2]), tile.first = static_cast<int>(a[3]);
    tile.rows = static_cast<int>(b[0]), tile.written = static_cast<int>(b[1]);
    tile.keys = static_cast<int>(b[2]), tile.start_k = static_cast<int>(b[3]);
    tile.list = static_cast<long long>(c[1]) << 32 | c[0];
    tile.kv_head = static_cast<int>(c[2]), tile.group = group;
    return tile;
  }
  // Reads the kernel's own words.
  __device__ __forceinline__ void read_own(const State& state, int (&own)[3]) const {
    own[0] = load_shared_word(words(state.stage) + 44);
    own[1] = load_shared_word(words(state.stage) + 48);
    own[2] = load_shared_word(words(state.stage) + 52);
  }
  // By each consumer warp, when all of its lanes have read the message for the last time.
  __device__ __forceinline__ void release(const State& state) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(state.stage));
  }
};

}  // namespace lathe
