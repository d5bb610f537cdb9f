// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table of what a ring of attention is made of.
#include <iterator>

#include "ops/attention/block.h"
#include "ops/attention/entries.h"

namespace lathe {
namespace {

using namespace entries;

// A step of ring attention over one block of keys. Rows and keys may be any parts of sequences, in
// any order; either `pairs` or `q_pos` and `k_pos` say who sees whom, in every row of a batch
// alike. The caller keeps (out, lse) from step to step, and begins with first = 1, or with out 0
// and lse -inf.
constexpr const char* kPairs =
    "Rows qa to qb see keys ka to kb: qa, qb, ka, kb, shift, q0, k0, ascending by qa. Counted from "
    "qa and ka, row i is at key i + shift; snippets are told that qa is row q0 of its sequence and "
    "ka key k0. The same in every row of a batch.";
constexpr const char* kSlopes = "ALiBi's slopes, for distances of positions.";

constexpr lathe_operator_tensor kBlockTensors[] = {
    in("q", kQueries, false, kHalves, "Queries; their dtype is that of keys and values."),
    in("k", kKeys, false, "=q", "The block's keys; HK divides H."),
    in("v", kValues, false, "=q", "Its values, of a width of their own."),
    in("pairs", "NP,7", true, "i32", kPairs),
    in("pair_batch", "NP", true, "i32",
       "Of each pair what snippets are told is its batch; without, the row of the batch."),
    in("q_pos", "Tq", true, "i32", "Of each row (in a batch, Sq of them) the position it is at."),
    in("k_pos", "Tk", true, "i32", "Of each key its position; all are below 2^30 either way."),
    in("alibi_slopes", "H|B,H", true, "f32", kSlopes),
    in("capture_0", "C0", true, kCaptured, "What snippets read as captures.get<0>(i)."),
    in("capture_1", "C1", true, kCaptured, "The same, captures.get<1>(i)."),
    in("capture_2", "C2", true, kCaptured, "The same, captures.get<2>(i)."),
    in("capture_3", "C3", true, kCaptured, "The same, captures.get<3>(i)."),
    inout("out", kResults, "f32", "The result over the keys so far, sinks left out."),
    inout("lse", kRows, "f32", "The natural logarithm of its sums; -inf where there is no key."),
};
constexpr TensorRules kBlockRules[] = {
    {true, ""},        // q
    {true, ""},        // k
    {true, ""},        // v
    {false, ""},       // pairs
    {false, "pairs"},  // pair_batch
    {false, "k_pos"},  // q_pos
    {false, "q_pos"},  // k_pos
    {false, ""},       // alibi_slopes
    {false, ""},       // capture_0
    {false, ""},       // capture_1
    {false, ""},       // capture_2
    {false, ""},       // capture_3
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
    {"sm_margin", LATHE_OPTION_INT, "0", "0|>0",
     "How many multiprocessors are left to others, an exchange above all: tiles then take turns."},
    {"score_mod", LATHE_OPTION_STRING, "none", "none|FILE",
     "Device text that changes scores, after softcap and ALiBi, by positions: q0 and k0 of pairs, "
     "or q_pos and k_pos."},
    {"mask_mod", LATHE_OPTION_STRING, "none", "none|FILE",
     "Device text that drops keys, beside causal and windows, by the same positions."},
    attention_option("scalar_0"),
    attention_option("scalar_1"),
    attention_option("scalar_2"),
    attention_option("scalar_3"),
};

// Its gradients, block by block: dk and dv travel with the block, dq stays with the rows. lse and
// delta are those of all blocks together, sinks included: flash_attention_delta makes delta, once.
const lathe_operator_tensor kBlockBwdTensors[] = {
    kBlockTensors[attention_block::q],
    kBlockTensors[attention_block::k],
    kBlockTensors[attention_block::v],
    kBlockTensors[attention_block::pairs],
    kBlockTensors[attention_block::pair_batch],
    kBlockTensors[attention_block::q_pos],
    kBlockTensors[attention_block::k_pos],
    kBlockTensors[attention_block::alibi_slopes],
    kBlockTensors[attention_block::capture_0],
    kBlockTensors[attention_block::capture_1],
    kBlockTensors[attention_block::capture_2],
    kBlockTensors[attention_block::capture_3],
    in("dout", kResults, false, "=q", "The gradient of out."),
    in("lse", kRows, false, "f32", "The logarithm of the sums over all blocks, and sinks."),
    in("delta", kRows, false, "f32", "sum(dout out) - dlse of each row and head."),
    inout("dq", kQueries, "f32", "The gradient of q: the block's part is added."),
    inout("dk", kKeys, "f32", "The gradient of k: the rows' part is added."),
    inout("dv", kValues, "f32", "The gradient of v: the rows' part is added."),
};
const TensorRules kBlockBwdRules[] = {
    kBlockRules[attention_block::q],
    kBlockRules[attention_block::k],
    kBlockRules[attention_block::v],
    kBlockRules[attention_block::pairs],
    kBlockRules[attention_block::pair_batch],
    kBlockRules[attention_block::q_pos],
    kBlockRules[attention_block::k_pos],
    kBlockRules[attention_block::alibi_slopes],
    kBlockRules[attention_block::capture_0],
    kBlockRules[attention_block::capture_1],
    kBlockRules[attention_block::capture_2],
    kBlockRules[attention_block::capture_3],
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
    {"first", LATHE_OPTION_INT, "0", "0|1",
     "Whether there is nothing to add to: dq, dk and dv are then written and not read."},
    {"first_keys", LATHE_OPTION_INT, "0", "0|1", "The same of dk and dv alone."},
    kBlockOptions[6],  // sm_margin
    kBlockOptions[7],  // score_mod
    kBlockOptions[8],  // mask_mod
    attention_option("scalar_0"),
    attention_option("scalar_1"),
    attention_option("scalar_2"),
    attention_option("scalar_3"),
};

const lathe_operator_tensor kDeltaTensors[] = {
    in("out", kResults, false, kHalves, "The result over all blocks, rounded once."),
    in("dout", kResults, false, "=out", "Its gradient."),
    in("lse", kRows, false, "f32", "The logarithm of the sums over all blocks, and sinks."),
    in("dlse", kRows, true, "f32", "The gradient of lse."),
    in("sinks", "H", true, "f32", "The logits that lse includes."),
    out("delta", kRows, "f32", "sum(dout out) - dlse; 0 where lse is -inf."),
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

const Operator kOperators[] = {
    {{"flash_attention_block", "A step of ring attention: (out, lse) go on over a block of keys.",
      kBlockTensors, std::size(kBlockTensors), kBlockOptions, std::size(kBlockOptions), 0},
     kBlockRules,
     "out",
     check_attention_block,
     make_attention_block,
     Sequences::apart},
    {{"flash_attention_block_bwd", "What a block of keys adds to the gradients, in a ring.",
      kBlockBwdTensors, std::size(kBlockBwdTensors), kBlockBwdOptions, std::size(kBlockBwdOptions),
      0},
     kBlockBwdRules,
     "dq",
     check_attention_block,
     make_attention_block_bwd,
     Sequences::apart},
    {{"flash_attention_delta", "What a ring's backward needs of each row, before its first step.",
      kDeltaTensors, std::size(kDeltaTensors), nullptr, 0, 0},
     kDeltaRules,
     "delta",
     check_attention_delta,
     make_attention_delta},
    {{"lse_merge", "Attention over two disjoint sets of keys from that over each, in place.",
      kMergeTensors, std::size(kMergeTensors), kMergeOptions, std::size(kMergeOptions), 0},
     kMergeRules,
     "out",
     check_lse_merge,
     make_lse_merge},
};

}  // namespace

std::span<const Operator> ring_operators() { return kOperators; }

}  // namespace lathe
