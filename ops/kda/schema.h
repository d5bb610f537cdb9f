// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the tensors and options of Kimi Delta Attention.
#pragma once

#include <optional>

#include "ops/pool_rows.h"
#include "ops/schema.h"
#include "ops/shapes.h"

namespace lathe {

namespace kda_shapes {

inline constexpr const char *kHeads = "B,T,H,K", *kValueHeads = "B,T,HV,V", *kGates = "B,T,HV,K",
                            *kState = "N,HV,K,V|N,HV,V,K";
inline constexpr int kAlignment = 16;  // kernels read float32 rows in pieces of 16 bytes

// These are the first rows of both operators, because shared code names tensors by kda's indices.
inline constexpr std::array kInputs = {
    input("q", kHeads, kFloats, "Queries; their dtype is that of keys, values and o.").strided(),
    input("k", kHeads, "=q", "Keys.").strided(),
    input("v", kValueHeads, "=q", "Values; HV is a multiple of H.").strided(),
    input("g", kGates, kFloats, "The decay's natural logarithm, or the raw gate.").strided(),
    input("beta", "B,T,HV", kFloats, "The step of the delta rule, or its logit.")
        .strided()
        .aligned(1),
    input("A_log", "HV", "f32", "The logarithm of the gate's rate, with use_gate_in_kernel.")
        .optional(),
    input("dt_bias", "HV*K", "f32", "Added to the raw gate, with use_gate_in_kernel.")
        .optional()
        .aligned(kAlignment),
};
inline constexpr TensorInfo kInitialState =
    input("initial_state", kState, "f32", "The state before each sequence; without it, 0.")
        .optional();
inline constexpr TensorInfo kOffsetsRow =
    input("cu_seqlens", "N+1", kOffsets, "Offsets of packed sequences; B is then 1.").optional();
// Rows of a pool, of both operators.
inline constexpr TensorInfo kPool =
    inout("state_pool", "S,HV,K,V|S,HV,V,K", kFloats,
          "States in slots, changed in place; slots that nobody names are not touched. Of 16 bits: "
          "rounded where they are written, and float32 in between.")
        .needs("state_indices")
        .strided();
// Records behind the states of a pool; `dtype` is that of keys.
constexpr std::array<TensorInfo, 4> ring_rows(const char* dtype) {
  return {
      inout("ring_k", "S,L,H,K", dtype,
            "Records of the tokens behind each state of the pool: keys, as the recurrence uses "
            "them.")
          .needs("state_pool,ring_u,ring_g,ring_count")
          .aligned(kAlignment),
      inout("ring_u", "S,L,HV,V", kFloats,
            "The update beta (v - S^T k) of each record; float32 or q's dtype.")
          .needs("ring_k")
          .aligned(kAlignment),
      inout("ring_g", "S,L,HV,K", "f32", "The decay's natural logarithm of each record.")
          .needs("ring_k")
          .aligned(kAlignment),
      inout("ring_count", "S", "i32",
            "How many records of each slot count: its state is that of the pool after these. Where "
            "a call's tokens leave no room, they are folded into the pool.")
          .needs("ring_k"),
  };
}
inline constexpr TensorInfo kO = output("o", kValueHeads, "=q", "The result.").strided();
inline constexpr TensorInfo kFinalState =
    output("final_state", kState, "f32", "The state after each sequence.").needs("o");

}  // namespace kda_shapes

namespace kda {

using namespace kda_shapes;

inline constexpr auto kTensors = joined(
    kInputs,
    std::array{
        kInitialState.aligned(kAlignment),
        kOffsetsRow,
        kPool.needs("state_indices,cu_seqlens"),
    },
    pool_rows::kOfSequences,
    std::array{
        input("do", kValueHeads, "=q", "The gradient of o.").optional().strided(),
        input("dht", kState, "f32", "The gradient of final_state; without it, 0.")
            .needs("do")
            .aligned(kAlignment),
        inout("saved_values", kValueHeads, "=q",
              "With disable_recompute: what each token adds to the state. The call that computes o "
              "writes it for the backward.")
            .changed("o")
            .needs("saved_states")
            .aligned(kAlignment),
        inout("saved_states", "slots,HV,V,K", "=q",
              "With disable_recompute: the state every 64 tokens, ceil(T/64) for each row, or "
              "T/64+N packed. The call that computes o writes it for the backward.")
            .changed("o")
            .needs("saved_values")
            .aligned(kAlignment),
        kO,
        kFinalState.aligned(kAlignment),
        output("chunk_states", "B,NT,HV,K,V|B,NT,HV,V,K", "f32",
               "The state at the start of each chunk; in a packed call the chunks of all sequences "
               "follow one another.")
            .needs("o")
            .aligned(kAlignment),
        output("dq", kHeads, "=q", "The gradient of q.").needs("do").strided(),
        output("dk", kHeads, "=q", "The gradient of k.").needs("do").strided(),
        output("dv", kValueHeads, "=q", "The gradient of v.").needs("do").strided(),
        output("dg", kGates, "=g", "The gradient of g as it was given.").needs("do").strided(),
        output("dbeta", "B,T,HV", "=beta", "The gradient of beta as it was given.")
            .needs("do")
            .strided()
            .aligned(1),
        output("dA_log", "HV", "f32", "The gradient of A_log.").needs("do,A_log"),
        output("ddt_bias", "HV*K", "f32", "The gradient of dt_bias.").needs("do,dt_bias"),
        output("dinitial_state", kState, "f32", "The gradient of the initial state.")
            .needs("do")
            .aligned(kAlignment),
    });

consteval int at(std::string_view name) { return index_of(kTensors, name); }
// The tensor "do" is d_o here, because `do` is a keyword of C++.
inline constexpr int q = at("q"), k = at("k"), v = at("v"), g = at("g"), beta = at("beta"),
                     A_log = at("A_log"), dt_bias = at("dt_bias"),
                     initial_state = at("initial_state"), cu_seqlens = at("cu_seqlens"),
                     state_pool = at("state_pool"), state_indices = at("state_indices"),
                     source_indices = at("source_indices"),
                     has_initial_state = at("has_initial_state"),
                     cu_checkpoints = at("cu_checkpoints"),
                     checkpoint_tokens = at("checkpoint_tokens"),
                     checkpoint_slots = at("checkpoint_slots"), d_o = at("do"), dht = at("dht"),
                     saved_values = at("saved_values"), saved_states = at("saved_states"),
                     o = at("o"), final_state = at("final_state"),
                     chunk_states = at("chunk_states"), dq = at("dq"), dk = at("dk"), dv = at("dv"),
                     dg = at("dg"), dbeta = at("dbeta"), dA_log = at("dA_log"),
                     ddt_bias = at("ddt_bias"), dinitial_state = at("dinitial_state");

}  // namespace kda

namespace kda_recurrent {

using namespace kda_shapes;

inline constexpr auto kTensors =
    joined(kInputs,
           std::array{
               kInitialState.strided(),
               kOffsetsRow,
               kPool,
               input("state_indices", "N|N,spec", kOffsets,
                     "The slot of each sequence, or with [N,spec] the slot for the state after "
                     "each of its tokens; below 0 or null_slot, in the first column: padding.")
                   .needs("state_pool"),
               pool_rows::kSourceIndices,
               pool_rows::kHasInitialState,
               input("num_accepted_tokens", "N", "=state_indices",
                     "With [N,spec]: a sequence starts from the slot in column num_accepted_tokens "
                     "- 1; without it, from that in column 0.")
                   .needs("state_indices"),
           },
           ring_rows("=q"),
           std::array{
               kO,
               kFinalState.strided(),
           });

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int q = at("q"), k = at("k"), v = at("v"), g = at("g"), beta = at("beta"),
                     A_log = at("A_log"), dt_bias = at("dt_bias"),
                     initial_state = at("initial_state"), cu_seqlens = at("cu_seqlens"),
                     state_pool = at("state_pool"), state_indices = at("state_indices"),
                     source_indices = at("source_indices"),
                     has_initial_state = at("has_initial_state"),
                     num_accepted_tokens = at("num_accepted_tokens"), ring_k = at("ring_k"),
                     ring_u = at("ring_u"), ring_g = at("ring_g"), ring_count = at("ring_count"),
                     o = at("o"), final_state = at("final_state");

}  // namespace kda_recurrent

// Both operators have these options.
struct KdaInputOptions {
  std::optional<float> scale;  // none: K^-0.5
  bool use_qk_l2norm_in_kernel = false, use_gate_in_kernel = false;
  bool use_beta_sigmoid_in_kernel = false, allow_neg_eigval = false, safe_gate = false;
  std::optional<float> lower_bound;
  bool state_v_first = false;
};
struct KdaRecurrentOptions : KdaInputOptions {
  int64_t null_slot = -1;
  bool update_state = true, append = true;
};
struct KdaOptions : KdaInputOptions {
  int64_t null_slot = -1;
  int64_t chunk_size = 64, segments = 0, warmup_segments = 0;
  bool disable_recompute = false;
};

}  // namespace lathe
