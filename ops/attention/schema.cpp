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
            "Whether gradients repeat bit for bit, on GPUs with as many multiprocessors."),
        Flash::flag<&AttentionOptions::saved_forward>(
            kSavedForward,
            "Whether out and lse hold the results of an earlier forward, which the backward then "
            "reads."),
    },
    kModOptions, kScalarOptions<AttentionOptions>,
    std::array{
        Flash::integer<&AttentionOptions::sm_margin>(
            "sm_margin", "0", "0|>0",
            "Over a group: how many multiprocessors its steps leave to the exchange."),
        Flash::integer<&AttentionOptions::gather_heads>(
            "gather_heads", "0", "0|>0",
            "Over a group that gathers keys: of how many key heads at a time, for less memory; 0: "
            "all."),
        Flash::integer<&AttentionOptions::head_ranks>(
            "head_ranks", "0", "0|>0",
            "Over ranks by heads: so many exchange heads, and keys travel a ring between these; 0: "
            "all."),
        Flash::word<&AttentionOptions::dispatch>(
            "dispatch", "auto", "auto|always|home",
            "Over ranks by dispatch: whether queries leave their homes where that pays, always or "
            "never."),
        Flash::integer<&AttentionOptions::dispatch_tokens>(
            "dispatch_tokens", "0", "0|>0",
            "The most tokens of queries and keys that a rank may receive then; 0: any number."),
    });

constexpr auto kDecodeOptions =
    joined(score_options<DecodeOptions>(kCausalSentence),
           std::array{Decode::flag<&DecodeOptions::deterministic>(
               "deterministic",
               "Whether gradients repeat bit for bit, on GPUs with as many multiprocessors.")},
           kModOptions, kScalarOptions<DecodeOptions>,
           std::array{Decode::integer<&DecodeOptions::num_splits>(
               "num_splits", "0", "0|>=0",
               "Into how many parts the keys are cut; 0: chosen for the device.")});

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
