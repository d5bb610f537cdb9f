// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operators that a ring of attention is made of.
#include "ops/attention/block/schema.h"

#include "ops/attention/block/run.h"
#include "ops/attention/option_rows.h"

namespace lathe {
namespace {

using namespace attention_rows;
using Block = Bind<BlockOptions>;

constexpr const char* kAhead = "1: a row sees no key after its position.";
constexpr std::array kMargin = {
    Block::integer<&BlockOptions::sm_margin>("sm_margin", "0", "0|>0",
                                             "How many multiprocessors the kernel leaves free for "
                                             "others, such as an exchange of messages.")};
constexpr std::array kPositionMods = {
    text_option("score_mod",
                "Device text that changes scores, after softcap and ALiBi, by positions: q0 and k0 "
                "of ranges, or q_pos and k_pos."),
    text_option("mask_mod",
                "Device text that drops keys, beside causal and windows, by the same positions."),
};

constexpr auto kBlockOptions =
    joined(score_options<BlockOptions>(kAhead),
           std::array{Block::flag<&BlockOptions::first>(
               "first", "1: the first step; out and lse are written and not read.")},
           kMargin, kPositionMods, kScalarOptions<BlockOptions>);

constexpr auto kBlockBwdOptions = joined(
    score_options<BlockOptions>(kAhead),
    std::array{
        Block::flag<&BlockOptions::deterministic>(
            "deterministic", "1: dq repeats bit for bit, as dk and dv always do."),
        Block::flag<&BlockOptions::first>(
            "first", "1: the first step; dq, dk and dv are written and not read."),
        Block::flag<&BlockOptions::first_keys>(
            "first_keys", "1: the first step of these keys; dk and dv are written and not read."),
    },
    kMargin, kPositionMods, kScalarOptions<BlockOptions>);

constexpr OptionInfo kMergeOptions[] = {
    output_option("output_rounded",
                  "Whether rounded is computed; declaring the tensor says the same."),
};

constexpr Operator kOperators[] = {
    {.name = "flash_attention_block",
     .sentence =
         "One step of ring attention: adds a block of keys to the (out, lse) of the steps before.",
     .tensors = attention_block::kTensors,
     .options = kBlockOptions,
     .produces = "out",
     .sequences = Sequences::apart,
     .new_options = new_options<BlockOptions>,
     .check = check_attention_block,
     .make = make_attention_block,
     .check_values = check_block_values},
    {.name = "flash_attention_block_bwd",
     .sentence = "A step of a ring's backward: it adds the gradients of one block of keys.",
     .tensors = attention_block_bwd::kTensors,
     .options = kBlockBwdOptions,
     .produces = "dq",
     .sequences = Sequences::apart,
     .new_options = new_options<BlockOptions>,
     .check = check_attention_block,
     .make = make_attention_block_bwd,
     .check_values = check_block_values},
    {.name = "flash_attention_delta",
     .sentence = "The first step of a ring's backward: it computes delta for each row.",
     .tensors = attention_delta::kTensors,
     .produces = "delta",
     .backward = "dout",
     .check = check_attention_delta,
     .make = make_attention_delta,
     .check_values = check_sinks_at<attention_delta::sinks>},
    {.name = "lse_merge",
     .sentence = "Joins the results of attention over two disjoint sets of keys, in place.",
     .tensors = lse_merge::kTensors,
     .options = kMergeOptions,
     .produces = "out",
     .check = check_lse_merge,
     .make = make_lse_merge,
     .check_values = check_sinks_at<lse_merge::sinks>},
};

}  // namespace

std::span<const Operator> ring_operators() { return kOperators; }

}  // namespace lathe
