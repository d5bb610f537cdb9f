// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The order of the tiles of packed sequences, whose lengths only the device knows: a warp finds the
// tile of a position by sums over the sequences.
#pragma once
#include "attention/query_tile.cuh"
#include "common/varlen.cuh"
#include "params/attention_warpgroups.h"

namespace lathe {

// Without a mask tiles are as long as the keys of their sequence. Under a mask, which is nearly
// always causal, tile t of sequence b is of length t + ahead_b, counted in tiles: so many keys lie
// before its last row. With first_longest, where no key behind a row is cut but some before it,
// tiles are counted from the last one and ahead_b is of the keys that the window leaves. Either way
// T_b tiles of a sequence reach some length x, with
//
//   n(x) = sum_b clamp(ahead_b + T_b - x, 0, T_b)     or     n(x) = sum_b T_b [ahead_b >= x]
//
// Tiles of a section are sorted from long to short, as those of dense calls are, and dealt out in
// turns that go on where those of the section before ended, every other one backwards.
// A section is some heads of some neighbouring sequences, whose keys and values L2 can hold. Within
// a length what varies first is the head, then the sequence. All of it follows from the offsets
// alone, so that a tile is the same block's work in every run.
template <class Config>
struct PackedOrder {
  using Offset = typename Config::CuSeqlens;
  const AttentionForwardParams& f;
  const AttentionTileOrder& p;
  int sequences, heads, tokens;  // tokens: of a tile
  // The section of the last turn: heads from first_head on, sequences [first, end), its first turn
  // and how many it has, and its tiles of a head.
  int first_head = 0, first = 0, end = 0;
  unsigned first_turn = 0, turns = 0;
  unsigned start = 0;  // places of its first two turns that are those of the sections before
  int tiles = 0;
  // A length behind that of the last place, and how many of a head's tiles reach it.
  int beyond = 0, longer = 0;
  struct Lengths {
    int tiles, ahead;
  };
  Lengths near = {0, 0};  // of the lane's sequence among the section's first

  __device__ __forceinline__ PackedOrder(const AttentionForwardParams& forward,
                                         const AttentionTileOrder& order)
      : f(forward), p(order) {
    const int group = Config::kPackGqa ? forward.heads / forward.kv_heads : 1;
    sequences = maximum(forward.sequences, 1);
    heads = Config::kPackGqa ? forward.kv_heads : forward.heads;
    tokens = Config::kTileM / group;
  }

  // Returns the lengths of sequence b, or none if it is behind the section.
  __device__ __forceinline__ Lengths load_lengths(int b) const {
    if (b >= end) return {0, 0};
    const QueryTile tile = query_tile_at<Config>(f, b, 0, 0);
    int keys = Config::kLocal ? maximum(tile.keys - tile.rows, 0) : tile.keys;
    if (Config::kLocal && p.first_longest) keys = minimum(keys, f.window_left);
    return {ceil_div(tile.written, tokens), keys / tokens};
  }
  // The same for the lane's sequence among 32.
  __device__ __forceinline__ Lengths lengths(int b) const {
    return b == first ? near : load_lengths(b + static_cast<int>(threadIdx.x % 32));
  }
  // The section's tiles of a head that are of length `least` or longer.
  __device__ __forceinline__ int count(int least) const {
    int sum = 0;
#pragma unroll 1
    for (int b = first; b < end; b += 32) {
      const Lengths of = lengths(b);
      if constexpr (Config::kLocal) {
        sum += minimum(maximum(of.ahead + of.tiles - least, 0), of.tiles);
      } else {
        sum += of.ahead >= least ? of.tiles : 0;
      }
    }
    return static_cast<int>(__reduce_add_sync(0xffffffffu, static_cast<unsigned>(sum)));
  }
  __device__ __forceinline__ int key_start(int b) const {
    return b < f.sequences ? offset_at<Offset>(f.cu_seqlens_k, b, f.seq_k) : f.seq_k;
  }
  // No tile of the section is longer.
  __device__ __forceinline__ int greatest() const {
    int most = 0;
#pragma unroll 1
    for (int b = first; b < end; b += 32) {
      const Lengths of = lengths(b);
      most = maximum(most, of.ahead + (Config::kLocal ? of.tiles : 0));
    }
    return __reduce_max_sync(0xffffffffu, most);
  }
  // Heads of the section.
  __device__ __forceinline__ int wide() const { return minimum(p.section, heads - first_head); }
  // Tiles of the section: the host takes no call with 2^31 of all sections.
  __device__ __forceinline__ unsigned all_tiles() const {
    return static_cast<unsigned>(tiles) * static_cast<unsigned>(end > 0 ? wide() : 0);
  }
  // Goes to the section behind the last one. Returns whether there is one.
  __device__ __forceinline__ bool next_section() {
    start = (start + all_tiles()) % (2 * gridDim.x);
    first_turn += turns;
    first = end;
    if (first >= sequences) {
      if (end > 0) first_head += p.section;
      first = 0;
      if (first_head >= heads) return false;
    }
    const int from = key_start(first);
    const auto fits = [&](int more) {
      return more == 0 || key_start(first + more + 1) - from <= p.section_keys;
    };
    end = first + 1 + last_before(minimum(sequences - first, p.section_sequences), fits);
    near = load_lengths(first + static_cast<int>(threadIdx.x % 32));
    // Offsets that nobody has checked may ask for more tiles than there are rows for.
    tiles = minimum(maximum(count(0), 0), f.seq_q / tokens + sequences);
    beyond = greatest() + 1, longer = 0;
    turns = (start + all_tiles() + gridDim.x - 1) / gridDim.x;
    return true;
  }

  // The tile of a block of threads in a turn, or in the next one that has a tile for it. By a warp;
  // turns never go back. Returns whether there is one.
  __device__ __forceinline__ bool find(unsigned& turn, QueryTile& out) {
    for (;; ++turn) {
      while (turn - first_turn >= turns) {
        if (!next_section()) return false;
      }
      const unsigned mine = turn - first_turn;
      const unsigned dealt = mine % 2 == 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
      const unsigned at = mine * gridDim.x + dealt - start;  // beyond all before the start
      if (at < all_tiles() && tile(static_cast<int>(at), out)) {
        const int group = Config::kPackGqa ? out.group : 1, of_tile = tokens * group;
        const int rows = out.written * group;
        shorten_first<Config>(f, ceil_div(rows, of_tile) * of_tile - rows, out);
        return true;
      }
    }
  }

 private:
  // The tile in a place of the section. Returns false if offsets, which nobody has checked, do not
  // ascend.
  __device__ __forceinline__ bool tile(int at, QueryTile& out) {
    const int wide = this->wide(), rank = at / wide;  // among the tiles of a head
    // The greatest length that more than `rank` tiles reach. It is no greater than the last
    // place's, and mostly little less.
    int length = -1;
#pragma unroll 1
    for (int step = 1; beyond - length > 1; step *= length < 0 ? 2 : 1) {
      const int middle = length < 0 ? maximum(beyond - step, 0) : length + (beyond - length) / 2;
      const int reach = count(middle);
      if (reach > rank) {
        length = middle;
      } else {
        beyond = middle, longer = reach;
      }
    }
    int behind = rank - longer;  // the tile's place among those of its length
#pragma unroll 1
    for (int b = first; b < end; b += 32) {
      const Lengths of = lengths(b);
      const bool has = Config::kLocal ? length >= of.ahead && length < of.ahead + of.tiles
                                      : length == of.ahead && of.tiles > 0;
#pragma unroll 1
      for (unsigned left = __ballot_sync(0xffffffffu, has); left != 0; left &= left - 1) {
        const int lane = __ffs(static_cast<int>(left)) - 1;
        const int tiles = Config::kLocal ? 1 : __shfl_sync(0xffffffffu, of.tiles, lane);
        if (behind < tiles) {
          if constexpr (Config::kLocal) {
            behind = length - __shfl_sync(0xffffffffu, of.ahead, lane);
            const int last = __shfl_sync(0xffffffffu, of.tiles, lane) - 1;
            if (p.first_longest) behind = last - behind;
          }
          out = query_tile_at<Config>(f, b + lane, first_head + at % wide, behind);
          return true;
        }
        behind -= tiles;
      }
    }
    return false;
  }
};

}  // namespace lathe
