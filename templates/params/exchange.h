// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels between exchanges: rows copied by an index or as they are, and
// sums of what ranks send. Widest fields first, no holes.
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

}  // namespace lathe
