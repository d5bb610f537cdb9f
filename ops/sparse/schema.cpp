// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table of sparse flash attention.
#include <iterator>

#include "ops/entries.h"
#include "ops/sparse/ranks.h"
#include "ops/sparse/run.h"

namespace lathe {
namespace {

using namespace entries;

constexpr const char* kHalf = "f16|bf16";
constexpr const char* kQueryRopes = "B,Sq,H,R|Tq,H,R";
constexpr const char* kKeyRopes = "B,Sk,HK,R|Tk,HK,R";
constexpr const char* kStatistics = "B,HK,Sq,G|HK,Tq,G";

const lathe_operator_tensor kTensors[] = {
    in("q", kQueries, false, kHalf, "Queries; their dtype is that of keys, values and out."),
    in("k", kKeys, false, "=q", "Keys; HK divides H."),
    in("v", kValues, true, "=q", "Values; without them they are the first DV columns of k."),
    in("q_rope", kQueryRopes, true, "=q", "More columns of the queries, with k_rope."),
    in("k_rope", kKeyRopes, true, "=q", "More columns of the keys, with q_rope."),
    in("indices", "B,Sq,HK,topk|Tq,HK,topk", false, "i32",
       "The list of each row; entries below 0 or out of range are skipped."),
    in("cu_seqlens_q", "N+1", true, "i32|i64", "Offsets of packed queries."),
    in("cu_seqlens_k", "N+1", true, "=cu_seqlens_q", "Offsets of packed keys."),
    in("q_pos", "B,Sq|Tq", true, "i32",
       "The position of each row with sparse_mode 3; else the last row is at the last key."),
    in("sinks", "H", true, "f32", "One more logit for each head, of value 0."),
    in("dout", kResults, true, "=q", "The gradient of out."),
    out("out", kResults, "f16|bf16|f32",
        "The result; 0 in rows that see no key. As q, or float32 for lse_merge.", nullptr,
        kSavedForward),
    out("softmax_max", kStatistics, "f32", "The largest score of each row; G is H / HK.", nullptr,
        kSavedForward),
    out("softmax_sum", kStatistics, "f32", "The row's sum of exponentials over its largest.",
        nullptr, kSavedForward),
    out("lse", kRows, "f32", "The natural logarithm of each row's sum of exponentials.", nullptr,
        kSavedForward),
    out("dq", kQueries, "=q", "The gradient of q."),
    out("dk", kKeys, "=q", "The gradient of k; without v that of the values is in it."),
    out("dv", kValues, "=q", "The gradient of v."),
    out("dq_rope", kQueryRopes, "=q", "The gradient of q_rope."),
    out("dk_rope", kKeyRopes, "=q", "The gradient of k_rope."),
    out("dsinks", "H", "f32", "The gradient of sinks."),
};
const TensorRules kRules[] = {
    {true, ""},                         // q
    {true, ""},                         // k
    {true, ""},                         // v
    {true, "k_rope"},                   // q_rope
    {true, "q_rope"},                   // k_rope
    {.strided = true, .alignment = 1},  // indices
    {false, "cu_seqlens_k"},            // cu_seqlens_q
    {false, "cu_seqlens_q"},            // cu_seqlens_k
    {false, ""},                        // q_pos
    {false, ""},                        // sinks
    {true, "out,lse"},                  // dout
    {true, ""},                         // out
    {false, "out"},                     // softmax_max
    {false, "out"},                     // softmax_sum
    {false, "out"},                     // lse
    {true, "dout"},                     // dq
    {true, "dout"},                     // dk
    {true, "dout,v"},                   // dv
    {true, "dout,q_rope"},              // dq_rope
    {true, "dout,k_rope"},              // dk_rope
    {false, "dout,sinks"},              // dsinks
};
static_assert(std::size(kTensors) == sparse_attention::count &&
              std::size(kRules) == sparse_attention::count &&
              sparse_attention::count <= kMaxTensors);

const lathe_operator_option kOptions[] = {
    {"scale", LATHE_OPTION_DOUBLE, "unset", "unset|>0",
     "What scores are multiplied by; it must be given."},
    {"block_size", LATHE_OPTION_INT, "1", "1|2|4|8|16|32|64|128",
     "How many tokens of its sequence an entry names; 1 with absolute entries."},
    {"sparse_mode", LATHE_OPTION_INT, "0", "0|3", "3: a row sees no key behind its position."},
    {"index_space", LATHE_OPTION_STRING, "sequence", "sequence|absolute",
     "Whether entries count from the row's sequence or from the first row of k."},
    {"num_splits", LATHE_OPTION_INT, "0", "0|>=0",
     "Into how many parts each list is cut; 0: chosen for the device."},
    {"deterministic", LATHE_OPTION_INT, "0", "0|1",
     "Whether results repeat bit for bit, whatever the rows they are computed with."},
    {kSavedForward, LATHE_OPTION_INT, "0", "0|1",
     "Whether out, lse and statistics hold the results of an earlier forward; the backward reads "
     "the "
     "first two."},
};

Result<std::unique_ptr<Executor>> make(const lathe_problem& problem, const Extents& promised,
                                       const DeviceFacts& facts) {
  LATHE_ASSIGN(const SparseRequest request, sparse_request(problem, promised));
  LATHE_ASSIGN(const SparseGroup ranks, sparse_group(problem));
  return make_sparse(request, facts, ranks);
}

const Operator kOperators[] = {
    {{"sparse_flash_attention", "Softmax attention of each row over the keys that its list names.",
      kTensors, std::size(kTensors), kOptions, std::size(kOptions), 1},
     kRules,
     "out,dq,dk,dv,dq_rope,dk_rope,dsinks",
     check_sparse,
     make,
     Sequences::apart},
};

}  // namespace

std::span<const Operator> sparse_operators() { return kOperators; }

}  // namespace lathe
