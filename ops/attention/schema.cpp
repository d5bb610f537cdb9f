// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table of flash attention: whole or packed sequences, and decoding over pages.
#include <iterator>

#include "ops/attention/decode_run.h"
#include "ops/attention/entries.h"
#include "ops/attention/ranks/dispatch.h"
#include "ops/attention/ranks/heads.h"
#include "ops/attention/ranks/sharded.h"
#include "ops/attention/run.h"

namespace lathe {
namespace {

using namespace entries;

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

Result<std::unique_ptr<Executor>> make_decode(const lathe_problem& problem, const Extents& promised,
                                              const DeviceFacts& facts) {
  LATHE_ASSIGN(const DecodeRequest request, decode_request(problem, promised));
  return make_attention_decode(request, facts);
}

// On one rank; over several by the method that the group's flags name, else around a ring.
Result<std::unique_ptr<Executor>> make_flash_attention(const lathe_problem& problem,
                                                       const Extents& promised,
                                                       const DeviceFacts& facts) {
  Group* group = problem.group ? problem.group->group.get() : nullptr;
  const bool ranks = group && group->world() > 1;
  const unsigned flags = problem.group_flags;
  LATHE_ASSIGN(const AttentionRequest request, attention_request(problem, promised));
  if (!ranks) return make_attention(request, facts);
  if (flags & LATHE_DISPATCH) return make_attention_dispatch(problem, request, facts, group);
  if (flags & LATHE_EXCHANGE_HEADS) return make_attention_heads(problem, request, facts, group);
  return make_attention_sharded(request, facts, group, flags);
}

const Operator kOperators[] = {
    {{"flash_attention", "Softmax attention over whole or packed sequences.", kAttentionTensors,
      std::size(kAttentionTensors), kAttentionOptions, std::size(kAttentionOptions), 1},
     kAttentionRules,
     "out,dq,dk,dv,dsinks",
     check_attention,
     make_flash_attention,
     Sequences::either},
    {{"flash_attention_decode", "Softmax attention of a few queries over a cache in pages.",
      kDecodeTensors, std::size(kDecodeTensors), kDecodeOptions, std::size(kDecodeOptions), 0},
     kDecodeRules,
     "out",
     check_attention_decode,
     make_decode},
};

}  // namespace

std::span<const Operator> attention_operators() { return kOperators; }

}  // namespace lathe
