// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes which keys a query row keeps and which blocks a tile visits, from positions alone. The
// device text computes the same ranges; the host needs them for costs, splits and tests.
//
// Row i of a sequence keeps the keys lo(i) <= j <= hi(i); both diagonals end at the bottom right.
#pragma once

#include <cstdint>
#include <vector>

namespace lathe {

struct AttentionMask {
  int64_t queries = 0, keys = 0;  // lengths of one sequence
  int64_t window_left = -1;       // keys before the diagonal; negative: all of them
  int64_t window_right = -1;      // keys after it; causal is 0; negative: all of them

  int64_t offset() const { return keys - queries; }
  // Returns whether the first rows keep the most keys, and not the last ones: the window reaches
  // further to the right than to the left.
  bool first_longest() const {
    return static_cast<uint64_t>(window_right) > static_cast<uint64_t>(window_left);
  }
  int64_t first_key(int64_t row) const;  // lo(row), >= 0
  int64_t last_key(int64_t row) const;   // hi(row); below lo(row): the row is empty
};

// Holds blocks [begin, end), none if begin == end.
struct BlockRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const BlockRange&) const = default;
};

// The key blocks that the query rows [row_begin, row_end) visit, right to left:
//   right = [full.end, all.end)      both bounds may cut; holds the tail of the keys
//   full  = [full.begin, full.end)   every key of every row is kept
//   left  = [all.begin, full.begin)  the left bound may cut
struct KeyBlocks {
  BlockRange all, full;

  BlockRange right() const { return {full.end, all.end}; }
  BlockRange left() const { return {all.begin, full.begin}; }
};
// row_begin < row_end <= queries.
KeyBlocks attention_key_blocks(const AttentionMask& mask, int64_t row_begin, int64_t row_end,
                               int64_t block);

// Returns the query blocks that hold a row which keeps one of the keys [key_begin, key_end). There
// is at least one such key, and all lie within the sequence. Rows in between that keep none of the
// keys may be included.
BlockRange attention_query_blocks(const AttentionMask& mask, int64_t key_begin, int64_t key_end,
                                  int64_t block);

// Returns the query rows [begin, end) of tile `tile`. `ratio` query heads are rows of one tile (1:
// not packed). `short_first`: if tiles do not divide the rows, the first one is short and not the
// last one.
BlockRange attention_tile_rows(int64_t tile, int64_t tile_rows, int64_t ratio, int64_t queries,
                               bool short_first = false);

// Returns whether to pack the `ratio` query heads of a key head into one tile: if that wastes fewer
// rows of the tile or, where lengths are not known, as with packed ones, always. Returns false for
// a group of one head, which needs no packing. `whole_groups`: a group is in one tile or another,
// so that some rows of each are nobody's unless the ratio divides them; where those are more than a
// tenth, unknown lengths are not packed.
bool attention_pack_gqa(int64_t queries, int64_t ratio, int64_t tile_rows, bool lengths_unknown,
                        bool whole_groups = false);

// Describes a launch for attention_num_splits, which cuts the keys of each tile into splits so that
// few tiles fill the device.
struct SplitProblem {
  int64_t tiles = 0;  // of the whole launch, after packing of heads
  int64_t multiprocessors = 0;
  int64_t key_blocks = 0;    // of one tile
  int64_t query_blocks = 0;  // of one head
  int64_t kv_bytes = 0;      // of one key head
  bool masked = false;       // causal or a window
  int64_t limit = 128;
};
int64_t attention_num_splits(const SplitProblem& question);
// Returns the same for 1..limit key blocks if there are too few tiles; one pass fills a table.
std::vector<int64_t> attention_num_splits_by_blocks(int64_t tiles, int64_t multiprocessors,
                                                    int64_t limit);
// Returns a requested number of splits, bounded by the number of key blocks.
int64_t attention_clamp_splits(int64_t splits, int64_t key_blocks);

}  // namespace lathe
