// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operators flash_attention and flash_attention_decode.
#include "ops/attention/schema.h"

#include "ops/attention/option_rows.h"
#include "ops/attention/run.h"

namespace lathe {
namespace {

using namespace attention_rows;
using Flash = Bind<AttentionOptions>;
using Decode = Bind<DecodeOptions>;

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
        Flash::integer<&AttentionOptions::dispatch_tokens>(
            "dispatch_tokens", "0", "0|>0",
            "Over ranks by dispatch: the most tokens of queries and keys that a rank may receive; "
            "0: any number."),
    });

constexpr auto kDecodeOptions =
    joined(score_options<DecodeOptions>(kCausalSentence),
           std::array{OptionInfo{"deterministic", OptionType::integer, "0", "0|1",
                                 "Accepted as flash_attention has it: with 0 results repeat bit "
                                 "for bit too."}},
           kModOptions, kScalarOptions<DecodeOptions>,
           std::array{Decode::integer<&DecodeOptions::num_splits>(
               "num_splits", "0", "0|>=0",
               "How many splits of its keys a sequence has, computed at the same time and joined; "
               "0: chosen for the device.")});

MadeExecutor make_flash_attention(const Resolved& resolved, const DeviceFacts& facts) {
  const lathe_problem& problem = resolved.problem;
  Group* group = problem.group ? problem.group->group.get() : nullptr;
  LATHE_ASSIGN(const AttentionRequest request, attention_request(resolved));
  if (!group || group->world() == 1) return make_attention(request, facts);
  return make_attention_over_ranks(problem, request, facts, group);
}

// Sets the width of values that are columns of the keys.
void derive_decode(const lathe_problem& problem, Extents* extents) {
  const bool latent = !problem.has(attention_decode::v_cache) && (*extents)[Dim::D] == kLatentWidth;
  if (latent && (*extents)[Dim::DV] == kUnknown) (*extents)[Dim::DV] = kLatentValueWidth;
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
    {.name = "flash_attention_decode",
     .sentence = "Softmax attention of a few queries over a cache in pages.",
     .tensors = attention_decode::kTensors,
     .options = kDecodeOptions,
     .produces = "out",
     .new_options = new_options<DecodeOptions>,
     .check = check_attention_decode,
     .make = make_attention_decode,
     .derive = derive_decode,
     .check_values = check_decode_values},
};

}  // namespace

std::span<const Operator> attention_operators() { return kOperators; }

}  // namespace lathe
