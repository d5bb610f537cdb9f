// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The pairs of a block step: rows [qa, qb) see keys [ka, kb), in windows of their own. With i and j
// counted from qa and ka, row i keeps key j iff -window_left <= j - i - shift <= window_right;
// shift is how many keys of the sequence lie between the pair's first key and the diagonal of its
// first row. A tile walks all pairs that hold rows of it, in their order, each from the right to
// the left.
#pragma once
#include "attention/mask.cuh"
#include "attention/query_blocks.cuh"
#include "attention/visit_queue.cuh"
#include "attention/mods/visit_snippets.cuh"
#include "common/types.cuh"

namespace lathe {

constexpr int kPairWords = 7;  // qa, qb, ka, kb, shift, q0, k0

struct Pair {
  int qa, qb, ka, kb, shift;
};
__device__ __forceinline__ Pair load_pair(const int* pairs, int index, int rows, int keys) {
  const int* from = pairs + static_cast<long long>(index) * kPairWords;
  const int qa = load_element(from), qb = load_element(from + 1);
  const int ka = load_element(from + 2), kb = load_element(from + 3);
  Pair pair;
  pair.qa = clamp(qa, 0, rows), pair.qb = clamp(qb, pair.qa, rows);
  pair.ka = clamp(ka, 0, keys), pair.kb = clamp(kb, pair.ka, keys);
  pair.shift = load_element(from + 4);
  return pair;
}

// Nobody has checked what is in memory: `pairs` is read where it is, intervals are cut to the rows
// and keys there are. What a tile of either axis reads of it, by all lanes of a warp.
struct PairList {
  const int* pairs;
  int count, rows, keys;
  int left, right;  // windows

  __device__ __forceinline__ Pair load(int index) const {
    return load_pair(pairs, index, rows, keys);
  }
  // From a row and a key of pair `index` to their positions. `batches` may be null: all are
  // `batch`.
  __device__ __forceinline__ VisitOrigin origin(int index, const int* batches, int batch) const {
    const int* from = pairs + static_cast<long long>(index) * kPairWords;
    return {load_element(from + 5) - load_element(from),
            load_element(from + 6) - load_element(from + 2),
            batches == nullptr ? batch : load_element(batches + index)};
  }
  // The first pair from `index` on whose interval at word `kWord` meets first..last; `count` if
  // there is none. 32 pairs at a time.
  template <int kWord>
  __device__ __forceinline__ int find(int index, int first, int last) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (; index < count; index += 32) {
      bool meets = false, past = false;
      if (index + lane < count) {
        const int* from = pairs + static_cast<long long>(index + lane) * kPairWords + kWord;
        const int begin = load_element(from), end = load_element(from + 1);
        meets = begin <= last && end > first && end > begin;
        past = kWord == 0 && begin > last;  // pairs ascend by qa: no other meets
      }
      const unsigned found = __ballot_sync(0xffffffffu, meets);
      if (found != 0) return index + __ffs(static_cast<int>(found)) - 1;
      if (__any_sync(0xffffffffu, past)) return count;
    }
    return count;
  }
};

// -window_left <= j - i - shift <= window_right as bounds of j - i; negative windows are unlimited.
__device__ __forceinline__ KeyWindow pair_window(const Pair& pair, int left, int right) {
  const long long shift = pair.shift;
  return {pair.kb - pair.ka, left < 0 ? -0x7fffffff : saturate(shift - left),
          right < 0 ? 0x7fffffff : saturate(shift + right)};
}

// A visit of block `block` of kBlock columns, from `begin` on.
template <int kBlock>
__device__ __forceinline__ Visit pair_visit(const PairList& list, const Pair& pair, int block,
                                            int begin, int end, int first, int last, bool plain) {
  const long long delta = static_cast<long long>(pair.shift) + pair.ka - pair.qa;
  return {begin + block * kBlock,
          end,
          list.left < 0 ? -0x7fffffff : saturate(delta - list.left),
          list.right < 0 ? 0x7fffffff : saturate(delta + list.right),
          first,
          last,
          saturate(delta),
          plain ? VisitKind::plain : VisitKind::masked};
}

// The blocks of keys that the rows first..last of a tile see.
template <int kTileN>
struct KeysOfRows {
  PairList list;
  int first, last;

  __device__ __forceinline__ int find(int index) const { return list.find<0>(index, first, last); }
  __device__ __forceinline__ BlockRange range(const Pair& pair) const {
    return block_range<kTileN>(pair_window(pair, list.left, list.right),
                               maximum(first, pair.qa) - pair.qa,
                               minimum(last, pair.qb - 1) - pair.qa);
  }
  __device__ __forceinline__ Visit visit(const Pair& pair, int block, bool full) const {
    const bool whole = pair.qa <= first && last < pair.qb;  // no row of the tile is another pair's
    return pair_visit<kTileN>(list, pair, block, pair.ka, pair.kb, pair.qa, pair.qb, full && whole);
  }
  __device__ __forceinline__ VisitRectangle rectangle(const Pair& pair, int block) const {
    const int key = pair.ka + block * kTileN;
    return {maximum(first, pair.qa), minimum(last + 1, pair.qb), key,
            minimum(key + kTileN, pair.kb)};
  }
};

// The blocks of rows that see keys first..last of a tile, which may be cut short by the last key.
template <int kTileM, int kTileN>
struct RowsOfKeys {
  PairList list;
  int first, last;

  __device__ __forceinline__ int find(int index) const { return list.find<2>(index, first, last); }
  // Full are blocks of rows of which each sees each of kTileN keys.
  __device__ __forceinline__ BlockRange range(const Pair& pair) const {
    KeyWindow window = pair_window(pair, list.left, list.right);
    window.keys = minimum(last + 1, pair.kb) - pair.ka;
    const QueryBlocks blocks =
        query_blocks<kTileM, kTileN>(window, pair.qb - pair.qa, maximum(first, pair.ka) - pair.ka);
    return {blocks.begin, blocks.full_begin, blocks.full_end, blocks.end};
  }
  __device__ __forceinline__ Visit visit(const Pair& pair, int block, bool full) const {
    return pair_visit<kTileM>(list, pair, block, pair.qa, pair.qb, pair.ka, pair.kb, full);
  }
  __device__ __forceinline__ VisitRectangle rectangle(const Pair& pair, int block) const {
    const int row = pair.qa + block * kTileM;
    return {row, minimum(row + kTileM, pair.qb), maximum(first, pair.ka),
            minimum(last + 1, pair.kb)};
  }
};

// The blocks of a tile, appended to the queue one by one: all pairs in their order, the blocks of
// each from the last to the first, less those that the mask of a snippet leaves out.
template <class Blocks, class Mask>
struct PairWalk {
  const VisitQueue queue;
  const Blocks blocks;
  const Mask mask;
  const int* batches;  // of each pair, for snippets; or null

  // Words of the place: the pair at work with its range, and the next block of it. All of it lies
  // here, so that memory is read once a pair, and not while a step waits for it.
  enum Place { at_index, at_block, at_begin, at_left, at_right, at_pair, at_origin = at_pair + 5 };

  __device__ __forceinline__ void start() const {
    // Before the first pair, with no block left.
    if (threadIdx.x == 0) {
      keep(-1, -1, {0, 0, 0, 0}, {});
      if constexpr (Mask::kPlaces) keep_origin({});
    }
    __syncwarp();
  }
  __device__ __forceinline__ int kept(int word) const {
    return load_shared_word(queue.place(word));
  }
  // By one lane.
  __device__ __forceinline__ void keep(int index, int block, const BlockRange& range,
                                       const Pair& pair) const {
    const int word[10] = {index,   block,   range.begin, range.left, range.right,
                          pair.qa, pair.qb, pair.ka,     pair.kb,    pair.shift};
#pragma unroll
    for (int i = 0; i < 10; ++i) store_shared_word(queue.place(i), word[i]);
  }
  __device__ __forceinline__ void keep_origin(const VisitOrigin& from) const {
    store_shared_word(queue.place(at_origin), from.query);
    store_shared_word(queue.place(at_origin + 1), from.key);
    store_shared_word(queue.place(at_origin + 2), from.batch);
  }
  // From the block on, down to the first of the range, one that a mask leaves something of: lane i
  // looks at the i-th. False if there is none.
  __device__ __forceinline__ bool find_kept(const Pair& pair, const BlockRange& range,
                                            const VisitOrigin& from, int& block, bool& all) const {
    while (block >= range.begin) {
      const int own = block - static_cast<int>(threadIdx.x % 32);
      VisitRectangle at = blocks.rectangle(pair, maximum(own, range.begin));
      at.row += from.query, at.row_end += from.query, at.key += from.key, at.key_end += from.key;
      const int found = mask.of(from.batch, at);
      const unsigned seen = __ballot_sync(0xffffffffu, own >= range.begin && found != kMaskNone);
      const unsigned whole = __ballot_sync(0xffffffffu, found == kMaskAll);
      if (seen != 0) {
        const int lane = __ffs(static_cast<int>(seen)) - 1;
        block -= lane;
        all = (whole >> lane & 1) != 0;
        return true;
      }
      block -= 32;
    }
    return false;
  }

  // By all lanes of the first warp, which the caller has brought together.
  __device__ __forceinline__ void append(int visit) const {
    const int count = blocks.list.count;
    int index = kept(at_index), block = kept(at_block);
    BlockRange range = {kept(at_begin), kept(at_left), kept(at_right), 0};
    Pair pair = {kept(at_pair), kept(at_pair + 1), kept(at_pair + 2), kept(at_pair + 3),
                 kept(at_pair + 4)};
    VisitOrigin from = {};
    if constexpr (Mask::kPlaces) from = {kept(at_origin), kept(at_origin + 1), kept(at_origin + 2)};
    bool all = true;  // of what the mask of a snippet could drop
    if constexpr (Mask::kAsks) {
      if (index >= 0 && index < count && !find_kept(pair, range, from, block, all)) {
        block = range.begin - 1;
      }
    }
    while (block < range.begin && index < count) {  // on to the next pair that has a block
      index = blocks.find(index + 1);
      if (index >= count) break;
      pair = blocks.list.load(index);
      range = blocks.range(pair);
      block = range.end - 1;
      if constexpr (Mask::kPlaces) from = blocks.list.origin(index, batches, mask.batch);
      if constexpr (Mask::kAsks) {
        if (!find_kept(pair, range, from, block, all)) block = range.begin - 1;
      }
    }
    const bool full = all && range.left <= block && block < range.right;
    __syncwarp();  // all have read their place
    if (threadIdx.x == 0) {
      queue.put(visit, index < count ? blocks.visit(pair, block, full) : Visit{});
      keep(index, block - 1, range, pair);
      if constexpr (Mask::kPlaces) {
        queue.put_origin(visit, from);
        keep_origin(from);
      }
    }
    __syncwarp();
  }
};

// A visit's mask in the place of a sequence's: the rows of other pairs keep no column of it.
struct VisitWindow : KeyWindow {
  int first, last;
};
template <int kTileN>
__device__ __forceinline__ int highest_column(const VisitWindow& visit, int row, int key) {
  const bool inside = visit.first <= row && row < visit.last;
  return inside ? highest_column<kTileN>(static_cast<const KeyWindow&>(visit), row, key) : -1;
}
// The same where the tile is of keys: other pairs' keys are kept by no row of it.
template <bool kLocal, int kTileM>
__device__ __forceinline__ QueryColumns query_columns(const VisitWindow& visit, int rows, int key,
                                                      int row) {
  if (key < visit.first || key >= visit.last) return {0, -1};
  return query_columns<kLocal, kTileM>(static_cast<const KeyWindow&>(visit), rows, key, row);
}

}  // namespace lathe
