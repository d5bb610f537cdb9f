// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the causal_conv1d forward over slots of a pool, or into
// several results, and to the update over slots.
#pragma once
#include "templates/params/conv.h"

namespace lathe {

constexpr int kConvMostParts = 8;

// States before and behind sequences. Without indices sequence n reads state n and writes state n.
// The fields of slots are those that templates/kda/slots.cuh reads.
struct ConvPool {
  const void* state_indices;      // [N]: the slot that a sequence writes
  const void* source_indices;     // [N]: the slots that are read, or null: those of state_indices
  const void* has_initial_state;  // int32 [N], or null: 1
  const void* cu_checkpoints;     // int32 [N + 1]
  const void* checkpoint_tokens;  // int32 [checkpoints]: after so many tokens of its sequence
  const void* checkpoint_slots;   // int32 [checkpoints]: the state goes to this slot too
  const void* before;             // [slots, D, L]: states that are read, or null
  void* after;                    // those that are written, the same or others, or null
  long long slot_stride, channel_stride, column_stride;  // of both
  int slots, null_slot;
  int checkpoints, reserved;
};

struct ConvSlotsParams {
  ConvForwardParams call;  // without initial_state and final_state
  ConvPool pool;
  void* parts[kConvMostParts];  // [B, T, its channels], in place of y
  long long part_batch_stride[kConvMostParts], part_token_stride[kConvMostParts];
  int part_end[kConvMostParts];  // the first channel behind a part
};

// causal_conv1d_update over slots of a pool whose columns need not be neighbours.
struct ConvUpdatePoolParams {
  ConvUpdateSlotsParams call;
  long long state_column_stride;
  int rows;  // sequences of a warp, where each has a token
  int reserved;
};

}  // namespace lathe
