// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which tiles of packed queries a persistent block works on, in the order that
// attention_ragged_order has made.
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

}  // namespace lathe
