// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A block step where every row and key has a position of its own, for orders that are not runs: row
// r keeps column c iff -window_left <= k_pos[c] - q_pos[r] <= window_right. Positions lie between
// -2^30 and 2^30, so that differences of them do not overflow. The ranges of positions of a tile
// and of a block tell whether all, some or none of their pairs are kept.
#pragma once
#include "attention/mask.cuh"
#include "attention/mods/visit_mods.cuh"
#include "attention/scores.cuh"
#include "attention/visit_queue.cuh"
#include "common/types.cuh"

namespace lathe {

// Bounds of k_pos - q_pos; negative windows are unlimited.
__device__ __forceinline__ int lowest_difference(int window_left) {
  return window_left < 0 ? -0x7fffffff : -window_left;
}
__device__ __forceinline__ int highest_difference(int window_right) {
  return window_right < 0 ? 0x7fffffff : window_right;
}

struct PositionRange {
  int least, most;
};

// Returns the range of `count` > 0 positions. All lanes of a warp call it, and all of them get it.
__device__ __forceinline__ PositionRange position_range(const int* positions, int count) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  PositionRange range = {0x7fffffff, -0x7fffffff - 1};
  for (int i = lane; i < count; i += 32) {
    const int position = load_element(positions + i);
    range.least = minimum(range.least, position);
    range.most = maximum(range.most, position);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    range.least = minimum(range.least, __shfl_xor_sync(0xffffffffu, range.least, step));
    range.most = maximum(range.most, __shfl_xor_sync(0xffffffffu, range.most, step));
  }
  return range;
}

// The blocks of a tile, appended to the queue one by one, from the left to the right, less those
// that the mask of a mod leaves out: it is asked about the ranges, of which all positions are
// a part.
template <int kBlock, bool kTileOfRows, class Mask>
struct PositionWalk {
  const VisitQueue queue;
  const int* const row_positions;  // positions of the tile's rows
  const int* const ranges;         // of the blocks of columns
  const int position_count, columns;
  const int low, high;  // of a column's position less a row's
  const bool whole;     // no row of the tile is past the last, where that needs a mask
  const Mask mask;

  // Words of the cursor: the range of the tile, and of 32 blocks from `base` on which are seen, and
  // which are seen whole. Memory is read once for those, and not while a step waits for it.
  enum CursorWord { at_least, at_most, at_base, at_seen, at_plain };

  __device__ __forceinline__ void start() const {
    const PositionRange range = position_range(row_positions, position_count);
    if (threadIdx.x == 0) {
      store_shared_word(queue.cursor(at_least), range.least);
      store_shared_word(queue.cursor(at_most), range.most);
      keep(-32, 0, 0);  // before the first blocks
    }
    __syncwarp();
  }
  // By one lane.
  __device__ __forceinline__ void keep(int base, unsigned seen, unsigned plain) const {
    store_shared_word(queue.cursor(at_base), base);
    store_shared_word(queue.cursor(at_seen), static_cast<int>(seen));
    store_shared_word(queue.cursor(at_plain), static_cast<int>(plain));
  }

  __device__ __forceinline__ bool some(const PositionRange& q, const PositionRange& k) const {
    return static_cast<long long>(k.least) - q.most <= high &&
           static_cast<long long>(k.most) - q.least >= low;
  }
  __device__ __forceinline__ bool all(const PositionRange& q, const PositionRange& k) const {
    return static_cast<long long>(k.most) - q.least <= high &&
           static_cast<long long>(k.least) - q.most >= low;
  }
  // Asks the mask of a mod what it keeps of two ranges. With kTileOfRows the tile's range is of
  // rows.
  __device__ __forceinline__ int kept(const PositionRange& tile, const PositionRange& other) const {
    const PositionRange& q = kTileOfRows ? tile : other;
    const PositionRange& k = kTileOfRows ? other : tile;
    return mask.of(mask.batch, {q.least, q.most + 1, k.least, k.most + 1});
  }
  __device__ __forceinline__ PositionRange range_of(int block) const {
    return {load_element(ranges + 2 * block), load_element(ranges + 2 * block + 1)};
  }

  // By all lanes of the first warp, which the caller has brought together.
  __device__ __forceinline__ void append(int visit) const {
    const int blocks = ceil_div(columns, kBlock);
    const PositionRange q = {load_shared_word(queue.cursor(at_least)),
                             load_shared_word(queue.cursor(at_most))};
    int base = load_shared_word(queue.cursor(at_base));
    unsigned seen = static_cast<unsigned>(load_shared_word(queue.cursor(at_seen)));
    unsigned plain = static_cast<unsigned>(load_shared_word(queue.cursor(at_plain)));
    while (seen == 0 && base < blocks) {
      base += 32;
      const int lane_block = base + static_cast<int>(threadIdx.x % 32);
      const bool there = lane_block < blocks;
      const PositionRange k = there ? range_of(lane_block) : q;
      const int found = kept(q, k);
      seen = __ballot_sync(0xffffffffu, there && found != kMaskNone && some(q, k));
      plain = __ballot_sync(0xffffffffu, whole && found == kMaskAll &&
                                             (lane_block + 1) * kBlock <= columns && all(q, k));
    }
    Visit v = {};
    if (seen != 0) {
      const int bit = __ffs(static_cast<int>(seen)) - 1;
      v.at = (base + bit) * kBlock, v.end = columns;
      v.kind = (plain >> bit & 1) != 0 ? VisitKind::plain : VisitKind::masked;
      seen &= seen - 1;
    }
    __syncwarp();  // all have read the cursor
    if (threadIdx.x == 0) {
      queue.put(visit, v);
      keep(base, seen, plain);
    }
    __syncwarp();
  }
};

// modify_scores by position, of the block of columns that begins at `key`.
template <class Config, bool kMasked, int kRowBlocks, int kTiles>
__device__ __forceinline__ void modify_scores_by_position(float (&s)[kRowBlocks][kTiles][4],
                                                          const ScoreUnits<Config>& units,
                                                          const WarpRows<Config>& rows,
                                                          const QueryTile& tile,
                                                          const AttentionBlockParams& p, int key) {
  constexpr bool kScoreMod = HasScoreMod<Config>::kValue;
  constexpr bool kMaskMod = kMasked && HasMaskMod<Config>::kValue;
  constexpr bool kNear = Config::kAlibi || (kMasked && Config::kLocal) || kScoreMod || kMaskMod;
  const int thread = thread_index();
  const int low = lowest_difference(p.forward.window_left);
  const int high = highest_difference(p.forward.window_right);
  int q[kRowBlocks][2] = {};
  if constexpr (kNear) {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = rows.query(tile, rows.warp_row(b, half, thread), thread);
        // Mods are asked about rows and keys that are there: in the place of others, the last.
        if (kHasMods<Config> || row < tile.rows) {
          const int clamped = kHasMods<Config> ? minimum(row, tile.rows - 1) : row;
          q[b][half] = load_element(static_cast<const int*>(p.q_positions) + clamped);
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = key + 8 * n + thread % 4 * 2 + c;
      const bool inside = column < tile.keys;
      int k = 0;
      if (kNear && (kHasMods<Config> || inside)) {
        const int clamped = kHasMods<Config> ? minimum(column, tile.keys - 1) : column;
        k = load_element(static_cast<const int*>(p.k_positions) + clamped);
      }
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float factor = 1.0f;  // of gradients
          float y = scaled_score<Config>(s[b][n][2 * half + c], units, factor);
          const int ahead = k - q[b][half];
          const float slope = Config::kAlibi ? units.slope(0) : 0.0f;
          y = option_score<Config>(y, slope, static_cast<float>(ahead), factor);
          if constexpr (kScoreMod) {
            y = Config::ScoreMod::apply(y, tile.sequence, tile.head, q[b][half], k, units.captures);
          }
          if constexpr (kMasked) {
            const bool near = !Config::kLocal || (low <= ahead && ahead <= high);
            y = inside && near ? y : minus_infinity();
          }
          if constexpr (kMaskMod) {
            y = Config::MaskMod::keep(tile.sequence, tile.head, q[b][half], k, units.captures)
                    ? y
                    : minus_infinity();
          }
          s[b][n][2 * half + c] = y;
        }
      }
    }
  }
}

}  // namespace lathe
