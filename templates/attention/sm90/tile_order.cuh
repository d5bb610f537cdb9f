// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which tiles a persistent block of the forward works on, and in which order. All threads of a
// block ask for the same turns and get the same tiles.
#pragma once
#include "attention/query_tile.cuh"
#include "params/attention_warpgroups.h"

namespace lathe {

// A turn gives each block of the grid one tile at most.
//
// Under a mask the tiles of a head differ in length. Tiles of a section of heads, whose keys and
// values L2 can hold, are sorted from long to short and dealt out row by row, every second row
// backwards: two rows together give each block the same, but for the end of a section, where tiles
// are short.
//
// Packed sequences have no common number of tiles. Tile t of sequence b has the slot
// floor(start_b / M) + b + t of its head: slots of a sequence never meet those of the next one,
// and there are Tq / M + N of them, of which some are nobody's. M is how many tokens a tile has.
template <class Config>
struct TileOrder {
  const AttentionForwardParams& forward;
  const AttentionTileOrder& p;

  static constexpr bool kSorted = Config::kLocal && !Config::kPacked;

  __device__ __forceinline__ int heads() const {
    return Config::kPackGqa ? forward.kv_heads : forward.heads;
  }
  __device__ __forceinline__ unsigned turns() const { return p.turns; }

  // Returns whether the block has a tile in this turn.
  __device__ __forceinline__ bool tile(unsigned turn, QueryTile& out) const {
    const unsigned dealt =
        Config::kLocal && turn % 2 == 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    if constexpr (Config::kPacked) {
      const long long at = static_cast<long long>(turn) * gridDim.x + dealt;
      if (at >= p.blocks) return false;
      const int slots = static_cast<int>(p.blocks / heads());
      const int slot = static_cast<int>(at % slots);
      const int sequence = sequence_of(slot);
      out = query_tile_at<Config>(forward, sequence, static_cast<int>(at / slots),
                                  slot - first_slot(sequence));
    } else if constexpr (kSorted) {
      const unsigned tiles = forward.tiles, section = turn / p.section_turns;
      const unsigned first_head = section * p.section;
      const unsigned left = static_cast<unsigned>(p.blocks / tiles) - first_head;
      const unsigned wide = left < static_cast<unsigned>(p.section) ? left : p.section;
      const unsigned at = turn % p.section_turns * gridDim.x + dealt;
      if (at >= wide * tiles) return false;
      out = query_tile<Config>(forward, (first_head + at % wide) * tiles + at / wide);
    } else {
      const long long at = static_cast<long long>(turn) * gridDim.x + dealt;
      if (at >= p.blocks) return false;
      out = query_tile<Config>(forward, static_cast<unsigned>(at));
    }
    return out.first / (Config::kPackGqa ? out.group : 1) < out.written;
  }

 private:
  // Returns the first slot of a sequence's tiles among the slots of a head.
  __device__ __forceinline__ int first_slot(int sequence) const {
    using Offset = typename Config::CuSeqlens;
    if (forward.sequences == 0) return 0;
    const int group = Config::kPackGqa ? forward.heads / forward.kv_heads : 1;
    return offset_at<Offset>(forward.cu_seqlens_q, sequence, forward.seq_q) /
               (Config::kTileM / group) +
           sequence;
  }
  // The last sequence whose slots begin at `slot` or before it.
  __device__ __forceinline__ int sequence_of(int slot) const {
    int low = 0, high = forward.sequences;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_slot(middle) <= slot) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

}  // namespace lathe
