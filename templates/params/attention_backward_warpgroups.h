// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the backward of flash attention by warpgroups: the portable
// kernels' parameters, and the maps of what it reads, as in params/attention_warpgroups.h.
#pragma once
#include "templates/params/attention_backward.h"
#include "templates/params/tensor_map.h"

namespace lathe {

// Each block of kTileM queries of a head has a tile of dq's sums, `dq_tiles` of them a head of a
// sequence, or a head of all packed sequences: sm90/dq_tiles.cuh has their layout and their order.
// backward.dq is float32 [B, H, dq_tiles, kTileM, kWidth], packed [H, dq_tiles, kTileM, kWidth];
// backward's strides of dq are not used.
//
// With kDeterministic dq_order is int64 [1 + tiles of dq], zeroed: a counter of tickets, and of
// each tile the tiles of keys that are past it (sm90/dq_order.cuh). Null: there is no dq, or no
// query.
struct AttentionBackwardWarpgroupsParams {
  TensorMap q, k, v, dout;
  AttentionBackwardParams backward;
  void* dq_order;
  int section;  // heads whose tiles of keys take tickets in turns
  int dq_tiles;
};

// A block step of a ring. dq, dk and dv are the caller's float32 sums, and `main.backward` has
// their strides; lse2 and delta are [B, H, Sq]. The maps of q and dout have five dimensions: they
// are ragged, so that a copy ends where the visited range of rows does, and the sequence comes
// last: column, row, head, row again, sequence.
struct AttentionBlockBackwardWarpgroupsParams {
  AttentionBackwardWarpgroupsParams main;  // of which dq_tiles is not used
  const void* ranges;                      // int32 [NP, 7], as in AttentionBlockParams
  int range_count;
  int first_keys;  // nothing to add to: dk and dv are written and not read
};

// With dq_order, as above or null, a tile that no keys have passed holds nothing: its sums are 0.
// finish.dq_sums are these tiles, and finish.dq_blocks is their number; its strides of dq_sums are
// not used.
//
// Config: Element, CuSeqlens, kWidth, kTileM, kPacked.
struct AttentionBackwardWarpgroupsFinishParams {
  AttentionBackwardFinishParams finish;
  const void* cu_seqlens_q;  // [N + 1]; kPacked
  const void* dq_order;
  int sequences;
  int dq_tiles;
};

}  // namespace lathe
