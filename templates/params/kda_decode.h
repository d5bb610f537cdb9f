// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to kda_decode. Widest fields first, no holes; each emitted unit
// asserts the size and the offset of the last field.
#pragma once
#include "templates/params/kda.h"

namespace lathe {

// B sequences of T tokens. Channels of the convolution are those of q, [H, K], of k, [H, K], and of
// v, [HV, V].
struct KdaDecodeParams {
  // Gates, states, records and the output. Its q, k and v are null, because the convolution makes
  // them, and so is state_out where states are only read.
  KdaRecurrentParams state;
  const void* qkv;          // [B, T, channels]
  const void* conv_weight;  // [channels, W]
  const void* conv_bias;    // [channels]
  void* conv_pool;          // [slots, channels, LS], the newest input in the last column
  const void* output_gate;  // [B, T, HV, V]
  const void* norm_weight;  // [V]
  long long qkv_batch_stride, qkv_token_stride;
  long long conv_slot_stride, conv_channel_stride, conv_column_stride;
  long long output_gate_batch_stride, output_gate_token_stride, output_gate_head_stride;
  float norm_eps;
  int reserved;
};

}  // namespace lathe
