// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The ranges of a block step: rows [qa, qb) see keys [ka, kb), in windows of their own. With i and
// j counted from qa and ka, row i keeps key j iff -window_left <= j - i - shift <= window_right;
// shift is how many keys of the sequence lie between the range's first key and the diagonal of its
// first row. A tile walks all ranges that hold rows of it, in their order, each from the right to
// the left.
#pragma once
#include "attention/mask.cuh"
#include "attention/mods/visit_mods.cuh"
#include "attention/query_blocks.cuh"
#include "attention/visit_queue.cuh"
#include "common/types.cuh"

namespace lathe {

constexpr int kRangeWords = 7;  // qa, qb, ka, kb, shift, q0, k0

struct AttentionRange {
  int qa, qb, ka, kb, shift;
};
__device__ __forceinline__ AttentionRange load_range(const int* ranges, int index, int rows,
                                                     int keys) {
  const int* from = ranges + static_cast<long long>(index) * kRangeWords;
  const int qa = load_element(from), qb = load_element(from + 1);
  const int ka = load_element(from + 2), kb = load_element(from + 3);
  AttentionRange seen;
  seen.qa = clamp(qa, 0, rows), seen.qb = clamp(qb, seen.qa, rows);
  seen.ka = clamp(ka, 0, keys), seen.kb = clamp(kb, seen.ka, keys);
  seen.shift = load_element(from + 4);
  return seen;
}

// Nobody has checked what is in memory: `ranges` is read where it is, intervals are cut to the rows
// and keys there are. What a tile of either axis reads of it, by all lanes of a warp.
struct RangeList {
  const int* ranges;
  int count, rows, keys;
  int left, right;  // windows

  __device__ __forceinline__ AttentionRange load(int index) const {
    return load_range(ranges, index, rows, keys);
  }
  // From a row and a key of range `index` to their positions. `batches` may be null: all are
  // `batch`.
  __device__ __forceinline__ VisitOrigin origin(int index, const int* batches, int batch) const {
    const int* from = ranges + static_cast<long long>(index) * kRangeWords;
    return {load_element(from + 5) - load_element(from),
            load_element(from + 6) - load_element(from + 2),
            batches == nullptr ? batch : load_element(batches + index)};
  }
  // The first range from `index` on whose interval at word `kWord` meets first..last; `count` if
  // there is none. 32 ranges at a time.
  template <int kWord>
  __device__ __forceinline__ int find(int index, int first, int last) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (; index < count; index += 32) {
      bool meets = false, past = false;
      if (index + lane < count) {
        const int* from = ranges + static_cast<long long>(index + lane) * kRangeWords + kWord;
        const int begin = load_element(from), end = load_element(from + 1);
        meets = begin <= last && end > first && end > begin;
        past = kWord == 0 && begin > last;  // ranges ascend by qa: no other meets
      }
      const unsigned found = __ballot_sync(0xffffffffu, meets);
      if (found != 0) return index + __ffs(static_cast<int>(found)) - 1;
      if (__any_sync(0xffffffffu, past)) return count;
    }
    return count;
  }
};

// -window_left <= j - i - shift <= window_right as bounds of j - i; negative windows are unlimited.
__device__ __forceinline__ KeyWindow range_window(const AttentionRange& seen, int left, int right) {
  const long long shift = seen.shift;
  return {seen.kb - seen.ka, left < 0 ? -0x7fffffff : saturate(shift - left),
          right < 0 ? 0x7fffffff : saturate(shift + right)};
}

// A visit of block `block` of kBlock columns, from `begin` on.
template <int kBlock>
__device__ __forceinline__ Visit range_visit(const RangeList& list, const AttentionRange& seen,
                                             int block, int begin, int end, int first, int last,
                                             bool plain) {
  const long long offset = static_cast<long long>(seen.shift) + seen.ka - seen.qa;
  return {begin + block * kBlock,
          end,
          list.left < 0 ? -0x7fffffff : saturate(offset - list.left),
          list.right < 0 ? 0x7fffffff : saturate(offset + list.right),
          first,
          last,
          saturate(offset),
          plain ? VisitKind::plain : VisitKind::masked};
}

// The blocks of keys that the rows first..last of a tile see.
template <int kTileN>
struct KeysOfRows {
  RangeList list;
  int first, last;

  __device__ __forceinline__ int find(int index) const { return list.find<0>(index, first, last); }
  __device__ __forceinline__ BlockRange range(const AttentionRange& seen) const {
    return block_range<kTileN>(range_window(seen, list.left, list.right),
                               maximum(first, seen.qa) - seen.qa,
                               minimum(last, seen.qb - 1) - seen.qa);
  }
  __device__ __forceinline__ Visit visit(const AttentionRange& seen, int block, bool full) const {
    const bool whole = seen.qa <= first && last < seen.qb;  // no row of the tile is another range's
    return range_visit<kTileN>(list, seen, block, seen.ka, seen.kb, seen.qa, seen.qb,
                               full && whole);
  }
  __device__ __forceinline__ VisitRectangle rectangle(const AttentionRange& seen, int block) const {
    const int key = seen.ka + block * kTileN;
    return {maximum(first, seen.qa), minimum(last + 1, seen.qb), key,
            minimum(key + kTileN, seen.kb)};
  }
};

// The blocks of rows that see keys first..last of a tile, which may be cut short by the last key.
template <int kTileM, int kTileN>
struct RowsOfKeys {
  RangeList list;
  int first, last;

  __device__ __forceinline__ int find(int index) const { return list.find<2>(index, first, last); }
  // Full are blocks of rows of which each sees each of kTileN keys.
  __device__ __forceinline__ BlockRange range(const AttentionRange& seen) const {
    KeyWindow window = range_window(seen, list.left, list.right);
    window.keys = minimum(last + 1, seen.kb) - seen.ka;
    const QueryBlocks blocks =
        query_blocks<kTileM, kTileN>(window, seen.qb - seen.qa, maximum(first, seen.ka) - seen.ka);
    return {blocks.begin, blocks.full_begin, blocks.full_end, blocks.end};
  }
  __device__ __forceinline__ Visit visit(const AttentionRange& seen, int block, bool full) const {
    return range_visit<kTileM>(list, seen, block, seen.qa, seen.qb, seen.ka, seen.kb, full);
  }
  __device__ __forceinline__ VisitRectangle rectangle(const AttentionRange& seen, int block) const {
    const int row = seen.qa + block * kTileM;
    return {row, minimum(row + kTileM, seen.qb), maximum(first, seen.ka),
            minimum(last + 1, seen.kb)};
  }
};

// The blocks of a tile, appended to the queue one by one: all ranges in their order, the blocks of
// each from the last to the first, less those that the mask of a mod leaves out.
template <class Blocks, class Mask>
struct RangeWalk {
  const VisitQueue queue;
  const Blocks blocks;
  const Mask mask;
  const int* batches;  // of each range, for mods; or null

  // Words of the cursor: the range at work with its range, and the next block of it. All of it lies
  // here, so that memory is read once a range, and not while a step waits for it.
  enum CursorWord {
    at_index,
    at_block,
    at_begin,
    at_left,
    at_right,
    at_range,
    at_origin = at_range + 5
  };

  __device__ __forceinline__ void start() const {
    // Before the first range, with no block left.
    if (threadIdx.x % 32 == 0) {
      keep(-1, -1, {0, 0, 0, 0}, {});
      if constexpr (Mask::kPositions) keep_origin({});
    }
    __syncwarp();
  }
  __device__ __forceinline__ int kept(int word) const {
    return load_shared_word(queue.cursor(word));
  }
  // By one lane.
  __device__ __forceinline__ void keep(int index, int block, const BlockRange& range,
                                       const AttentionRange& seen) const {
    const int word[10] = {index,   block,   range.begin, range.left, range.right,
                          seen.qa, seen.qb, seen.ka,     seen.kb,    seen.shift};
#pragma unroll
    for (int i = 0; i < 10; ++i) store_shared_word(queue.cursor(i), word[i]);
  }
  __device__ __forceinline__ void keep_origin(const VisitOrigin& from) const {
    store_shared_word(queue.cursor(at_origin), from.query);
    store_shared_word(queue.cursor(at_origin + 1), from.key);
    store_shared_word(queue.cursor(at_origin + 2), from.batch);
  }
  // From the block on, down to the first of the range, one that a mask leaves something of: lane i
  // looks at the i-th. False if there is none.
  __device__ __forceinline__ bool find_kept(const AttentionRange& seen, const BlockRange& range,
                                            const VisitOrigin& from, int& block, bool& all) const {
    while (block >= range.begin) {
      const int lane_block = block - static_cast<int>(threadIdx.x % 32);
      VisitRectangle at = blocks.rectangle(seen, maximum(lane_block, range.begin));
      at.row += from.query, at.row_end += from.query, at.key += from.key, at.key_end += from.key;
      const int found = mask.of(from.batch, at);
      const unsigned seen =
          __ballot_sync(0xffffffffu, lane_block >= range.begin && found != kMaskNone);
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

  // By all lanes of one warp, which the caller has brought together.
  __device__ __forceinline__ void append(int visit) const {
    const int count = blocks.list.count;
    int index = kept(at_index), block = kept(at_block);
    BlockRange range = {kept(at_begin), kept(at_left), kept(at_right), 0};
    AttentionRange seen = {kept(at_range), kept(at_range + 1), kept(at_range + 2),
                           kept(at_range + 3), kept(at_range + 4)};
    VisitOrigin from = {};
    if constexpr (Mask::kPositions)
      from = {kept(at_origin), kept(at_origin + 1), kept(at_origin + 2)};
    bool all = true;  // of what the mask of a mod could drop
    if constexpr (Mask::kAsks) {
      if (index >= 0 && index < count && !find_kept(seen, range, from, block, all)) {
        block = range.begin - 1;
      }
    }
    while (block < range.begin && index < count) {  // on to the next range that has a block
      index = blocks.find(index + 1);
      if (index >= count) break;
      seen = blocks.list.load(index);
      range = blocks.range(seen);
      block = range.end - 1;
      if constexpr (Mask::kPositions) from = blocks.list.origin(index, batches, mask.batch);
      if constexpr (Mask::kAsks) {
        if (!find_kept(seen, range, from, block, all)) block = range.begin - 1;
      }
    }
    const bool full = all && range.left <= block && block < range.right;
    __syncwarp();  // all have read the cursor
    if (threadIdx.x % 32 == 0) {
      queue.put(visit, index < count ? blocks.visit(seen, block, full) : Visit{});
      keep(index, block - 1, range, seen);
      if constexpr (Mask::kPositions) {
        queue.put_origin(visit, from);
        keep_origin(from);
      }
    }
    __syncwarp();
  }
};

// A visit's mask in the place of a sequence's: the rows of other ranges keep no column of it.
struct VisitWindow : KeyWindow {
  int first, last;
};
template <int kTileN>
__device__ __forceinline__ int highest_column(const VisitWindow& visit, int row, int key) {
  const bool inside = visit.first <= row && row < visit.last;
  return inside ? highest_column<kTileN>(static_cast<const KeyWindow&>(visit), row, key) : -1;
}
// The same where the tile is of keys: other ranges' keys are kept by no row of it.
template <bool kLocal, int kTileM>
__device__ __forceinline__ QueryColumns query_columns(const VisitWindow& visit, int rows, int key,
                                                      int row) {
  if (key < visit.first || key >= visit.last) return {0, -1};
  return query_columns<kLocal, kTileM>(static_cast<const KeyWindow&>(visit), rows, key, row);
}

}  // namespace lathe
