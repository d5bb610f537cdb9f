// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the tensors and options of sparse flash attention.
#pragma once

#include <optional>

#include "ops/schema.h"
#include "ops/shapes.h"

namespace lathe {

namespace sparse_attention {

inline constexpr const char *kHalf = "f16|bf16", *kQueryRopes = "B,Sq,H,R|Tq,H,R",
                            *kKeyRopes = "B,Sk,HK,R|Tk,HK,R", *kStatistics = "B,HK,Sq,G|HK,Tq,G";

inline constexpr TensorInfo kTensors[] = {
    input("q", kQueries, kHalf, "Queries; their dtype is that of keys, values and out.").strided(),
    input("k", "B,Sk,HK,D|Tk,HK,D|Tk,bytes", "f16|bf16|u8",
          "Keys, of q's dtype; HK divides H. With row_format they are rows of bytes.")
        .strided(),
    input("v", kValues, "=q", "Values; without them they are the first DV columns of k.")
        .optional()
        .strided(),
    input("q_rope", kQueryRopes, "=q",
          "More columns of the queries, for rotary embeddings; with k_rope.")
        .needs("k_rope")
        .strided(),
    input("k_rope", kKeyRopes, "=q",
          "More columns of the keys, for rotary embeddings; with q_rope.")
        .needs("q_rope")
        .strided(),
    input("indices", "B,Sq,HK,topk|Tq,HK,topk", "i32",
          "The list of each row; entries below 0 or out of range are skipped.")
        .strided()
        .aligned(1),
    input("cu_seqlens_q", "N+1", kOffsets, "Offsets of packed queries.").needs("cu_seqlens_k"),
    input("cu_seqlens_k", "N+1", "=cu_seqlens_q", "Offsets of packed keys.").needs("cu_seqlens_q"),
    input("q_pos", "B,Sq|Tq", "i32",
          "The position of each row with sparse_mode 3; else the last row is at the last key.")
        .optional(),
    input("sinks", "H", "f32", "One more logit for each head, whose value row is 0.").optional(),
    input("topk_length", "B,Sq|Tq", "i32",
          "How many entries of each row's lists count, at most topk; the others are skipped.")
        .optional(),
    input("k_extra", "Tx,HK,D|Tx,bytes", "=k",
          "Keys of a second cache, in the same softmax; values are their first DV columns.")
        .needs("indices_extra")
        .strided(),
    input("indices_extra", "B,Sq,HK,topk2|Tq,HK,topk2", "i32",
          "The list of each row over rows of k_extra.")
        .needs("k_extra")
        .strided()
        .aligned(1),
    input("topk_length_extra", "B,Sq|Tq", "i32", "The same of indices_extra as topk_length.")
        .needs("k_extra"),
    input("dout", kResults, "=q", "The gradient of out.").needs("out,lse").strided(),
    output("out", kResults, "f16|bf16|f32",
           "The result; 0 in rows that see no key. Its dtype is q's, or float32 for lse_merge.")
        .given(kSavedForward)
        .strided(),
    output("softmax_max", kStatistics, "f32", "The largest score of each row; G is H / HK.")
        .given(kSavedForward)
        .needs("out"),
    output("softmax_sum", kStatistics, "f32", "The sum of exp(score - softmax_max) of each row.")
        .given(kSavedForward)
        .needs("out"),
    output("lse", kRows, "f32", "The natural logarithm of each row's sum of exponentials.")
        .given(kSavedForward)
        .needs("out"),
    output("dq", kQueries, "=q", "The gradient of q.").needs("dout").strided(),
    output("dk", kKeys, "=q", "The gradient of k; without v it includes that of the values.")
        .needs("dout")
        .strided(),
    output("dv", kValues, "=q", "The gradient of v.").needs("dout,v").strided(),
    output("dq_rope", kQueryRopes, "=q", "The gradient of q_rope.").needs("dout,q_rope").strided(),
    output("dk_rope", kKeyRopes, "=q", "The gradient of k_rope.").needs("dout,k_rope").strided(),
    output("dsinks", "H", "f32", "The gradient of sinks.").needs("dout,sinks"),
};

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int q = at("q"), k = at("k"), v = at("v"), q_rope = at("q_rope"),
                     k_rope = at("k_rope"), indices = at("indices"),
                     topk_length = at("topk_length"), k_extra = at("k_extra"),
                     indices_extra = at("indices_extra"),
                     topk_length_extra = at("topk_length_extra"), cu_seqlens_q = at("cu_seqlens_q"),
                     cu_seqlens_k = at("cu_seqlens_k"), q_pos = at("q_pos"), sinks = at("sinks"),
                     dout = at("dout"), out = at("out"), softmax_max = at("softmax_max"),
                     softmax_sum = at("softmax_sum"), lse = at("lse"), dq = at("dq"), dk = at("dk"),
                     dv = at("dv"), dq_rope = at("dq_rope"), dk_rope = at("dk_rope"),
                     dsinks = at("dsinks");

}  // namespace sparse_attention

struct SparseOptions {
  std::optional<float> scale;
  int64_t block_size = 1, sparse_mode = 0, num_splits = 0;
  enum class IndexSpace { sequence, absolute } index_space = IndexSpace::sequence;
  bool deterministic = false, saved_forward = false, sinks_in_statistics = true;
  RowFormat row_format = RowFormat::none;

  bool absolute() const { return index_space == IndexSpace::absolute; }
};

}  // namespace lathe
