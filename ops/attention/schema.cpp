// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operator flash_attention.
#include "ops/attention/schema.h"

#include "ops/attention/option_rows.h"
#include "ops/attention/run.h"

namespace lathe {
namespace {

using namespace attention_rows;
using Flash = Bind<AttentionOptions>;

constexpr auto kAttentionOptions = joined(
    score_options<AttentionOptions>(kCausalSentence),
    std::array{
        Flash::flag<&AttentionOptions::deterministic>(
            "deterministic",
            "1: gradients repeat bit for bit on GPUs with the same number of multiprocessors."),
        Flash::flag<&AttentionOptions::saved_forward>(
            kSavedForward,
            "Whether out and lse hold the results of an earlier forward, which the backward then "
            "reads."),
    },
    kModOptions, kScalarOptions<AttentionOptions>,
    std::array{
        Flash::integer<&AttentionOptions::sm_margin>(
            "sm_margin", "0", "0|>0",
            "Over ranks: how many multiprocessors the kernels leave free for the exchange of "
            "messages."),
        Flash::integer<&AttentionOptions::gather_heads>(
            "gather_heads", "0", "0|>0",
            "Over ranks with all-gather: how many key heads are gathered at a time; fewer need "
            "less memory. 0: all."),
        Flash::integer<&AttentionOptions::head_ranks>(
            "head_ranks", "0", "0|>0",
            "Over ranks by heads: how many ranks exchange heads; keys travel a ring between such "
            "sets of ranks. 0: all ranks."),
        Flash::word<&AttentionOptions::dispatch>(
            "dispatch", "auto", "auto|always|home",
            "Over ranks by dispatch: other ranks compute queries where that pays (auto), always, "
            "or never (home)."),
        Flash::word<&AttentionOptions::out_dtype>(
            "out_dtype", "none", "none|bf16|f16|f32",
            "With queries of f8_e4m3: the dtype of out, in which all is computed; none: bf16."),
        Flash::integer<&AttentionOptions::dispatch_tokens>(
            "dispatch_tokens", "0", "0|>0",
            "Over ranks by dispatch: the most tokens of queries and keys that a rank may receive; "
            "0: any number."),
    });

MadeExecutor make_flash_attention(const Resolved& resolved, const DeviceFacts& facts) {
  const lathe_problem& problem = resolved.problem;
  Group* group = problem.group ? problem.group->group.get() : nullptr;
  LATHE_ASSIGN(const AttentionRequest request, attention_request(resolved));
  const bool invariant = (problem.group_flags & kRankInvariant) != 0;
  if (resolved.dtype(attention::q) == Dtype::f8_e4m3) {
    if (invariant) LATHE_TRY(refuse_rank_invariant(problem, "queries of f8_e4m3 run on one rank"));
    return make_narrow_attention(request, facts);
  }
  if (!group || (group->world() == 1 && !invariant)) return make_attention(request, facts);
  return make_attention_over_ranks(problem, request, facts, group);
}

constexpr Operator kOperators[] = {
    {.name = "flash_attention",
     .sentence = "Softmax attention over whole or packed sequences.",
     .tensors = attention::kTensors,
     .options = kAttentionOptions,
     .produces = "out,dq,dk,dv,dsinks",
     .backward = "dout",
     .ranks = true,
     .sequences = Sequences::either,
     .new_options = new_options<AttentionOptions>,
     .check = check_attention,
     .make = make_flash_attention,
     .check_values = check_sinks_at<attention::sinks>},
};

}  // namespace

std::span<const Operator> attention_operators() { return kOperators; }

}  // namespace lathe
