// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the host hands to move_rows and sum_rows. Widest fields first, no holes.
#pragma once

namespace lathe {

// Where the rows of one side lie: of token t, row b of the batch and head h at
//   place(t) token + b batch + (h / heads) group + (h % heads) head
// in words, with place(t) = index[t], or t without an index. From `skip_at` on heads are counted
// `skip` higher.
struct RowPlaces {
  void* data;
  const void* index;  // int32 [tokens]
  long long token, batch, head, group;
  int heads;  // of a group
  int skip_at, skip;
};

struct RowMove {
  RowPlaces from, to;
  int tokens, batch, heads;
  int words;       // of one head
  int repeat;      // so many heads in a row are one head of `from`
  int last_block;  // blocks of this move and of those before it
};

constexpr int kMaxRowMoves = 10;
struct MoveRowsParams {
  RowMove moves[kMaxRowMoves];
  int count, unused;
};

// Sums over what several ranks have sent, in their order. Listed: token t has the rows list[i] for
// i from first[t] to first[t + 1] - 1; they lie in `slots`, from `slot_rows` on in `own`. Otherwise
// head h has `terms` of them, of the ranks h terms + i: a group each, that of rank `own_at` behind
// those of all others.
struct RowSum {
  const void* slots;  // [groups, tokens, batch, columns]; listed: [rows, batch, heads, columns]
  const void* own;    // the same, if listed
  void* to;
  const void* first;                    // int32 [tokens + 1]
  const void* list;                     // int32
  long long token, batch, head, group;  // strides of slots and of own, in elements
  long long to_token, to_batch, to_head;
  int tokens, batch_rows, heads, columns;
  int terms, slot_rows;
  int own_at, own_group;
  int last_block, unused;
};

constexpr int kMaxRowSums = 2;
struct SumRowsParams {
  RowSum sums[kMaxRowSums];
  int count, unused;
};

}  // namespace lathe
