// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which tiles of dense tensors a persistent block of the forward works on, and in which order. All
// threads of a block ask for the same turns and get the same tiles.
#pragma once
#include "attention/query_tile.cuh"
#include "params/attention_warpgroups.h"

namespace lathe {

// A turn gives each block of the grid one tile at most.
//
// Under a mask the tiles of a head differ in length. Tiles of a section of heads, whose keys and
// values L2 can hold, are sorted from long to short and dealt out row by row, every second row
// backwards: two rows together give each block the same, but for the end of a section, where tiles
// are short. From long to short is from the last tile of a head to the first, or with first_longest
// from the first to the last. So that the ends of all sections do not fall to the same blocks, the
// order begins some blocks further on after each section, or after each second one, which is a
// whole pair of rows.
template <class Config>
struct TileOrder {
  const AttentionForwardParams& forward;
  const AttentionTileOrder& p;

  __device__ __forceinline__ unsigned turns() const { return p.turns; }

  // Returns whether the block has a tile in this turn.
  __device__ __forceinline__ bool tile(unsigned turn, QueryTile& out) const {
    if constexpr (Config::kLocal) {
      const unsigned tiles = forward.tiles, section = turn / p.section_turns;
      const unsigned moved = (section >> (p.section_turns & 1)) * p.shift;
      unsigned dealt = (blockIdx.x + moved) % gridDim.x;
      if (turn % 2 == 1) dealt = gridDim.x - 1 - dealt;
      const unsigned first_head = section * p.section;
      const unsigned left = static_cast<unsigned>(p.blocks / tiles) - first_head;
      const unsigned wide = left < static_cast<unsigned>(p.section) ? left : p.section;
      const unsigned at = turn % p.section_turns * gridDim.x + dealt;
      if (at >= wide * tiles) return false;
      const unsigned number = p.first_longest ? tiles - 1 - at / wide : at / wide;
      out = query_tile<Config>(forward, (first_head + at % wide) * tiles + number);
    } else {
      const long long at = static_cast<long long>(turn) * gridDim.x + blockIdx.x;
      if (at >= p.blocks) return false;
      out = query_tile<Config>(forward, static_cast<unsigned>(at));
    }
    shorten_first<Config>(forward, p.missing, out);
    return true;
  }
};

}  // namespace lathe
