// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tensors of attention that travel whole: by dispatch to other ranks, or with exchanged heads.
#pragma once

#include "ops/attention/run.h"
#include "ops/row_copies.h"

namespace lathe {

// A tensor that is cut along the tokens.
struct Traveller {
  int tensor = 0;
  bool keys = false;             // has the tokens and heads of keys
  bool rows = false;             // float32 [B, H, tokens]: one number a row
  bool there = true;             // an input; else a result
  int64_t width = 1, bytes = 4;  // columns of a head, and bytes of one
};
// Lists those that the problem declares, in the order of messages.
std::vector<Traveller> travellers_of(const lathe_problem& problem, const AttentionProblem& asked,
                                     bool key_gradients);

// The caller's tensor.
RowCopier::Side local_side(const Traveller& each, const Tensor& tensor, bool packed);
// Compact rows: token after token, of all rows of the batch and all `heads`.
RowCopier::Side compact_side(const Traveller& each, char* data, int64_t batch, int64_t heads,
                             const DeviceTable* index = nullptr);
// Numbers of rows as steps take them: [batch, heads, tokens].
RowCopier::Side dense_side(const Traveller& each, char* data, int64_t heads, int64_t tokens);

// Every rank tells all others one row; rows lie by rank.
RankCopies shares_of_ranks(int rank, int world);

}  // namespace lathe
