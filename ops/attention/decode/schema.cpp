// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operator flash_attention_decode.
#include "ops/attention/decode/run.h"
#include "ops/attention/option_rows.h"

namespace lathe {
namespace {

using namespace attention_rows;
using Decode = Bind<DecodeOptions>;

constexpr auto kDecodeOptions = joined(
    score_options<DecodeOptions>(kCausalSentence),
    std::array{OptionInfo{"deterministic", OptionType::integer, "0", "0|1",
                          "Accepted as flash_attention has it: with 0 results repeat bit "
                          "for bit too."}},
    kModOptions, kScalarOptions<DecodeOptions>,
    std::array{
        Decode::integer<&DecodeOptions::num_splits>(
            "num_splits", "0", "0|>=0",
            "How many splits of its keys a sequence has, computed at the same time and joined; "
            "0: chosen for the device."),
        Decode::integer<&DecodeOptions::key_stride>(
            "key_stride", "1", "1|>=1",
            "With total_seqlens: how many positions a key of the cache is behind the one before "
            "it; the keys between lie on other ranks."),
        Decode::integer<&DecodeOptions::key_offset>(
            "key_offset", "0", "0|>=0",
            "With total_seqlens: the position of the cache's first key in its sequence; less "
            "than key_stride."),
        Decode::word<&DecodeOptions::row_format>("row_format", "none", "none|e4m3_656",
                                                 kRowFormatSentence),
        Decode::flag<&DecodeOptions::rope_interleaved>(
            "rope_interleaved",
            "1: the columns of a pair that turns are neighbours; 0: they are R/2 apart.")});

// Sets the width of values that are columns of the keys.
void derive_decode(const lathe_problem& problem, Extents* extents) {
  const bool latent = !problem.has(attention_decode::v_cache) && (*extents)[Dim::D] == kLatentWidth;
  if (latent && (*extents)[Dim::DV] == kUnknown) (*extents)[Dim::DV] = kLatentValueWidth;
}

constexpr Operator kOperators[] = {
    {.name = "flash_attention_decode",
     .sentence = "Softmax attention of a few queries over a cache in pages.",
     .tensors = attention_decode::kTensors,
     .options = kDecodeOptions,
     .produces = "out",
     .sequences = Sequences::apart,
     .new_options = new_options<DecodeOptions>,
     .check = check_attention_decode,
     .make = make_attention_decode,
     .derive = derive_decode,
     .check_values = check_decode_values},
};

}  // namespace

std::span<const Operator> decode_operators() { return kOperators; }

}  // namespace lathe
