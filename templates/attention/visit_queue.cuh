// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A queue of visits in shared memory, for tiles whose visits follow from data and not from a range:
// attention ranges, or positions. One warp appends one visit a step, two ahead of the one
// at work, so that the next one's copies can be sent for; everyone else reads what it needs when it
// needs it, and no register holds a visit across the products.
#pragma once
#include "attention/tile.cuh"
#include "common/shared_memory.cuh"

namespace lathe {

enum class VisitKind : int { end, plain, masked };

// A Visit is a block of columns that a tile visits. Row i of the tile's axis and column j of the
// other keep each other iff low <= j - i <= high and first <= i < last; p_i - j of ALiBi is i +
// offset - j.
struct Visit {
  int at, end;      // the block's first column, and where the interval it is of ends
  int low, high;    // of j - i
  int first, last;  // rows of the tile's axis
  int offset;
  VisitKind kind;
};

// Mods add `query` and `key` to row and column for positions, and are told `batch` of the batch.
struct VisitOrigin {
  int query, key, batch;
};

// Four slots, of which a step reads two while the next but one is written, and the words in which
// a walk keeps its cursor from one append to the next.
struct VisitQueue {
  static constexpr int kSlotBytes = 48, kSlots = 4, kCursorWords = 16;
  static constexpr int kBytes = kSlots * kSlotBytes + 4 * kCursorWords;
  // The last word of the cursor is no walk's: which tile a persistent block of threads is at.
  static constexpr int kTurn = kCursorWords - 1;
  unsigned base;

  __device__ __forceinline__ unsigned slot(int visit) const {
    return base + visit % kSlots * kSlotBytes;
  }
  __device__ __forceinline__ unsigned cursor(int word) const {
    return base + kSlots * kSlotBytes + 4 * word;
  }
  // By one lane.
  __device__ __forceinline__ void put(int visit, const Visit& v) const {
    const int word[8] = {v.at,    v.end,  v.low,    v.high,
                         v.first, v.last, v.offset, static_cast<int>(v.kind)};
#pragma unroll
    for (int i = 0; i < 8; ++i) store_shared_word(slot(visit) + 4 * i, word[i]);
  }
  __device__ __forceinline__ void put_origin(int visit, const VisitOrigin& from) const {
    store_shared_word(slot(visit) + 32, from.query);
    store_shared_word(slot(visit) + 36, from.key);
    store_shared_word(slot(visit) + 40, from.batch);
  }
  __device__ __forceinline__ VisitOrigin origin(int visit) const {
    return {load_shared_word(slot(visit) + 32), load_shared_word(slot(visit) + 36),
            load_shared_word(slot(visit) + 40)};
  }
  __device__ __forceinline__ int at(int visit) const { return load_shared_word(slot(visit)); }
  __device__ __forceinline__ int end(int visit) const { return load_shared_word(slot(visit) + 4); }
  __device__ __forceinline__ int first(int visit) const {
    return load_shared_word(slot(visit) + 16);
  }
  __device__ __forceinline__ int last(int visit) const {
    return load_shared_word(slot(visit) + 20);
  }
  // Returns whether a visit is of this kind; all lanes get the same answer.
  __device__ __forceinline__ bool is(int visit, VisitKind kind) const {
    return uniform(load_shared_word(slot(visit) + 28) == static_cast<int>(kind));
  }
  __device__ __forceinline__ Visit get(int visit) const {
    int word[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) word[i] = load_shared_word(slot(visit) + 4 * i);
    return {word[0], word[1], word[2], word[3],
            word[4], word[5], word[6], static_cast<VisitKind>(word[7])};
  }
};

// Tiles by a grid of fewer blocks of threads than there are tiles: block b works on tiles b,
// b + gridDim.x and so on, in the order in which a block for each would begin them. The grid is as
// large as what the device holds at once less the multiprocessors that are left to others, an
// exchange between ranks above all: a grid of all tiles would take every place that becomes free
// before the exchange gets one. The turn lies in the queue, so that no register holds it across the
// products. body(tile), by all threads; who needs the tile again reads the turn.
template <class Body>
__device__ __forceinline__ void take_turns(const VisitQueue& queue, unsigned tiles,
                                           const Body& body) {
  const unsigned turn = queue.cursor(VisitQueue::kTurn);
  if (threadIdx.x == 0) store_shared_word(turn, static_cast<int>(blockIdx.x));
  __syncthreads();  // the first turn is known to all
#pragma unroll 1
  while (true) {
    const unsigned tile = static_cast<unsigned>(warp_uniform(load_shared_word(turn)));
    if (tile >= tiles) break;
    body(tile);
    __syncthreads();  // all have left the tiles in shared memory, the queue and the turn
    if (threadIdx.x == 0) {
      store_shared_word(turn, load_shared_word(turn) + static_cast<int>(gridDim.x));
    }
    __syncthreads();  // the next turn is known to all
  }
}

}  // namespace lathe
