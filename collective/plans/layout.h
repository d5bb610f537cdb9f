// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How the tokens of one call lie on the ranks: the axis of queries, that of keys, and the sequences
// on both. Everything an operator over ranks plans with. Pure.
#pragma once

#include "collective/plans/balance.h"

namespace lathe {

struct LayoutOptions {
  int world = 1;
  Balance balance = Balance::none;
  int64_t length = 0;
  int64_t key_length = -1;                 // -1: keys are the queries' axis
  std::vector<int64_t> cu_seqlens;         // empty: each row of the batch is one sequence
  std::vector<int64_t> cu_seqlens_k;       // empty: those of the queries
  int64_t block_size = kDefaultPtrrBlock;  // of ptrr
  // Of balance none, world + 1 offsets: the parts of queries, and of keys on the same axis. Empty:
  // even parts.
  std::vector<int64_t> bounds;
};

struct Layout {
  Balance balance = Balance::none;
  bool packed = false;
  int64_t length = 0, key_length = 0;
  std::vector<int64_t> cu_seqlens, cu_seqlens_k;  // of the whole axes: never empty
  // By rank, in the order of its buffer: no interval is empty, and none goes on where another
  // ended.
  ShardLayout queries, keys;

  Partition partition;  // of balance none: the ranks' parts of the queries' axis

  int world() const { return static_cast<int>(queries.size()); }
  int64_t query_tokens(int rank) const;
  int64_t key_tokens(int rank) const;
};
// INVALID_ARGUMENT for offsets that begin behind 0, decrease or end elsewhere than the length, for
// as many sequences of keys as of queries where the numbers differ, and for a length or a world
// out of range, and for bounds that are no partition or come with another balance than none.
Result<Layout> make_layout(const LayoutOptions& options);

}  // namespace lathe
