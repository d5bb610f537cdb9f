// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Says how the tokens of one call lie on the ranks: the axis of queries, the axis of keys, and the
// sequences on both. Operators over ranks make their plans from it. Pure.
#pragma once

#include "collective/plans/balance.h"

namespace lathe {

// Says what every rank may hold at most, so that what is launched and sent depends on this alone:
// then a graph that was captured over one layout is right over another one.
struct Capacity {
  int64_t tokens = 0;  // and so the rows of a rank's tensors; 0: there is no capacity
  int64_t pieces = 0;  // runs of tokens of one sequence, and empty sequences
  explicit operator bool() const { return tokens > 0; }
  bool operator==(const Capacity&) const = default;
};

struct LayoutOptions {
  int world = 1;
  Balance balance = Balance::none;
  int64_t length = 0;
  int64_t key_length = -1;                 // -1: keys are the queries' axis
  std::vector<int64_t> cu_seqlens;         // empty: each row of the batch is one sequence
  std::vector<int64_t> cu_seqlens_k;       // empty: those of the queries
  int64_t block_size = kDefaultPtrrBlock;  // of ptrr
  // Balance none may have one of these, for the queries and for keys on the same axis. `bounds`:
  // world + 1 offsets of contiguous parts. `ranges`: each rank's ranges of tokens, in the order of
  // its buffer. If both are empty the parts are even.
  std::vector<int64_t> bounds;
  ShardLayout ranges;
  Capacity capacity;
};

struct Layout {
  Balance balance = Balance::none;
  bool packed = false;
  int64_t length = 0, key_length = 0;
  std::vector<int64_t> cu_seqlens, cu_seqlens_k;  // of the whole axes: never empty
  // Each rank's intervals are in the order of its buffer. No interval is empty, and none begins
  // where the one before it ends.
  ShardLayout queries, keys;

  // The ranks' parts of the queries' axis if each rank holds one part and the parts follow each
  // other in rank order; without bounds otherwise.
  Partition partition;

  Capacity capacity;

  bool contiguous() const { return !partition.bounds.empty(); }
  int world() const { return static_cast<int>(queries.size()); }
  int64_t query_tokens(int rank) const;
  int64_t key_tokens(int rank) const;
  // Returns how many tokens of queries a rank's tensors have, those that are none included.
  int64_t query_rows(int rank) const { return capacity ? capacity.tokens : query_tokens(rank); }
  int64_t key_rows(int rank) const { return capacity ? capacity.tokens : key_tokens(rank); }
};
// Returns INVALID_ARGUMENT for offsets that do not begin at 0, decrease, or do not end at the
// length; for different numbers of sequences of queries and of keys; for a length or a world out of
// range; for bounds that are no partition; for ranges that leave out a token or hold it twice, or
// that descend on a rank; and for bounds or ranges with a balance other than none.
Result<Layout> make_layout(const LayoutOptions& options);

}  // namespace lathe
