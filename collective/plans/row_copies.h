// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows of tokens that go from the buffers of ranks to those of others, as data: who sends which
// rows to whom, and where they arrive. Every tensor of the same tokens follows one list. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/plans/balance.h"

namespace lathe {

// Rows [from_row, from_row + rows) of rank `from`'s buffer become those from `to_row` on of `to`'s.
struct RowCopy {
  int from = 0, to = 0;
  int64_t from_row = 0, to_row = 0, rows = 0;
  bool operator==(const RowCopy&) const = default;
};
using RowCopies = std::vector<RowCopy>;  // in an order that all ranks share

// Leaves out what is empty, and makes one of neighbours that go on where the other ended.
RowCopies joined(const RowCopies& copies);
// Everything goes home: from and to exchanged.
RowCopies reversed(const RowCopies& copies);

// More messages than these between two ranks cost more than rows copied once more.
constexpr int64_t kMostMessages = 64;
// The most copies from one rank to another one.
int64_t most_between(const RowCopies& copies);

// One message: rows of a buffer, to or from `peer`.
struct Piece {
  int peer = 0;
  int64_t row = 0, rows = 0;
  bool operator==(const Piece&) const = default;
};

// What one rank does for a list of copies. Between two ranks messages match in their order.
struct RankCopies {
  std::vector<Piece> sends, receives;
  // Packed: row i of the message buffer is row send_rows[i] of the source, and received row i is
  // row receive_rows[i] of the destination; empty where the rows lie as the messages have them.
  std::vector<int32_t> send_rows, receive_rows;
  // Rows that stay: own_to[i] of the destination is own_from[i] of the source.
  std::vector<int32_t> own_from, own_to;

  int64_t sent() const;
  int64_t received() const;
};
// `packed`: one message from a rank to another, else one for each move.
RankCopies copies_of_rank(const RowCopies& copies, int rank, bool packed);

// Every rank's tokens to all others, whole axes at their end: where a share of the heads is
// computed. The rows that rank r sends to its i-th peer are counted from i * (its tokens).
RowCopies axis_copies(const ShardLayout& layout);

// Two levels: `count` ranks at a time hold one part together, their intervals in the order of
// positions, and meet the other parts as one.
ShardLayout joined_parts(const ShardLayout& layout, int count);
// The ranks from `first` on that hold one part: their intervals in rows of it.
ShardLayout inside_part(const ShardLayout& layout, int first, int count);

}  // namespace lathe
