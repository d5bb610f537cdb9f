// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table of Kimi Delta Attention.
#include <iterator>

#include "ops/entries.h"
#include "ops/kda/request.h"

namespace lathe {
namespace {

using namespace entries;

constexpr const char* kHeads = "B,T,H,K";
constexpr const char* kValueHeads = "B,T,HV,V";
constexpr const char* kGates = "B,T,HV,K";
constexpr const char* kStateShape = "N,HV,K,V|N,HV,V,K";
constexpr int kStateAlignment = 16;  // kernels read float32 rows in pieces

const lathe_operator_tensor kKdaTensors[] = {
    in("q", kHeads, false, kFloats, "Queries; their dtype is that of keys, values and o."),
    in("k", kHeads, false, "=q", "Keys."),
    in("v", kValueHeads, false, "=q", "Values; HV is a multiple of H."),
    in("g", kGates, false, kFloats, "The decay's natural logarithm, or the raw gate."),
    in("beta", "B,T,HV", false, kFloats, "The step of the delta rule, or its logit."),
    in("A_log", "HV", true, "f32", "The logarithm of the gate's rate, with use_gate_in_kernel."),
    in("dt_bias", "HV*K", true, "f32", "Added to the raw gate, with use_gate_in_kernel."),
    in("initial_state", kStateShape, true, "f32", "The state before each sequence; else 0."),
    in("cu_seqlens", "N+1", true, "i32|i64", "Offsets of packed sequences; B is then 1."),
    in("do", kValueHeads, true, "=q", "The gradient of o."),
    in("dht", kStateShape, true, "f32", "The gradient of final_state; else 0."),
    {"saved_values", kValueHeads, LATHE_INOUT, 1, "=q", nullptr,
     "With disable_recompute: what each token adds to the state, left by the call that gives o.",
     nullptr, "o"},
    {"saved_states", "slots,HV,V,K", LATHE_INOUT, 1, "=q", nullptr,
     "The same: states every 64 tokens, ceil(T/64) for each row, or T/64+N packed.", nullptr, "o"},
    out("o", kValueHeads, "=q", "The result."),
    out("final_state", kStateShape, "f32", "The state after each sequence."),
    out("chunk_states", "B,NT,HV,K,V|B,NT,HV,V,K", "f32",
        "The state at the start of each chunk; packed: of the chunks of all sequences."),
    out("dq", kHeads, "=q", "The gradient of q."),
    out("dk", kHeads, "=q", "The gradient of k."),
    out("dv", kValueHeads, "=q", "The gradient of v."),
    out("dg", kGates, "=g", "The gradient of g as it was given."),
    out("dbeta", "B,T,HV", "=beta", "The gradient of beta as it was given."),
    out("dA_log", "HV", "f32", "The gradient of A_log."),
    out("ddt_bias", "HV*K", "f32", "The gradient of dt_bias."),
    out("dinitial_state", kStateShape, "f32", "The gradient of the initial state."),
};
const TensorRules kKdaRules[] = {
    {true, ""},                                        // q
    {true, ""},                                        // k
    {true, ""},                                        // v
    {true, ""},                                        // g
    {.strided = true, .alignment = 1},                 // beta
    {false, ""},                                       // A_log
    {.alignment = kStateAlignment},                    // dt_bias
    {.alignment = kStateAlignment},                    // initial_state
    {false, ""},                                       // cu_seqlens
    {true, ""},                                        // do
    {false, "do", kStateAlignment},                    // dht
    {false, "saved_states", kStateAlignment},          // saved_values
    {false, "saved_values", kStateAlignment},          // saved_states
    {true, ""},                                        // o
    {false, "o", kStateAlignment},                     // final_state
    {false, "o", kStateAlignment},                     // chunk_states
    {true, "do"},                                      // dq
    {true, "do"},                                      // dk
    {true, "do"},                                      // dv
    {true, "do"},                                      // dg
    {.strided = true, .needs = "do", .alignment = 1},  // dbeta
    {false, "do,A_log"},                               // dA_log
    {false, "do,dt_bias"},                             // ddt_bias
    {false, "do", kStateAlignment},                    // dinitial_state
};
static_assert(std::size(kKdaTensors) == kda::count && std::size(kKdaRules) == kda::count &&
              kda::count <= kMaxTensors);

const lathe_operator_tensor kKdaRecurrentTensors[] = {
    in("q", kHeads, false, kFloats, "Queries; their dtype is that of keys, values and o."),
    in("k", kHeads, false, "=q", "Keys."),
    in("v", kValueHeads, false, "=q", "Values; HV is a multiple of H."),
    in("g", "B,T,HV,K", false, kFloats, "The decay's natural logarithm, or the raw gate."),
    in("beta", "B,T,HV", false, kFloats, "The step of the delta rule, or its logit."),
    in("A_log", "HV", true, "f32", "The logarithm of the gate's rate, with use_gate_in_kernel."),
    in("dt_bias", "HV*K", true, "f32", "Added to the raw gate, with use_gate_in_kernel."),
    in("initial_state", kStateShape, true, "f32", "The state before each sequence; else 0."),
    in("cu_seqlens", "N+1", true, "i32|i64", "Offsets of packed sequences; B is then 1."),
    {"state_pool", "S,HV,K,V|S,HV,V,K", LATHE_INOUT, 1, "f32", nullptr,
     "States in slots, changed in place; slots that nobody names are not touched."},
    in("state_indices", "N|N,spec", true, "i32|i64",
       "The slot of each sequence, or those after each of its tokens; below 0: padding."),
    in("num_accepted_tokens", "N", true, "=state_indices",
       "With [N,spec]: the sequence starts from the column before this one; else from the first."),
    out("o", kValueHeads, "=q", "The result."),
    out("final_state", kStateShape, "f32", "The state after each sequence."),
};
const TensorRules kKdaRecurrentRules[] = {
    {true, ""},                         // q
    {true, ""},                         // k
    {true, ""},                         // v
    {true, ""},                         // g
    {.strided = true, .alignment = 1},  // beta
    {false, ""},                        // A_log
    {.alignment = 16},                  // dt_bias
    {true, ""},                         // initial_state
    {false, ""},                        // cu_seqlens
    {true, "state_indices"},            // state_pool
    {false, "state_pool"},              // state_indices
    {false, "state_indices"},           // num_accepted_tokens
    {true, ""},                         // o
    {true, "o"},                        // final_state
};
static_assert(std::size(kKdaRecurrentTensors) == kda_recurrent::count &&
              std::size(kKdaRecurrentRules) == kda_recurrent::count &&
              kda_recurrent::count <= kMaxTensors);

constexpr lathe_operator_option kScale = {"scale", LATHE_OPTION_DOUBLE, "K^-0.5", "K^-0.5|>0",
                                          "What o is multiplied by."};
constexpr lathe_operator_option kNorm =
    flag("use_qk_l2norm_in_kernel", "Whether rows of q and k are divided by their norms.");
constexpr lathe_operator_option kGate =
    flag("use_gate_in_kernel", "Whether g is the raw gate; lower_bound chooses the formula.");
constexpr lathe_operator_option kSigmoid =
    flag("use_beta_sigmoid_in_kernel", "Whether beta is a logit.");
constexpr lathe_operator_option kNegative =
    flag("allow_neg_eigval", "Whether beta is twice the logit's sigmoid.");
constexpr lathe_operator_option kLowerBound = {
    "lower_bound", LATHE_OPTION_DOUBLE, "unset", "unset|[-5,0)",
    "The gate becomes lower_bound * sigmoid; unset: -exp(A_log) * softplus."};
constexpr lathe_operator_option kValueFirst = flag("state_v_first", "Whether states are [..,V,K].");
constexpr lathe_operator_option kFinal = {
    "output_final_state", LATHE_OPTION_INT, "0", "0|1",
    "Whether final_state is computed; declaring the tensor says the same."};

const lathe_operator_option kKdaOptions[] = {
    kScale,
    {"chunk_size", LATHE_OPTION_INT, "64", "64|16|32",
     "Tokens between two of chunk_states; nothing else depends on it."},
    kNorm,
    kGate,
    kSigmoid,
    kNegative,
    flag("safe_gate", "A promise that g is not below -5, of which nothing depends."),
    kLowerBound,
    kValueFirst,
    kFinal,
    {"output_chunk_states", LATHE_OPTION_INT, "0", "0|1",
     "Whether chunk_states are computed; declaring the tensor says the same."},
    flag("disable_recompute",
         "Whether the forward leaves what the backward would walk through the tokens again for."),
    {"segments", LATHE_OPTION_INT, "0", "0|[1,33)",
     "Into how many parts sequences are cut, which is exact; 0: chosen for the device."},
    {"warmup_segments", LATHE_OPTION_INT, "0", "0|[1,33)",
     "The same for inference, each part begun early from a state of 0, which is not."},
    {"deterministic", LATHE_OPTION_INT, "1", "1|0",
     "Results repeat bit for bit whatever it says: there are no atomics."},
};

const lathe_operator_option kKdaRecurrentOptions[] = {
    kScale,
    kNorm,
    kGate,
    kSigmoid,
    kNegative,
    flag("safe_gate", "A promise that g is not below -5, of which token by token nothing depends."),
    kLowerBound,
    kValueFirst,
    kFinal,
};

Result<std::unique_ptr<Executor>> make_chunked(const lathe_problem& problem,
                                               const Extents& promised, const DeviceFacts& facts) {
  LATHE_ASSIGN(const KdaRequest request, kda_request(problem, promised));
  return make_kda(request, facts, problem.group ? problem.group->group.get() : nullptr,
                  problem.group_flags & LATHE_REDUCE_PARAMETER_GRADS);
}

Result<std::unique_ptr<Executor>> make_recurrent(const lathe_problem& problem,
                                                 const Extents& promised,
                                                 const DeviceFacts& facts) {
  LATHE_ASSIGN(const KdaRequest request, kda_recurrent_request(problem, promised));
  return make_kda_recurrent(request, facts);
}

const Operator kOperators[] = {
    {{"kda", "Kimi Delta Attention over whole or packed sequences, forward and backward.",
      kKdaTensors, std::size(kKdaTensors), kKdaOptions, std::size(kKdaOptions), 1},
     kKdaRules,
     "o,dq,dk,dv,dg,dbeta,dA_log,ddt_bias,dinitial_state",
     check_kda,
     make_chunked,
     Sequences::one_row,
     true},
    {{"kda_recurrent", "Kimi Delta Attention token by token, for decoding and as the reference.",
      kKdaRecurrentTensors, std::size(kKdaRecurrentTensors), kKdaRecurrentOptions,
      std::size(kKdaRecurrentOptions), 0},
     kKdaRecurrentRules,
     "o",
     check_kda_recurrent,
     make_recurrent},
};

}  // namespace

std::span<const Operator> kda_operators() { return kOperators; }

}  // namespace lathe
