// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the kernels of chunked KDA. In each struct the widest fields
// come first, without holes; each emitted unit asserts the size and the offset of the last field.
//
// B batch rows of T tokens, or packed sequences in one row of T tokens; H query and key heads, HV
// value heads, value head hv reading query head hv / (HV / H). Strides are in elements; widths are
// contiguous. States of the caller are contiguous too but for those of a pool, [.., K, V], or
// [.., V, K] with state_v_first.
//
// Slots: fixed lengths have ceil(T / 64) of them a row; packed sequence n has those from
// cu_seqlens[n] / 64 + n on, T / 64 + N in all, and what a sequence does not need lies idle.
//
// Segments: a sequence of `count` tokens is cut into `segments` runs of
// ceil(ceil(count / 64) / segments) * 64 tokens; the last ones may be short or empty.
#pragma once

namespace lathe {

constexpr int kKdaChunk = 64;      // tokens between two states that are kept for the backward
constexpr int kKdaBlock = 16;      // tokens that are worked on at once
constexpr int kKdaLongestRun = 2;  // chunks in a run, whose states follow from the first one's

// KdaInputs is what every one of them reads.
struct KdaInputs {
  const void* q;           // [B, T, H, K]
  const void* k;           // [B, T, H, K]
  const void* v;           // [B, T, HV, V]
  const void* g;           // [B, T, HV, K]: logarithm of the decay, or what the gate makes it of
  const void* beta;        // [B, T, HV]: or its logit
  const void* A_log;       // float32 [HV]
  const void* dt_bias;     // float32 [HV, K]
  const void* cu_seqlens;  // [N + 1]
  long long q_batch_stride, q_token_stride, q_head_stride;
  long long k_batch_stride, k_token_stride, k_head_stride;
  long long v_batch_stride, v_token_stride, v_head_stride;
  long long g_batch_stride, g_token_stride, g_head_stride;
  long long beta_batch_stride, beta_token_stride, beta_head_stride;
  int sequences, heads, value_heads;
  int tokens;              // T
  int key_dim, value_dim;  // K and V, multiples of 4
  int value_tiles;         // thread blocks that share the values of a head
  int segments;            // of a sequence
  float scale, lower_bound;
  float beta_factor;  // of a fused sigmoid: 1, or 2 with negative eigenvalues
  int reserved;
};

// A KdaCarry tells one rank among several of the sequences that the ends of its part cut. The first
// `carried` ones began before it, those from `open` on go on behind it. Their ends on other ranks
// are states here, and initial_state, dht and what is written of either are for the others.
struct KdaCarry {
  const void* states;  // float32 [carried, HV, V, K]: S^T where the part begins
  const void* grads;   // float32 [N - open, HV, V, K]: dS^T where it ends
  int carried, open;
};

// A KdaPool has the states of sequences in slots, in place of initial_state and final_state. Slots
// that are negative, past the pool or null_slot stand for padding.
struct KdaPool {
  const void* state_indices;      // [N]: the slot that a sequence writes
  const void* source_indices;     // [N]: the slots that are read, or null: those of state_indices
  const void* has_initial_state;  // int32 [N], or null: 1
  const void* cu_checkpoints;     // int32 [N + 1]
  const void* checkpoint_tokens;  // int32 [checkpoints]: after so many tokens of its sequence
  const void* checkpoint_slots;   // int32 [checkpoints]: the state goes to this slot too
  void* states;                   // [slots, HV, K, V], or [slots, HV, V, K], of its own type
  // float32 [N, HV, V, K]: the state before each sequence of several segments, whose last one may
  // write the slot before the first one would read it.
  void* before;
  long long slot_stride, head_stride, row_stride;  // of states
  int slots, null_slot;
  int checkpoints, reserved;
};

struct KdaForwardParams {
  KdaInputs in;
  KdaCarry carry;             // read with kRanks
  KdaPool pool;               // read with a pool
  const void* initial_state;  // float32 [N, HV, K, V], or [N, HV, V, K]
  const void* summaries;      // as KdaMergeParams leaves them; read where segments > 1
  void* transitions;          // of a launch that makes these itself: kda/sm90/cluster_chain.cuh
  void* o;                    // [B, T, HV, V]
  void* final_state;          // as initial_state
  void* chunk_states;         // float32 [chunks, HV, K, V]: the state at the start of each chunk
  void* saved_values;         // [B, T, HV, V], contiguous: what each token adds to the state
  void* saved_states;         // [slots, HV, V, K] of the inputs' type: the state at their start
  long long o_batch_stride, o_token_stride, o_head_stride;
  int kept_tokens;  // from one of saved_states that is written to the next: 64 or 128
  int reserved;
  int chunk_size;  // of chunk_states: 16, 32 or 64
  int chunks;      // that chunk_states has room for
};

// A segment makes M S + E of the state S before it, and M^T dS + D of the gradient dS behind it.
// Thread blocks below `forward_blocks` walk forward, the others back. Of either kind a launch
// leaves out as many blocks as its first sequences would have.
struct KdaSummaryParams {
  KdaInputs in;
  KdaPool pool;               // read with a pool
  const void* initial_state;  // in the E of a first segment, or null
  const void* d_o;            // [B, T, HV, V]
  const void* dht;            // float32, as a state: in the gradient of a last segment, or null
  void* summaries;            // float32 [N, segments, HV, V, K]: E^T
  void* transitions;          // float32 [N, segments, HV, K, K]: M^T
  void* grad_ends;  // float32 [N, segments, HV, V, K]: D^T, the gradient before each segment
  long long do_batch_stride, do_token_stride, do_head_stride;
  int forward_blocks, forward_skipped, back_skipped;
  int carried, open;  // as KdaCarry's; none, and N, where nothing is cut
  // Whether nothing is cut and the forward blocks are those alone that such a launch may want: of a
  // sequence and head E of all segments but the last one, and M of those but the first one.
  int wanted_only;
};

// The chain over segments, in place: E of each segment becomes the state behind it, and grad_ends
// the gradient of the state before it; not those of the last segment and of the first one.
struct KdaMergeParams {
  KdaCarry carry;  // read with kRanks
  const void* cu_seqlens;
  void* summaries;
  const void* transitions;
  void* grad_ends;
  int sequences, value_heads, tokens;
  int key_dim, value_dim;
  int segments;
  int rows;  // of a thread block: 16, or the kernel's most
  int reserved;
};

// Elements of a chain in the order in which a state, or back a gradient, goes through them. Runs
// are heads of a sequence: of sequence n, element e and head h it is run n * sequence_runs +
// e * element_runs + h.
struct KdaComposeSide {
  void* ends;         // float32 [runs, V, K]: E^T, or back D^T
  void* transitions;  // float32 [runs, K, K]: M^T
  // The results are here: of sequence n, of the elements from e on and of head h, run n * HV + e *
  // element_runs + h. May be the elements themselves.
  void* to_ends;
  void* to_transitions;
  long long sequence_runs, element_runs;
  int elements;  // 0: none
  int maps;      // whether the transition of the first ones is wanted: not by a state
};

// One level of a tree: every `radix` elements that are `step` apart become one.
struct KdaComposeParams {
  KdaComposeSide forward, back;
  int sequences, value_heads;
  int key_dim, value_dim;
  int radix, step;
  int forward_blocks, reserved;
};

// The two walks of the backward in one launch: thread blocks below `forward_blocks` go through the
// sequences as kda_forward does and save values and states, the others go back.
struct KdaBackwardScanParams {
  KdaInputs in;
  KdaCarry carry;  // read with kRanks
  const void* initial_state;
  const void* summaries;  // read where segments > 1
  const void* grad_ends;
  const void* d_o;  // [B, T, HV, V]
  const void* dht;  // float32, as a state
  void* dinitial_state;
  void* saved_values;
  void* saved_states;
  void* value_grads;  // [B, T, HV, V]: gradient of what beta scales
  void* state_grads;  // [slots, HV, V, K]: gradient of the state at their end
  long long do_batch_stride, do_token_stride, do_head_stride;
  // With kByBeta; else they are contiguous.
  long long value_grads_batch_stride, value_grads_token_stride, value_grads_head_stride;
  int forward_blocks, reserved;
};

// The gradients of a chunk of 64 tokens from what the walks left. Of dq to dbeta any may be null:
// not wanted.
struct KdaBackwardParams {
  KdaInputs in;
  const void* d_o;
  const void* saved_values;
  const void* saved_states;
  const void* value_grads;
  const void* state_grads;
  void* dq;         // [B, T, H, K]
  void* dk;         // [B, T, H, K]
  void* dv;         // [B, T, HV, V]
  void* dg;         // [B, T, HV, K]: of g as it was given
  void* dbeta;      // [B, T, HV]: of beta as it was given
  void* rate_sums;  // float32 [slots, HV]: what each chunk adds to the gradient of A_log
  void* bias_sums;  // float32 [slots, HV, K]: and to that of dt_bias
  long long do_batch_stride, do_token_stride, do_head_stride;
  long long value_grads_batch_stride, value_grads_token_stride, value_grads_head_stride;
  long long dq_batch_stride, dq_token_stride, dq_head_stride;
  long long dk_batch_stride, dk_token_stride, dk_head_stride;
  long long dv_batch_stride, dv_token_stride, dv_head_stride;
  long long dg_batch_stride, dg_token_stride, dg_head_stride;
  long long dbeta_batch_stride, dbeta_token_stride, dbeta_head_stride;
  int slots;
  int run;  // chunks of a sequence that a thread block goes through, from one state that is read on
};

// Sums over slots in one order: the gradients of A_log and dt_bias. Either may be null.
struct KdaBackwardFinishParams {
  const void* rate_sums;
  const void* bias_sums;
  void* dA_log;    // float32 [HV]
  void* ddt_bias;  // float32 [HV, K]
  int slots, value_heads, key_dim, reserved;
};

}  // namespace lathe
