// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the row copies between the ranks' buffers: who sends which rows to whom, and where the rows
// arrive. Every tensor of the same tokens follows one list. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/plans/balance.h"

namespace lathe {

// Rows [from_row, from_row + rows) of rank `from`'s buffer become the rows from `to_row` on of rank
// `to`'s.
struct RowCopy {
  int from = 0, to = 0;
  int64_t from_row = 0, to_row = 0, rows = 0;
  bool operator==(const RowCopy&) const = default;
};
using RowCopies = std::vector<RowCopy>;  // in an order that all ranks share

// Leaves out empty copies, and joins neighbours where the second goes on where the first ends.
RowCopies joined(const RowCopies& copies);
// Returns the copies that bring all rows home: `from` and `to` are exchanged.
RowCopies reversed(const RowCopies& copies);

// More messages than these between two ranks cost more than rows copied once more.
constexpr int64_t kMostMessages = 64;
// Returns the largest number of copies from one rank to another.
int64_t most_between(const RowCopies& copies);

// A piece is one message: rows of a buffer, to or from `peer`.
struct Piece {
  int peer = 0;
  int64_t row = 0, rows = 0;
  bool operator==(const Piece&) const = default;
};

// Holds one rank's messages and own copies for a list of copies. Between two ranks messages match
// in their order.
struct RankCopies {
  std::vector<Piece> sends, receives;
  // If packed, row i of the message buffer is row send_rows[i] of the source, and received row i is
  // row receive_rows[i] of the destination. A list is empty if the rows already lie in message
  // order.
  std::vector<int32_t> send_rows, receive_rows;
  // These rows stay on the rank: row own_to[i] of the destination is row own_from[i] of the source.
  std::vector<int32_t> own_from, own_to;

  int64_t sent() const;
  int64_t received() const;
};
// If `packed`, a rank sends one message to each other rank, else one for each copy.
RankCopies copies_of_rank(const RowCopies& copies, int rank, bool packed);

// Shares of the heads are dealt out in runs: rank r has the shares [begin, end) of all, maybe none.
Interval shares_of(int64_t shares, int rank, int world);
// Copies every rank's tokens to all others, once for each of their shares, so that each rank gets
// the whole axis to compute its shares of the heads. The rows that a rank sends for share s are
// counted from s * (its tokens); where they arrive the rows of a rank's i-th share are counted from
// i * (all tokens). A rank's own rows are listed once, from 0 on both sides.
RowCopies axis_copies(const ShardLayout& layout, int64_t shares);

// Makes the outer of two levels: `count` neighbouring ranks together hold one part and act as one
// rank. Their intervals are in the order of positions.
ShardLayout joined_parts(const ShardLayout& layout, int count);
// Makes the inner level: the `count` ranks from `first` on hold one part, and their intervals are
// in rows of that part.
ShardLayout inside_part(const ShardLayout& layout, int first, int count);

}  // namespace lathe
