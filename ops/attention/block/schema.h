// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the tensors and options of a ring's steps.
#pragma once

#include "ops/attention/schema.h"

namespace lathe {

// Both steps over a block of keys begin with these inputs, and captures behind them. Rows and keys
// may be any parts of sequences, in any order. Either `ranges` or `q_pos` and `k_pos` say which
// rows see which keys, in every row of a batch alike.
namespace attention_block_inputs {

using namespace attention_rows;

inline constexpr std::array kInputs = {
    input("q", kQueries, kHalves, "Queries; their dtype is that of keys and values.").strided(),
    input("k", kKeys, "=q", "The block's keys; HK divides H.").strided(),
    input("v", kValues, "=q", "The block's values; their width may differ from that of the keys.")
        .strided(),
    input(
        "ranges", "NP,7", "i32",
        "Attention ranges (qa, qb, ka, kb, shift, q0, k0), ascending by qa: rows qa to qb - 1 see "
        "keys ka to kb - 1. For masks, row qa + i stands at key ka + i + shift. For mods, row qa "
        "is row q0 of its sequence, and key ka is key k0. All rows of a batch have these ranges.")
        .optional(),
    input("range_batch", "NP", "i32",
          "The batch index that mods get in each range; without it, the row of the batch.")
        .needs("ranges"),
    input("q_pos", "Tq", "i32", "The position of each row (in a batch, Sq of them).")
        .needs("k_pos"),
    input("k_pos", "Tk", "i32", "The position of each key; positions lie between -2^30 and 2^30.")
        .needs("q_pos"),
    kSlopes.says("ALiBi's slopes, for distances of positions."),
};

consteval int at(std::string_view name) { return index_of(kInputs, name); }
inline constexpr int q = at("q"), k = at("k"), v = at("v"), ranges = at("ranges"),
                     range_batch = at("range_batch"), q_pos = at("q_pos"), k_pos = at("k_pos"),
                     alibi_slopes = at("alibi_slopes"), capture_0 = std::size(kInputs);

}  // namespace attention_block_inputs

// attention_block is a step of ring attention over one block of keys. The caller keeps (out, lse)
// from step to step, and begins with first = 1, or with out 0 and lse -inf.
namespace attention_block {

using namespace attention_block_inputs;

inline constexpr auto kTensors =
    joined(kInputs, kCaptures,
           std::array{
               inout("out", kResults, "f32",
                     "The result over the keys of all steps so far, without sinks.")
                   .strided(),
               inout("lse", kRows, "f32",
                     "The natural logarithm of each row's sum of exponentials; -inf where a row "
                     "has seen no key."),
           });

inline constexpr int out = index_of(kTensors, "out"), lse = index_of(kTensors, "lse");

}  // namespace attention_block

// attention_block_bwd computes the gradients of a block step. dk and dv travel with the block, dq
// stays with the rows. lse and delta are those of all blocks together, sinks included.
// flash_attention_delta computes delta once.
namespace attention_block_bwd {

using namespace attention_block_inputs;

inline constexpr auto kTensors = joined(
    kInputs, kCaptures,
    std::array{
        input("dout", kResults, "=q", "The gradient of out.").strided(),
        input(
            "lse", kRows, "f32",
            "The natural logarithm of each row's sum of exponentials over all blocks, and sinks."),
        input("delta", kRows, "f32", "sum(dout out) - dlse of each row and head."),
        inout("dq", kQueries, "f32", "The gradient of q; this block's part is added to it.")
            .strided(),
        inout("dk", kKeys, "f32", "The gradient of k; these rows' part is added to it.").strided(),
        inout("dv", kValues, "f32", "The gradient of v; these rows' part is added to it.")
            .strided(),
    });

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int dout = at("dout"), lse = at("lse"), delta = at("delta"), dq = at("dq"),
                     dk = at("dk"), dv = at("dv");

}  // namespace attention_block_bwd

namespace attention_delta {

using namespace attention_rows;

inline constexpr TensorInfo kTensors[] = {
    input("out", kResults, kHalves, "The result over all blocks, rounded once.").strided(),
    input("dout", kResults, "=out", "The gradient of out.").strided(),
    input("lse", kRows, "f32",
          "The natural logarithm of each row's sum of exponentials over all blocks, and sinks."),
    input("dlse", kRows, "f32", "The gradient of lse.").optional(),
    input("sinks", "H", "f32", "The logits that lse includes.").optional(),
    output("delta", kRows, "f32", "sum(dout out) - dlse; 0 where lse is -inf."),
    output("dsinks", "H", "f32", "The gradient of sinks, of these rows.").needs("delta,sinks"),
};

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int out = at("out"), dout = at("dout"), lse = at("lse"), dlse = at("dlse"),
                     sinks = at("sinks"), delta = at("delta"), dsinks = at("dsinks");

}  // namespace attention_delta

namespace lse_merge {

inline constexpr TensorInfo kTensors[] = {
    input("block_out", kResults, kFloats, "The other result; not read where block_lse is -inf.")
        .needs("block_lse")
        .strided(),
    input("block_lse", kRows, "f32",
          "The natural logarithm of the other result's sums; -inf where it saw no key.")
        .needs("block_out"),
    input("sinks", "H", "f32",
          "One more logit for each head, whose value row is 0; given once, at the last merge.")
        .optional(),
    inout("out", kResults, "f32",
          "The result that the other one is joined to; not read where lse is -inf.")
        .strided(),
    inout("lse", kRows, "f32", "The natural logarithm of its sums; -inf where it saw no key."),
    output("rounded", kResults, "bf16|f16", "The joined out, rounded once.").strided(),
};

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int block_out = at("block_out"), block_lse = at("block_lse"), sinks = at("sinks"),
                     out = at("out"), lse = at("lse"), rounded = at("rounded");

}  // namespace lse_merge

struct BlockOptions : ScoreOptions {
  bool first = false, first_keys = false, deterministic = false;
  int64_t sm_margin = 0;
};

}  // namespace lathe
