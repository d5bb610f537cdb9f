// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Handles the tensors of attention that travel whole: by dispatch to other ranks, or with exchanged
// heads.
#pragma once

#include "ops/attention/run.h"
#include "ops/row_copies.h"

namespace lathe {

// A traveller is a tensor that is cut along the tokens.
struct Traveller {
  int tensor = 0;
  bool keys = false;             // has the tokens and heads of keys
  bool rows = false;             // float32 [B, H, tokens]: one number a row
  bool there = true;             // an input; else a result
  int64_t width = 1, bytes = 4;  // columns of a head, and bytes of one
};
// Lists the travellers that the problem declares, in the order of messages.
std::vector<Traveller> travellers_of(const lathe_problem& problem, const AttentionProblem& asked,
                                     bool key_gradients);

// Returns the caller's tensor as a side of a copy.
RowCopier::Side local_side(const Traveller& each, const Tensor& tensor, bool packed);
// Returns compact rows: token after token, each with all rows of the batch and all `heads`.
RowCopier::Side compact_side(const Traveller& each, char* data, int64_t batch, int64_t heads,
                             const DeviceTable* index = nullptr);
// Returns per-row numbers in the layout of the steps: [batch, heads, tokens].
RowCopier::Side dense_side(const Traveller& each, char* data, int64_t heads, int64_t tokens);

// A journey is one traveller's way in a call. Its rows are near on the rank that owns them, and far
// on the rank that computes with them. A hop carries the rows between both by the lists of the
// route.
struct Journey {
  const Traveller* each = nullptr;
  const RowRoute* route = nullptr;
  int64_t batch = 1, heads = 0, arrived = 0;  // arrived: tokens that are far
  char *near = nullptr, *far = nullptr;       // compact rows
  char *sent = nullptr, *received = nullptr;  // packed, where the route lists rows
  char* dense = nullptr;                      // of rows: far, as steps take them

  char* from() const { return each->there ? near : far; }
  char* to() const { return each->there ? far : near; }
  RowCopier::Side compact(char* data, const DeviceTable* index = nullptr) const {
    return compact_side(*each, data, batch, heads, index);
  }
  Status copy(RowCopier* copies, const RowCopier::Side& source, const RowCopier::Side& target,
              int64_t tokens) const {
    return copies->add(source, target, tokens, batch, heads);
  }
  // Runs before the hop: turns the steps' dense results into rows, and packs rows that are listed.
  Status leave(RowCopier* turned, RowCopier* packed) const;
  // Copies the rows that stay on this rank.
  Status stay(RowCopier* copies) const;
  // Runs after the hop: scatters packed data to its rows, and makes inputs dense.
  Status enter(RowCopier* scattered, RowCopier* turned) const;
  RowTransfer transfer() const;
};

// Returns copies by which every rank sends one row to all others; rows lie by rank.
RankCopies shares_of_ranks(int rank, int world);

}  // namespace lathe
