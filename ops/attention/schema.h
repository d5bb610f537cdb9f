// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the tensors and options of flash attention, over whole or packed sequences and over pages.
#pragma once

#include "collective/plans/dispatch_plan.h"
#include "ops/attention/option_rows.h"
#include "ops/schema.h"
#include "ops/shapes.h"

namespace lathe {

namespace attention_rows {

inline constexpr const char* kHalves = "f16|bf16|f32";
inline constexpr const char* kAnyType = "f32|f16|bf16|i32|i64";

// A score_mod or a mask_mod reads these arrays.
inline constexpr std::array kCaptures = {
    input("capture_0", "C0", kAnyType, "Mods read it as captures.get<0>(i).").optional(),
    input("capture_1", "C1", kAnyType, "Mods read it as captures.get<1>(i).").optional(),
    input("capture_2", "C2", kAnyType, "Mods read it as captures.get<2>(i).").optional(),
    input("capture_3", "C3", kAnyType, "Mods read it as captures.get<3>(i).").optional(),
};
inline constexpr TensorInfo kSlopes =
    input("alibi_slopes", "H|B,H", "f32", "ALiBi's slopes.").optional();
inline constexpr TensorInfo kSinks =
    input("sinks", "H", "f32", "One more logit for each head, whose value row is 0.").optional();
inline constexpr const char *kOutSentence = "The result; 0 in rows that see no key.",
                            *kLseSentence =
                                "The natural logarithm of each row's sum of exponentials.";

}  // namespace attention_rows

namespace attention {

using namespace attention_rows;

inline constexpr auto kTensors = joined(
    std::array{
        input("q", kQueries, "f16|bf16|f32|f8_e4m3",
              "Queries; their dtype is that of keys and values, and unless it is f8_e4m3 of out.")
            .strided(),
        input("k", kKeys, "=q", "Keys; HK divides H.").strided(),
        input("v", kValues, "=q", "Values; their width may differ from that of the keys.")
            .strided(),
        kSlopes.says("ALiBi's slopes; in a packed call B is the number of sequences."),
        kSinks,
        input("q_scale", "q_scales", "f32",
              "What codes of q are multiplied by: one number, or one for each of H heads.")
            .needs("k_scale,v_scale"),
        input("k_scale", "k_scales", "f32",
              "The same of k: one number, or one for each of HK heads.")
            .needs("q_scale"),
        input("v_scale", "v_scales", "f32", "The same of v.").needs("q_scale"),
        input("cu_seqlens_q", "N+1", kOffsets, "Offsets of packed queries.").needs("cu_seqlens_k"),
        input("cu_seqlens_k", "N+1", "=cu_seqlens_q", "Offsets of packed keys.")
            .needs("cu_seqlens_q"),
        input("dout", kResults, "=q", "The gradient of out.").needs("out").strided(),
        input("dlse", kRows, "f32", "The gradient of lse.").needs("dout"),
    },
    kCaptures,
    std::array{
        output("out", kResults, "bf16|f16|f32",
               "The result; 0 in rows that see no key. Its dtype is q's, or out_dtype.")
            .given(kSavedForward)
            .needs("lse")
            .strided(),
        output("lse", kRows, "f32", kLseSentence).given(kSavedForward).needs("out"),
        output("dq", kQueries, "=q", "The gradient of q.").needs("dout").strided(),
        output("dk", kKeys, "=q", "The gradient of k.").needs("dout").strided(),
        output("dv", kValues, "=q", "The gradient of v.").needs("dout").strided(),
        output("dsinks", "H", "f32", "The gradient of sinks.").needs("dout,sinks"),
    });

inline constexpr int count = std::size(kTensors);
consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int q = at("q"), k = at("k"), v = at("v"), alibi_slopes = at("alibi_slopes"),
                     sinks = at("sinks"), q_scale = at("q_scale"), k_scale = at("k_scale"),
                     v_scale = at("v_scale"), cu_seqlens_q = at("cu_seqlens_q"),
                     cu_seqlens_k = at("cu_seqlens_k"), dout = at("dout"), dlse = at("dlse"),
                     capture_0 = at("capture_0"), out = at("out"), lse = at("lse"), dq = at("dq"),
                     dk = at("dk"), dv = at("dv"), dsinks = at("dsinks");

}  // namespace attention

namespace attention_decode {

using namespace attention_rows;

inline constexpr auto kTensors = joined(
    std::array{
        input("q", kQueries, "f16|bf16", "Queries; their dtype is that of keys, values and out.")
            .strided(),
        inout("k_cache", "P,page,HK,D|P,page,bytes", "f16|bf16|f8_e4m3|u8",
              "Keys in pages; HK divides H. Of q's dtype, f8_e4m3 with k_scale, or with row_format "
              "rows of bytes.")
            .changed("k_new")
            .strided(),
        inout("v_cache", "P,page,HK,DV", "f16|bf16|f8_e4m3",
              "Values in pages, of k_cache's dtype; without them the first 512 of the 576 columns "
              "of k_cache are the values.")
            .changed("v_new")
            .optional()
            .strided(),
        input("block_table", "B,M", "i32", "The pages of each sequence, in order."),
        input("cache_seqlens", "B", "i32",
              "Keys of each sequence before new ones are appended; below 0: padding, whose pages "
              "are not "
              "looked at."),
        input("k_new", "B,Sq,HK,D|Tq,HK,D", "=q",
              "Keys of the queries' tokens, appended to the cache.")
            .optional()
            .strided(),
        input("v_new", "B,Sq,HK,DV|Tq,HK,DV", "=q",
              "Values of the queries' tokens, appended to the cache; with v_cache.")
            .needs("k_new,v_cache")
            .strided(),
        kSlopes,
        kSinks,
        inout(
            "k_scale", "k_scales|P,page,HK", "f32",
            "What the codes of k_cache are multiplied by: one number, one for each of HK heads, or "
            "one for each row of a page and head, which is written with new keys.")
            .changed("k_new")
            .optional(),
        inout("v_scale", "v_scales|P,page,HK", "f32", "The same of v_cache.")
            .changed("v_new")
            .needs("v_cache"),
        input("cu_seqlens_q", "B+1", kOffsets,
              "Offsets of packed queries, with any number of rows for each sequence; new keys and "
              "values are packed alike.")
            .optional(),
        input("leftpad", "B", "i32", "The first key of each sequence that counts.").optional(),
        input("total_seqlens", "B", "i32",
              "Keys of each sequence over all ranks, those of the call's rows included. Key j of "
              "the cache is key j * key_stride + key_offset of the sequence.")
            .optional(),
        input("rope_cos", "positions,R/2", kFloats,
              "Cosines of the rotary embedding by position; the first R columns of q and k_new "
              "turn.")
            .needs("rope_sin"),
        input("rope_sin", "positions,R/2", "=rope_cos", "Its sines.").needs("rope_cos"),
        input("rope_positions", "rows", "i32",
              "The position of each of Tq rows, or of the first row of each of B sequences; "
              "without it a row stands where its key does.")
            .needs("rope_cos"),
    },
    kCaptures,
    std::array{
        output("out", kResults, "=q", kOutSentence).needs("lse").strided(),
        output("lse", kRows, "f32", kLseSentence).needs("out"),
    });

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int q = at("q"), k_cache = at("k_cache"), v_cache = at("v_cache"),
                     block_table = at("block_table"), cache_seqlens = at("cache_seqlens"),
                     k_new = at("k_new"), v_new = at("v_new"), alibi_slopes = at("alibi_slopes"),
                     sinks = at("sinks"), k_scale = at("k_scale"), v_scale = at("v_scale"),
                     cu_seqlens_q = at("cu_seqlens_q"), leftpad = at("leftpad"),
                     total_seqlens = at("total_seqlens"), rope_cos = at("rope_cos"),
                     rope_sin = at("rope_sin"), rope_positions = at("rope_positions"),
                     capture_0 = at("capture_0"), out = at("out"), lse = at("lse");

}  // namespace attention_decode

struct AttentionOptions : ScoreOptions {
  bool deterministic = false, saved_forward = false;
  int64_t sm_margin = 0, gather_heads = 0, head_ranks = 0, dispatch_tokens = 0;
  DispatchChoice dispatch = {};
  enum class OutDtype { none, bf16, f16, f32 } out_dtype = OutDtype::none;
};
struct DecodeOptions : ScoreOptions {
  int64_t num_splits = 0, key_stride = 1, key_offset = 0;
  bool rope_interleaved = false;
  RowFormat row_format = RowFormat::none;
};

}  // namespace lathe
