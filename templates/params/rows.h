// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these structs to the kernels that copy and add up the rows which ranks exchange.
// Widest fields first, no holes.
#pragma once

namespace lathe {

// Tokens of a tensor [B, G, T, H, row]. A thread of 2^lane_bits takes a share of one token: all
// rows of its heads.
struct CopyRowsParams {
  const void* from;   // [B, G, T or limit, H, row]
  const void* index;  // int32 [T]
  void* to;           // [B, G, T or limit, H, row]
  long long from_batch_stride, from_group_stride, from_token_stride, from_head_stride;  // in bytes
  long long to_batch_stride, to_group_stride, to_token_stride, to_head_stride;
  int cells;           // B * G * T
  int groups, tokens;  // G and T
  int heads, vectors;  // H, and vectors of one row
  int limit;           // tokens on the side that the index speaks of
  int lane_bits, reserved;
};

// A RowLayout says where the rows of one side lie: those of token t, row b of the batch and head h
// at
//   index_of(t) token + b batch + (h / heads) group + (h % heads) head
// in words, with index_of(t) = index[t], or t without an index. From `skip_at` on heads are counted
// `skip` higher.
struct RowLayout {
  void* data;
  const void* index;  // int32 [tokens]; a negative one: the row is left alone
  long long token, batch, head, group;
  int heads;  // of a group
  int skip_at, skip;
};

struct RowMove {
  RowLayout from, to;
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

// Offsets of pieces of `tokens` tokens become those of all rows of a batch, one after another:
// to[b * pieces + i] = b * tokens + offsets[i].
struct RepeatOffsetsParams {
  const void* offsets;  // int32 [pieces + 1]
  void* to;             // int32 [batch * pieces + 1]
  int batch, pieces, tokens;
  int reserved;
};

// out[i] = a[i] + b[i]; out may be a or b.
struct AddRowsParams {
  const void* a;  // [count]
  const void* b;  // float32 [count]
  void* out;      // [count]
  long long count;
};

// out[b, t] = own[b, t] + the parts that hold t, in the order of `places`.
struct SumPartsParams {
  const void* own;     // float32 [B, T, H, row]; heads lie side by side
  const void* parts;   // one after another, each [B, tokens of the part, H, row]
  const void* places;  // int32 [P, 3]: tokens of all parts before it in `parts`, first token, last
                       // + 1; below 0: own
  void* out;           // [B, T, H, row]
  long long own_batch_stride;  // in elements
  long long out_batch_stride, out_token_stride, out_head_stride;
  long long part_tokens;  // of all parts
  int cells;              // B * T
  int batch, tokens;
  int heads, vectors;  // vectors of one row of Config::kVector elements
  int count;           // P
  int lane_bits, reserved;
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
