// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The pairs of a block step: rows [qa, qb) see keys [ka, kb), in windows of their own. With i and j
// counted from qa and ka, row i keeps key j iff -window_left <= j - i - shift <= window_right;
// shift is how many keys of the sequence lie between the pair's first key and the diagonal of its
// first row. A tile walks all pairs that hold rows of it, in their order, each from the right to
// the left.
#pragma once
#include "attention/mask.cuh"
#include "attention/visit_queue.cuh"
#include "common/types.cuh"

namespace lathe {

constexpr int kPairWords = 7;  // qa, qb, ka, kb, shift, q0, k0

// Nobody has checked what is in memory: intervals are cut to what is there, so a wrong one gives a
// wrong result and never a wild access.
struct Pair {
  int qa, qb, ka, kb, shift;
};
__device__ __forceinline__ Pair load_pair(const int* pairs, int index, int rows, int keys) {
  const int* from = pairs + static_cast<long long>(index) * kPairWords;
  const int qa = load_element(from), qb = load_element(from + 1);
  const int ka = load_element(from + 2), kb = load_element(from + 3);
  return {clamp(qa, 0, rows), clamp(qb, 0, rows), clamp(ka, 0, keys), clamp(kb, 0, keys),
          load_element(from + 4)};
}

// The first pair from `index` on that has rows among first..last; `count` if there is none. By all
// lanes of a warp, 32 pairs at a time. Pairs ascend by qa: one that begins past `last` ends it.
__device__ __forceinline__ int find_pair(const int* pairs, int index, int count, int first,
                                         int last) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (; index < count; index += 32) {
    bool meets = false, past = false;
    if (index + lane < count) {
      const int* from = pairs + static_cast<long long>(index + lane) * kPairWords;
      const int qa = load_element(from), qb = load_element(from + 1);
      meets = qa <= last && qb > first && qb > qa;
      past = qa > last;
    }
    const unsigned found = __ballot_sync(0xffffffffu, meets);
    if (found != 0) return index + __ffs(static_cast<int>(found)) - 1;
    if (__any_sync(0xffffffffu, past)) return count;
  }
  return count;
}

// -window_left <= j - i - shift <= window_right as bounds of j - i; negative windows are unlimited.
__device__ __forceinline__ KeyWindow pair_window(const Pair& pair, int left, int right) {
  const long long shift = pair.shift;
  return {pair.kb - pair.ka, left < 0 ? -0x7fffffff : saturate(shift - left),
          right < 0 ? 0x7fffffff : saturate(shift + right)};
}

// The key blocks of a tile of query rows, appended to the queue one by one.
template <class Config>
struct PairWalk {
  const VisitQueue queue;
  const int* const pairs;
  const int count, rows, keys, left, right;
  const int first, last;  // rows of the tile

  // Words of the place: the pair at work and the next block of it, down to the last one.
  enum Place { at_pair, at_block, at_begin, at_left, at_right };

  __device__ __forceinline__ void start() const {
    // Before the first pair, with no block left.
    if (threadIdx.x == 0) {
      store_shared_word(queue.place(at_pair), -1);
      store_shared_word(queue.place(at_block), -1);
      store_shared_word(queue.place(at_begin), 0);
      store_shared_word(queue.place(at_left), 0);
      store_shared_word(queue.place(at_right), 0);
    }
    __syncwarp();
  }

  // By all lanes of the first warp, which the caller has brought together.
  __device__ __forceinline__ void append(int visit) const {
    int index = load_shared_word(queue.place(at_pair));
    int block = load_shared_word(queue.place(at_block));
    BlockRange range;
    range.begin = load_shared_word(queue.place(at_begin));
    range.left = load_shared_word(queue.place(at_left));
    range.right = load_shared_word(queue.place(at_right));
    Pair pair = {};
    if (block >= range.begin) {
      pair = load_pair(pairs, index, rows, keys);
    }
    while (block < range.begin && index < count) {  // on to the next pair that has a block
      index = find_pair(pairs, index + 1, count, first, last);
      if (index >= count) break;
      pair = load_pair(pairs, index, rows, keys);
      range = block_range<Config::kTileN>(pair_window(pair, left, right),
                                          maximum(first, pair.qa) - pair.qa,
                                          minimum(last, pair.qb - 1) - pair.qa);
      block = range.end - 1;
    }
    __syncwarp();  // all have read their place
    if (threadIdx.x == 0) {
      queue.put(visit, visit_of(pair, range, block, index < count));
      store_shared_word(queue.place(at_pair), index);
      store_shared_word(queue.place(at_block), block - 1);
      store_shared_word(queue.place(at_begin), range.begin);
      store_shared_word(queue.place(at_left), range.left);
      store_shared_word(queue.place(at_right), range.right);
    }
    __syncwarp();
  }

  __device__ __forceinline__ Visit visit_of(const Pair& pair, const BlockRange& range, int block,
                                            bool any) const {
    if (!any) return {};
    const long long delta = static_cast<long long>(pair.shift) + pair.ka - pair.qa;
    const bool whole = pair.qa <= first && last < pair.qb;  // no row of the tile is another pair's
    const bool plain = whole && block < range.right && block >= range.left;
    return {pair.ka + block * Config::kTileN,
            pair.kb,
            left < 0 ? -0x7fffffff : saturate(delta - left),
            right < 0 ? 0x7fffffff : saturate(delta + right),
            pair.qa,
            pair.qb,
            saturate(delta),
            plain ? VisitKind::plain : VisitKind::masked};
  }
};

// A visit's mask in the place of a sequence's: rows of other pairs keep no column of it.
struct VisitWindow : KeyWindow {
  int first, last;
};
template <int kTileN>
__device__ __forceinline__ int highest_column(const VisitWindow& visit, int row, int key) {
  const bool inside = visit.first <= row && row < visit.last;
  return inside ? highest_column<kTileN>(static_cast<const KeyWindow&>(visit), row, key) : -1;
}

}  // namespace lathe
