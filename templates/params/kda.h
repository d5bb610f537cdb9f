// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the KDA kernels: one plain struct per kernel, read by the host
// compiler and by NVRTC. Widest fields first, no holes; each emitted unit asserts the size and the
// offset of the last field.
//
// Sequences: packed input has batch = 1 and cu_seqlens [N + 1]; otherwise row b of the batch is
// sequence b and N = batch. Value head hv reads the query and key of head hv / (HV / H). Strides
// are in elements; the last dimension is contiguous. With state_v_first every state is [.., V, K].
#pragma once

namespace lathe {

// A KdaGate says where the decay of a token comes from.
enum KdaGate : int {
  kKdaGateGiven = 0,     // g itself
  kKdaGateSoftplus = 1,  // -exp(A_log) softplus(g + dt_bias)
  kKdaGateBounded = 2,   // lower_bound sigmoid(exp(A_log) (g + dt_bias))
};

// These say where a state comes from and goes to. Reads and writes of one state are by the same
// threads.
enum KdaStates : int {
  kKdaStatesPlain = 0,    // initial_state [N] and final_state [N], each if there is one
  kKdaStatesPool = 1,     // slot state_indices[n] of a pool, written after the last token
  kKdaStatesColumns = 2,  // state_indices [N, columns]: column t is written after token t
  // Slot state_indices[n] of a pool, brought up to date by the slot's records. Tokens are appended
  // to these; the state is written only where its records are full.
  kKdaStatesRings = 3,
};

struct KdaRecurrentParams {
  const void* q;                    // [B, T, H, K]
  const void* k;                    // [B, T, H, K]
  const void* v;                    // [B, T, HV, V]
  const void* g;                    // [B, T, HV, K]
  const void* beta;                 // [B, T, HV]
  const void* A_log;                // float32 [HV]
  const void* dt_bias;              // float32 [HV * K]
  const void* cu_seqlens;           // [N + 1]
  const void* state_indices;        // [N] or [N, columns]; a slot that is none is padding
  const void* source_indices;       // [N]: the slots that are read, or null: those of state_indices
  const void* has_initial_state;    // int32 [N], or null: 1
  const void* num_accepted_tokens;  // [N], or null: 1
  const void* state_in;             // [N or slots, HV, K, V], or null: zeros
  void* state_out;                  // the same, or null: not wanted
  // Records of each slot, with rings alone: the key, the update beta (v - S^T k) and the logarithm
  // of the decay of each token behind the pool's state; how many of them count.
  void* ring_k;      // [slots, L, H, K]
  void* ring_u;      // [slots, L, HV, V], of its own type
  void* ring_g;      // float32 [slots, L, HV, K]
  void* ring_count;  // int32 [slots]
  void* o;           // [B, T, HV, V]
  long long q_batch_stride, q_token_stride, q_head_stride;
  long long k_batch_stride, k_token_stride, k_head_stride;
  long long v_batch_stride, v_token_stride, v_head_stride;
  long long g_batch_stride, g_token_stride, g_head_stride;
  long long beta_batch_stride, beta_token_stride;
  long long o_batch_stride, o_token_stride, o_head_stride;
  long long in_slot_stride, in_head_stride, in_row_stride;  // of state_in
  long long out_slot_stride, out_head_stride, out_row_stride;
  int sequences, heads, value_heads;
  int tokens;       // T
  int slots;        // of the pool
  int null_slot;    // stands for padding beside what is no slot
  int ring_length;  // L
  int append;       // whether the tokens of this call count from now on
  int columns;
  float scale;
  float lower_bound;
  float beta_factor;  // of a fused sigmoid: 1, or 2 with negative eigenvalues
};

}  // namespace lathe
