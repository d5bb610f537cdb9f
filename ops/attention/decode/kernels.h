// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes into how many splits a call of flash_attention_decode cuts its keys, how large the grids
// are and how many bytes move. Pure functions of integers.
#pragma once

#include "ops/attention/kernels.h"
#include "ops/shapes.h"
#include "ops/workspace.h"

namespace lathe {

// Holds what the problem declares: queries of a sequence, query heads of a key head, keys of a
// page; -1: not known. If the number of queries varies from call to call there are two kernels, one
// for a single query and one for many.
struct AttentionDecodeRows {
  int64_t queries = -1, ratio = -1, page = -1;
};

struct AttentionDecodeShape {
  int64_t batch = 0, queries = 0, heads = 0, kv_heads = 0;
  int64_t pages = 0, page = 0, table_width = 0;  // P, page and M
  // Packed queries have tokens; `queries` is how many a sequence has on average, rounded up.
  bool ragged = false;
  int64_t packed_tokens = 0;  // Tq

  int64_t ratio() const { return kv_heads > 0 ? heads / kv_heads : 0; }
  int64_t tokens() const { return ragged ? packed_tokens : batch * queries; }
  int64_t rows() const { return heads * tokens(); }
  int64_t most_keys() const { return page * table_width; }  // of a sequence
};

// How a cache in 8 bits is scaled, as templates/attention/decode/narrow_rows.cuh has it.
enum NarrowRows { kWideRows = 0, kHeadScales = 1, kRowScales = 2, kByteRows = 3 };
// Returns the bytes of a cached key and its value, of one head.
int64_t attention_cached_bytes(const AttentionProblem& problem);

// Holds the number of splits for every launch, because attention_num_splits is a search that takes
// too long for a launch.
class AttentionSplitTable {
 public:
  AttentionSplitTable() = default;
  explicit AttentionSplitTable(int multiprocessors);
  int64_t splits(const SplitProblem& tuning_key) const;  // of the device it was made for
  int64_t multiprocessors() const { return multiprocessors_; }

 private:
  int64_t multiprocessors_ = 0, rows_ = 0, columns_ = 0;
  std::vector<uint8_t> table_;  // [tiles - 1][most splits - 1]
};
// If `wanted` is 0 the function chooses. The result depends on capacities, never on lengths.
int64_t attention_decode_splits(const AttentionProblem& problem, const AttentionTiling& kernel,
                                const AttentionDecodeShape& shape,
                                const AttentionSplitTable& chosen, int64_t wanted);
// Counts the tiles of a key head that the grid has: of a sequence, or if ragged of all of them.
int64_t attention_decode_tiles(const AttentionTiling& kernel, const AttentionDecodeShape& shape);
// Counts blocks of a whole number of splits. All are in x. A launch may have at most 2^31 - 1: the
// caller compares these first.
int64_t attention_decode_blocks(const AttentionTiling& kernel, const AttentionDecodeShape& shape,
                                int64_t splits);
int64_t attention_append_blocks(const AttentionDecodeShape& shape);
// `rows` counts those that have partial results. If packed, a full device walks them.
int64_t attention_combine_blocks(int64_t rows);
int64_t attention_combine_blocks(int64_t rows, int64_t multiprocessors);

// Holds how the tiles of a call are shared out to blocks of threads, and the sections of the
// workspace, in bytes. Packed queries have lengths on the device alone, which decides there who has
// splits and how many (templates/attention/decode/ragged.cuh): the host gives room for `slots`
// partial results of a tile.
struct AttentionDecodeParts {
  int64_t splits = 1;            // of each tile; packed: if share is 0
  int64_t share = 0, slots = 0;  // packed
  int64_t blocks = 0;            // of the grid
  int64_t joined_rows = 0;       // with partial results, that are then joined
  int64_t partial_rows = 0;      // of partial results
  int64_t slot_rows = 0;         // packed: rows of a slot
  int64_t partial_lse = 0, combine_list = 0, used_slots = 0, total = 0;
  // Hopper's kernel alone has turns, in which blocks of threads have an item each.
  int64_t turns = 0, entries = 0, items = 0;

  // Lays out what is there for partial results.
  void lay_out(const AttentionProblem& problem, WorkspaceLayout* layout);
};
// `side_by_side`: blocks of threads that a device runs at a time. Returns INVALID_ARGUMENT if the
// workspace passes 2^63 bytes.
Result<AttentionDecodeParts> attention_decode_parts(const AttentionProblem& problem,
                                                    const AttentionTiling& kernel,
                                                    const AttentionDecodeShape& shape,
                                                    const AttentionSplitTable& chosen,
                                                    int64_t side_by_side, int64_t wanted);

// Add to a spec what a problem of decoding has beside pages (templates/attention/decode/calls.cuh):
// packed queries alone, a rotary embedding alone, or all of it.
void add_ragged(const AttentionProblem& problem, KernelSpec* spec);
void add_rotary(const AttentionProblem& problem, KernelSpec* spec);
void add_decode_calls(const AttentionProblem& problem, KernelSpec* spec);

// Return the specs of the kernels before and behind the attention.
KernelSpec attention_append_spec(const AttentionProblem& problem);
KernelSpec attention_combine_spec(const AttentionProblem& problem);

// n / divisor = (high word of n * magic + n) >> shift for every 0 <= n < 2^31. 1 <= divisor.
struct FastDivision {
  uint32_t magic = 0;
  int shift = 0;
};
FastDivision fast_division(int64_t divisor);

// Takes every sequence to be as long as its table allows, because lengths are on the device.
AttentionCost attention_decode_cost(const AttentionProblem& problem, const KernelSpec& spec,
                                    const AttentionDecodeShape& shape, const AttentionMask& mask,
                                    int64_t partial_rows);

}  // namespace lathe
