// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table itself, in the words and letters of the operators' description.
#include "api/operators.h"

#include <cstdlib>
#include <iterator>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr const char* kFloats = "f32|f16|bf16";

constexpr lathe_operator_tensor in(const char* name, const char* shape, bool optional,
                                   const char* dtypes, const char* sentence) {
  return {name, shape, LATHE_INPUT, optional, dtypes, nullptr, sentence, nullptr};
}
constexpr lathe_operator_tensor out(const char* name, const char* shape, const char* dtypes,
                                    const char* sentence, const char* alias_of = nullptr,
                                    const char* given_if = nullptr) {
  return {name, shape, LATHE_OUTPUT, 1, dtypes, alias_of, sentence, given_if};
}
constexpr lathe_operator_tensor inout(const char* name, const char* shape, const char* dtypes,
                                      const char* sentence) {
  return {name, shape, LATHE_INOUT, 0, dtypes, nullptr, sentence, nullptr};
}

const lathe_operator_tensor kConvTensors[] = {
    in("x", "B,T,D", false, kFloats, "The input; its dtype is that of all activations and states."),
    in("weight", "D,W", false, kFloats, "Taps, oldest first; W is 2 to 8."),
    in("bias", "D", true, "=weight", "Added before the activation."),
    in("residual", "B,T,D", true, "=x", "Added after the activation."),
    in("initial_state", "N,D,W", true, "=x", "The last W inputs before each sequence."),
    in("cu_seqlens", "N+1", true, "i32|i64", "Offsets of packed sequences; B is then 1."),
    in("dy", "B,T,D", true, "=x", "The gradient of y."),
    in("dfinal_state", "N,D,W", true, "=x", "The gradient of final_state."),
    out("y", "B,T,D", "=x", "The result."),
    out("final_state", "N,D,W", "=x", "The last W inputs of each sequence."),
    out("dx", "B,T,D", "=x", "The gradient of x."),
    out("dweight", "D,W", "=weight", "The gradient of weight, accumulated in float32."),
    out("dbias", "D", "=weight", "The gradient of bias, accumulated in float32."),
    out("dresidual", "B,T,D", "=x", "The gradient of residual, which is dy itself.", "dy"),
    out("dinitial_state", "N,D,W", "=x", "The gradient of initial_state."),
};
const TensorRules kConvRules[] = {
    {true, ""},                   // x
    {false, ""},                  // weight
    {false, ""},                  // bias
    {true, ""},                   // residual
    {false, ""},                  // initial_state
    {false, ""},                  // cu_seqlens
    {true, ""},                   // dy
    {false, "dy"},                // dfinal_state
    {true, ""},                   // y
    {false, "y"},                 // final_state
    {true, "dy"},                 // dx
    {false, "dy"},                // dweight
    {false, "dweight,bias"},      // dbias
    {true, ""},                   // dresidual
    {false, "dy,initial_state"},  // dinitial_state
};
static_assert(std::size(kConvTensors) == conv::count && std::size(kConvRules) == conv::count);

constexpr lathe_operator_option kActivation = {"activation", LATHE_OPTION_STRING, "none",
                                               "none|silu",
                                               "What is applied to the filter's result."};
const lathe_operator_option kConvOptions[] = {
    kActivation,
    {"output_final_state", LATHE_OPTION_INT, "0", "0|1",
     "Whether final_state is computed; declaring the tensor says the same."},
};

const lathe_operator_tensor kUpdateTensors[] = {
    in("x", "B,D", false, kFloats, "One token for each sequence."),
    in("weight", "D,W", false, kFloats, "Taps, oldest first; W is 2 to 8."),
    in("bias", "D", true, "=weight", "Added before the activation."),
    in("residual", "B,D", true, "=x", "Added after the activation."),
    {"state", "B,D,W", LATHE_INOUT, 0, "=x", nullptr,
     "The last W inputs of each sequence, rolled by one in place."},
    {"y", "B,D", LATHE_OUTPUT, 0, "=x", nullptr, "The result, from the rolled state."},
};
const TensorRules kUpdateRules[] = {
    {true, ""},   // x
    {false, ""},  // weight
    {false, ""},  // bias
    {true, ""},   // residual
    {false, ""},  // state
    {true, ""},   // y
};
static_assert(std::size(kUpdateTensors) == conv_update::count &&
              std::size(kUpdateRules) == conv_update::count);
const lathe_operator_option kUpdateOptions[] = {kActivation};

constexpr const char* kHalves = "f16|bf16|f32";
constexpr const char* kQueries = "B,Sq,H,D|Tq,H,D";
constexpr const char* kKeys = "B,Sk,HK,D|Tk,HK,D";
constexpr const char* kValues = "B,Sk,HK,DV|Tk,HK,DV";
constexpr const char* kResults = "B,Sq,H,DV|Tq,H,DV";
constexpr const char* kRows = "B,H,Sq|H,Tq";
constexpr const char* kCaptured = "f32|f16|bf16|i32|i64";
constexpr const char* kSavedForward = "saved_forward";

const lathe_operator_tensor kAttentionTensors[] = {
    in("q", kQueries, false, kHalves, "Queries; their dtype is that of keys, values and out."),
    in("k", kKeys, false, "=q", "Keys; HK divides H."),
    in("v", kValues, false, "=q", "Values, of a width of their own."),
    in("alibi_slopes", "H|B,H", true, "f32", "ALiBi's slopes; packed, B counts sequences."),
    in("sinks", "H", true, "f32", "One more logit for each head, of value 0."),
    in("cu_seqlens_q", "N+1", true, "i32|i64", "Offsets of packed queries."),
    in("cu_seqlens_k", "N+1", true, "=cu_seqlens_q", "Offsets of packed keys."),
    in("dout", kResults, true, "=q", "The gradient of out."),
    in("dlse", kRows, true, "f32", "The gradient of lse."),
    in("capture_0", "C0", true, kCaptured, "What snippets read as captures.get<0>(i)."),
    in("capture_1", "C1", true, kCaptured, "The same, captures.get<1>(i)."),
    in("capture_2", "C2", true, kCaptured, "The same, captures.get<2>(i)."),
    in("capture_3", "C3", true, kCaptured, "The same, captures.get<3>(i)."),
    out("out", kResults, "=q", "The result; 0 in rows that see no key.", nullptr, kSavedForward),
    out("lse", kRows, "f32", "The natural logarithm of each row's sum of exponentials.", nullptr,
        kSavedForward),
    out("dq", kQueries, "=q", "The gradient of q."),
    out("dk", kKeys, "=q", "The gradient of k."),
    out("dv", kValues, "=q", "The gradient of v."),
    out("dsinks", "H", "f32", "The gradient of sinks."),
};
const TensorRules kAttentionRules[] = {
    {true, ""},               // q
    {true, ""},               // k
    {true, ""},               // v
    {false, ""},              // alibi_slopes
    {false, ""},              // sinks
    {false, "cu_seqlens_k"},  // cu_seqlens_q
    {false, "cu_seqlens_q"},  // cu_seqlens_k
    {true, "out"},            // dout
    {false, "dout"},          // dlse
    {false, ""},              // capture_0
    {false, ""},              // capture_1
    {false, ""},              // capture_2
    {false, ""},              // capture_3
    {true, "lse"},            // out
    {false, "out"},           // lse
    {true, "dout"},           // dq
    {true, "dout"},           // dk
    {true, "dout"},           // dv
    {false, "dout,sinks"},    // dsinks
};
static_assert(std::size(kAttentionTensors) == attention::count &&
              std::size(kAttentionRules) == attention::count && attention::count <= kMaxTensors);
constexpr lathe_operator_option kAttentionOptions[] = {
    {"softmax_scale", LATHE_OPTION_DOUBLE, "D^-0.5", "D^-0.5|>0", "What scores are multiplied by."},
    {"causal", LATHE_OPTION_INT, "0", "0|1",
     "Whether a row sees no later key; the last row is that of the last key."},
    {"window_left", LATHE_OPTION_INT, "-1", "-1|>=0", "How many keys back a row sees; -1: all."},
    {"window_right", LATHE_OPTION_INT, "-1", "-1|>=0",
     "How many keys ahead a row sees; -1: all. causal overrides it."},
    {"softcap", LATHE_OPTION_DOUBLE, "0", "0|>0", "Scores become softcap * tanh(score / softcap)."},
    {"deterministic", LATHE_OPTION_INT, "0", "0|1",
     "Whether gradients repeat bit for bit, on GPUs with as many multiprocessors."},
    {kSavedForward, LATHE_OPTION_INT, "0", "0|1",
     "Whether out and lse hold the results of an earlier forward, which the backward then reads."},
    {"score_mod", LATHE_OPTION_STRING, "none", "none|FILE",
     "Device text that changes scores, after softcap and ALiBi."},
    {"mask_mod", LATHE_OPTION_STRING, "none", "none|FILE",
     "Device text that drops keys, beside causal and windows."},
    {"scalar_0", LATHE_OPTION_DOUBLE, "0", "0|any", "What snippets read as captures.scalar(0)."},
    {"scalar_1", LATHE_OPTION_DOUBLE, "0", "0|any", "The same, captures.scalar(1)."},
    {"scalar_2", LATHE_OPTION_DOUBLE, "0", "0|any", "The same, captures.scalar(2)."},
    {"scalar_3", LATHE_OPTION_DOUBLE, "0", "0|any", "The same, captures.scalar(3)."},
};

// A step of ring attention over one block of keys. Rows and keys may be any parts of sequences, in
// any order; either `pairs` or `q_pos` and `k_pos` say who sees whom. The caller keeps (out, lse)
// from step to step, and begins with first = 1, or with out 0 and lse -inf.
constexpr const char* kPackedQueries = "Tq,H,D";
constexpr const char* kPackedKeys = "Tk,HK,D";
constexpr const char* kPackedValues = "Tk,HK,DV";
constexpr const char* kPackedResults = "Tq,H,DV";
constexpr const char* kPairs =
    "Rows qa to qb see keys ka to kb: qa, qb, ka, kb, shift, q0, k0, ascending by qa. Counted from "
    "qa and ka, row i is at key i + shift; q0 and k0 are their positions in the sequence.";
constexpr const char* kSlopes = "ALiBi's slopes, for distances of positions.";

constexpr lathe_operator_tensor kBlockTensors[] = {
    in("q", kPackedQueries, false, kHalves, "Queries; their dtype is that of keys and values."),
    in("k", kPackedKeys, false, "=q", "The block's keys; HK divides H."),
    in("v", kPackedValues, false, "=q", "Its values, of a width of their own."),
    in("pairs", "NP,7", true, "i32", kPairs),
    in("q_pos", "Tq", true, "i32", "Of each row the position of the key it is at."),
    in("k_pos", "Tk", true, "i32", "Of each key its position; all are below 2^30 either way."),
    in("alibi_slopes", "H", true, "f32", kSlopes),
    inout("out", kPackedResults, "f32", "The result over the keys so far, sinks left out."),
    inout("lse", "H,Tq", "f32", "The natural logarithm of its sums; -inf where there is no key."),
};
constexpr TensorRules kBlockRules[] = {
    {true, ""},        // q
    {true, ""},        // k
    {true, ""},        // v
    {false, ""},       // pairs
    {false, "k_pos"},  // q_pos
    {false, "q_pos"},  // k_pos
    {false, ""},       // alibi_slopes
    {true, ""},        // out
    {false, ""},       // lse
};
static_assert(std::size(kBlockTensors) == attention_block::count &&
              std::size(kBlockRules) == attention_block::count);
constexpr lathe_operator_option kBlockOptions[] = {
    kAttentionOptions[0],  // softmax_scale
    {"causal", LATHE_OPTION_INT, "0", "0|1", "Whether a row sees no key ahead of its position."},
    kAttentionOptions[2],  // window_left
    kAttentionOptions[3],  // window_right
    kAttentionOptions[4],  // softcap
    {"first", LATHE_OPTION_INT, "0", "0|1",
     "Whether there is nothing to go on from: out and lse are then written and not read."},
};

// Its gradients, block by block: dk and dv travel with the block, dq stays with the rows. lse and
// delta are those of all blocks together, sinks included: flash_attention_delta makes delta, once.
const lathe_operator_tensor kBlockBwdTensors[] = {
    kBlockTensors[attention_block::q],
    kBlockTensors[attention_block::k],
    kBlockTensors[attention_block::v],
    kBlockTensors[attention_block::pairs],
    kBlockTensors[attention_block::q_pos],
    kBlockTensors[attention_block::k_pos],
    kBlockTensors[attention_block::alibi_slopes],
    in("dout", kPackedResults, false, "=q", "The gradient of out."),
    in("lse", "H,Tq", false, "f32", "The logarithm of the sums over all blocks, and sinks."),
    in("delta", "H,Tq", false, "f32", "sum(dout out) - dlse of each row and head."),
    inout("dq", kPackedQueries, "f32", "The gradient of q: the block's part is added."),
    inout("dk", kPackedKeys, "f32", "The gradient of k: the rows' part is added."),
    inout("dv", kPackedValues, "f32", "The gradient of v: the rows' part is added."),
};
const TensorRules kBlockBwdRules[] = {
    kBlockRules[attention_block::q],
    kBlockRules[attention_block::k],
    kBlockRules[attention_block::v],
    kBlockRules[attention_block::pairs],
    kBlockRules[attention_block::q_pos],
    kBlockRules[attention_block::k_pos],
    kBlockRules[attention_block::alibi_slopes],
    {true, ""},   // dout
    {false, ""},  // lse
    {false, ""},  // delta
    {true, ""},   // dq
    {true, ""},   // dk
    {true, ""},   // dv
};
static_assert(std::size(kBlockBwdTensors) == attention_block_bwd::count &&
              std::size(kBlockBwdRules) == attention_block_bwd::count);
const lathe_operator_option kBlockBwdOptions[] = {
    kBlockOptions[0],
    kBlockOptions[1],
    kBlockOptions[2],
    kBlockOptions[3],
    kBlockOptions[4],
    {"deterministic", LATHE_OPTION_INT, "0", "0|1", "Whether dq too repeats bit for bit."},
};

const lathe_operator_tensor kDeltaTensors[] = {
    in("out", kPackedResults, false, kHalves, "The result over all blocks, rounded once."),
    in("dout", kPackedResults, false, "=out", "Its gradient."),
    in("lse", "H,Tq", false, "f32", "The logarithm of the sums over all blocks, and sinks."),
    in("dlse", "H,Tq", true, "f32", "The gradient of lse."),
    in("sinks", "H", true, "f32", "The logits that lse includes."),
    out("delta", "H,Tq", "f32", "sum(dout out) - dlse; 0 where lse is -inf."),
    out("dsinks", "H", "f32", "The gradient of sinks, of these rows."),
};
const TensorRules kDeltaRules[] = {
    {true, ""},              // out
    {true, ""},              // dout
    {false, ""},             // lse
    {false, ""},             // dlse
    {false, ""},             // sinks
    {false, ""},             // delta
    {false, "delta,sinks"},  // dsinks
};
static_assert(std::size(kDeltaTensors) == attention_delta::count &&
              std::size(kDeltaRules) == attention_delta::count);

const lathe_operator_tensor kMergeTensors[] = {
    in("block_out", kResults, true, kFloats,
       "The other partial; not read where block_lse is -inf."),
    in("block_lse", kRows, true, "f32", "Its logarithm; -inf where it saw no key."),
    in("sinks", "H", true, "f32", "One more logit for each head, of value 0: once, at the end."),
    inout("out", kResults, "f32", "The partial that is merged into; not read where lse is -inf."),
    inout("lse", kRows, "f32", "Its natural logarithm; -inf where it saw no key."),
    out("rounded", kResults, "bf16|f16", "The merged out, rounded once."),
};
const TensorRules kMergeRules[] = {
    {true, "block_lse"},   // block_out
    {false, "block_out"},  // block_lse
    {false, ""},           // sinks
    {true, ""},            // out
    {false, ""},           // lse
    {true, ""},            // rounded
};
const lathe_operator_option kMergeOptions[] = {
    {"output_rounded", LATHE_OPTION_INT, "0", "0|1",
     "Whether rounded is computed; declaring the tensor says the same."},
};
static_assert(std::size(kMergeTensors) == lse_merge::count &&
              std::size(kMergeRules) == lse_merge::count);

constexpr const char* kKeyPages = "P,page,HK,D";
constexpr const char* kValuePages = "P,page,HK,DV";

const lathe_operator_tensor kDecodeTensors[] = {
    in("q", "B,Sq,H,D", false, kHalves, "Queries; their dtype is that of keys, values and out."),
    {"k_cache", kKeyPages, LATHE_INOUT, 0, "=q", nullptr, "Keys in pages; HK divides H.", nullptr,
     "k_new"},
    {"v_cache", kValuePages, LATHE_INOUT, 0, "=q", nullptr, "Values, of a width of their own.",
     nullptr, "v_new"},
    in("block_table", "B,M", false, "i32", "The pages of each sequence, in order."),
    in("cache_seqlens", "B", false, "i32", "Keys of each sequence before new ones are appended."),
    in("k_new", "B,Sq,HK,D", true, "=q", "Keys of the queries' tokens, appended to the cache."),
    in("v_new", "B,Sq,HK,DV", true, "=q", "Values of the queries' tokens, appended to the cache."),
    in("alibi_slopes", "H|B,H", true, "f32", "ALiBi's slopes."),
    in("sinks", "H", true, "f32", "One more logit for each head, of value 0."),
    in("capture_0", "C0", true, kCaptured, "What snippets read as captures.get<0>(i)."),
    in("capture_1", "C1", true, kCaptured, "The same, captures.get<1>(i)."),
    in("capture_2", "C2", true, kCaptured, "The same, captures.get<2>(i)."),
    in("capture_3", "C3", true, kCaptured, "The same, captures.get<3>(i)."),
    out("out", "B,Sq,H,DV", "=q", "The result; 0 in rows that see no key."),
    out("lse", "B,H,Sq", "f32", "The natural logarithm of each row's sum of exponentials."),
};
const TensorRules kDecodeRules[] = {
    {true, ""},       // q
    {true, ""},       // k_cache
    {true, ""},       // v_cache
    {false, ""},      // block_table
    {false, ""},      // cache_seqlens
    {true, "v_new"},  // k_new
    {true, "k_new"},  // v_new
    {false, ""},      // alibi_slopes
    {false, ""},      // sinks
    {false, ""},      // capture_0
    {false, ""},      // capture_1
    {false, ""},      // capture_2
    {false, ""},      // capture_3
    {true, "lse"},    // out
    {false, "out"},   // lse
};
static_assert(std::size(kDecodeTensors) == attention_decode::count &&
              std::size(kDecodeRules) == attention_decode::count);
constexpr const lathe_operator_option& attention_option(std::string_view name) {
  size_t i = 0;
  while (name != kAttentionOptions[i].name) ++i;
  return kAttentionOptions[i];
}
constexpr lathe_operator_option kDecodeOptions[] = {
    attention_option("softmax_scale"),
    attention_option("causal"),
    attention_option("window_left"),
    attention_option("window_right"),
    attention_option("softcap"),
    attention_option("deterministic"),
    attention_option("score_mod"),
    attention_option("mask_mod"),
    attention_option("scalar_0"),
    attention_option("scalar_1"),
    attention_option("scalar_2"),
    attention_option("scalar_3"),
    {"num_splits", LATHE_OPTION_INT, "0", "0|>=0",
     "Into how many parts the keys are cut; 0: chosen for the device."},
};

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

constexpr lathe_operator_option flag(const char* name, const char* sentence) {
  return {name, LATHE_OPTION_INT, "0", "0|1", sentence};
}
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
    {{"causal_conv1d", "Depthwise causal convolution over tokens, forward and backward.",
      kConvTensors, std::size(kConvTensors), kConvOptions, std::size(kConvOptions), 1},
     kConvRules,
     Family::conv,
     "y,dx,dweight,dinitial_state"},
    {{"causal_conv1d_update", "One step of causal_conv1d for decoding, with its state in place.",
      kUpdateTensors, std::size(kUpdateTensors), kUpdateOptions, std::size(kUpdateOptions), 0},
     kUpdateRules,
     Family::conv_update,
     "y"},
    {{"flash_attention", "Softmax attention over whole or packed sequences.", kAttentionTensors,
      std::size(kAttentionTensors), kAttentionOptions, std::size(kAttentionOptions), 0},
     kAttentionRules,
     Family::attention,
     "out,dq,dk,dv,dsinks"},
    {{"flash_attention_block", "A step of ring attention: (out, lse) go on over a block of keys.",
      kBlockTensors, std::size(kBlockTensors), kBlockOptions, std::size(kBlockOptions), 0},
     kBlockRules,
     Family::attention_block,
     "out"},
    {{"flash_attention_block_bwd", "What a block of keys adds to the gradients, in a ring.",
      kBlockBwdTensors, std::size(kBlockBwdTensors), kBlockBwdOptions, std::size(kBlockBwdOptions),
      0},
     kBlockBwdRules,
     Family::attention_block_bwd,
     "dq"},
    {{"flash_attention_delta", "What a ring's backward needs of each row, before its first step.",
      kDeltaTensors, std::size(kDeltaTensors), nullptr, 0, 0},
     kDeltaRules,
     Family::attention_delta,
     "delta"},
    {{"lse_merge", "Attention over two disjoint sets of keys from that over each, in place.",
      kMergeTensors, std::size(kMergeTensors), kMergeOptions, std::size(kMergeOptions), 0},
     kMergeRules,
     Family::lse_merge,
     "out"},
    {{"flash_attention_decode", "Softmax attention of a few queries over a cache in pages.",
      kDecodeTensors, std::size(kDecodeTensors), kDecodeOptions, std::size(kDecodeOptions), 0},
     kDecodeRules,
     Family::attention_decode,
     "out"},
    {{"kda_recurrent", "Kimi Delta Attention token by token, for decoding and as the reference.",
      kKdaRecurrentTensors, std::size(kKdaRecurrentTensors), kKdaRecurrentOptions,
      std::size(kKdaRecurrentOptions), 0},
     kKdaRecurrentRules,
     Family::kda_recurrent,
     "o"},
};

std::string join(size_t count, const char* (*name)(const void*, size_t), const void* of) {
  std::string names;
  for (size_t i = 0; i < count; ++i) names += (i ? ", " : "") + std::string(name(of, i));
  return names;
}

}  // namespace

std::span<const Operator> operators() { return kOperators; }

const Operator* find_operator(std::string_view name) {
  for (const Operator& op : operators()) {
    if (name == op.info.name) return &op;
  }
  return nullptr;
}

int find_tensor(const Operator& op, std::string_view name) {
  for (size_t i = 0; i < op.info.tensor_count; ++i) {
    if (name == op.info.tensors[i].name) return static_cast<int>(i);
  }
  return -1;
}

int find_option(const Operator& op, std::string_view name) {
  for (size_t i = 0; i < op.info.option_count; ++i) {
    if (name == op.info.options[i].name) return static_cast<int>(i);
  }
  return -1;
}

std::string operator_names() {
  return join(
      operators().size(), [](const void*, size_t i) { return operators()[i].info.name; }, nullptr);
}
std::string tensor_names(const Operator& op) {
  return join(
      op.info.tensor_count,
      [](const void* of, size_t i) {
        return static_cast<const Operator*>(of)->info.tensors[i].name;
      },
      &op);
}
std::string option_names(const Operator& op) {
  return join(
      op.info.option_count,
      [](const void* of, size_t i) {
        return static_cast<const Operator*>(of)->info.options[i].name;
      },
      &op);
}

std::vector<std::string_view> split(std::string_view list, char at) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const size_t end = list.find(at);
    words.push_back(list.substr(0, end));
    list.remove_prefix(end == list.npos ? list.size() : end + 1);
  }
  return words;
}

bool listed(std::string_view list, char at, std::string_view word) {
  for (std::string_view each : split(list, at)) {
    if (each == word) return true;
  }
  return false;
}

Shape parse_shape(std::string_view shape) {
  Shape parsed;
  for (std::string_view word : split(shape, ',')) {
    if (word.front() >= '0' && word.front() <= '9') {
      parsed.dims[parsed.rank++] = {Letter::fixed, std::atoi(std::string(word).c_str())};
      continue;
    }
    const int plus = word.ends_with("+1") ? 1 : 0;
    if (plus) word.remove_suffix(2);
    int letter = 0;
    while (letter + 1 < kLetters && word != kLetterNames[letter]) ++letter;
    parsed.dims[parsed.rank++] = {static_cast<Letter>(letter), plus};
  }
  return parsed;
}

Shape shape_of_rank(std::string_view shapes, int rank, bool state_v_first) {
  Shape found;
  for (std::string_view each : split(shapes, '|')) {
    const Shape shape = parse_shape(each);
    if (shape.rank != rank) continue;
    if (!state_v_first) return shape;
    found = shape;
  }
  return found;
}

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.rank; ++i) {
    const auto [letter, plus] = shape.dims[i];
    const bool fixed = letter == Letter::fixed;
    out += text(i ? "," : "", fixed ? std::to_string(plus) : name_of(letter),
                plus && !fixed ? "+1" : "");
  }
  return out + "]";
}

bool has_letter(const Shape& shape, Letter letter) {
  for (int i = 0; i < shape.rank; ++i) {
    if (shape.dims[i].letter == letter) return true;
  }
  return false;
}

}  // namespace lathe

extern "C" {

size_t lathe_operator_count(void) { return lathe::operators().size(); }

const lathe_operator_info* lathe_operator_at(size_t index) {
  return index < lathe::operators().size() ? &lathe::operators()[index].info : nullptr;
}

const lathe_operator_info* lathe_operator_find(const char* name) {
  const lathe::Operator* op = name ? lathe::find_operator(name) : nullptr;
  return op ? &op->info : nullptr;
}

}  // extern "C"
