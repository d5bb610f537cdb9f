// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table of Kimi Delta Attention.
#include <iterator>

#include "api/operator_entries.h"

namespace lathe {
namespace {

using namespace entries;

constexpr const char* kHeads = "B,T,H,K";
constexpr const char* kValueHeads = "B,T,HV,V";
constexpr const char* kStateShape = "N,HV,K,V|N,HV,V,K";

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

const lathe_operator_option kKdaRecurrentOptions[] = {
    {"scale", LATHE_OPTION_DOUBLE, "K^-0.5", "K^-0.5|>0", "What o is multiplied by."},
    flag("use_qk_l2norm_in_kernel", "Whether rows of q and k are divided by their norms."),
    flag("use_gate_in_kernel", "Whether g is the raw gate; lower_bound chooses the formula."),
    flag("use_beta_sigmoid_in_kernel", "Whether beta is a logit."),
    flag("allow_neg_eigval", "Whether beta is twice the logit's sigmoid."),
    flag("safe_gate", "A promise that g is not below -5, of which token by token nothing depends."),
    {"lower_bound", LATHE_OPTION_DOUBLE, "unset", "unset|[-5,0)",
     "The gate becomes lower_bound * sigmoid; unset: -exp(A_log) * softplus."},
    flag("state_v_first", "Whether states are [..,V,K]."),
    {"output_final_state", LATHE_OPTION_INT, "0", "0|1",
     "Whether final_state is computed; declaring the tensor says the same."},
};

const Operator kOperators[] = {
    {{"kda_recurrent", "Kimi Delta Attention token by token, for decoding and as the reference.",
      kKdaRecurrentTensors, std::size(kKdaRecurrentTensors), kKdaRecurrentOptions,
      std::size(kKdaRecurrentOptions), 0},
     kKdaRecurrentRules,
     Family::kda_recurrent,
     "o"},
};

}  // namespace

std::span<const Operator> kda_operators() { return kOperators; }

}  // namespace lathe
