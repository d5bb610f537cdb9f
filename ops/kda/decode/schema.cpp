// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operator kda_decode.
#include "ops/kda/decode/schema.h"

#include "ops/kda/decode/request.h"
#include "ops/kda/option_rows.h"

namespace lathe {
namespace {

using Decode = Bind<KdaDecodeOptions>;
constexpr auto kOptions =
    joined(kScale<KdaDecodeOptions>, kInputOptions<KdaDecodeOptions>, kNullSlot<KdaDecodeOptions>,
           std::array{Decode::flag<&KdaDecodeOptions::update_state>(
               "update_state", "0: both pools are only read, and o is as if they had been written.",
               "1|0")},
           kAppend<KdaDecodeOptions>,
           std::array{
               Decode::word<&KdaDecodeOptions::activation>("activation", "silu", "silu|none",
                                                           "The activation after the convolution."),
               Decode::number<&KdaDecodeOptions::norm_eps>(
                   "norm_eps", "1e-5", "1e-5|>=0", "Added to the mean square of a row of o."),
               Decode::word<&KdaDecodeOptions::gate_activation>(
                   "gate_activation", "sigmoid", "sigmoid|silu", "What output_gate goes through."),
           });

constexpr Operator kOperators[] = {
    {.name = "kda_decode",
     .sentence = "A decoding step of a layer of Kimi Delta Attention in one launch: convolution, "
                 "gates, recurrence, gated norm.",
     .tensors = kda_decode::kTensors,
     .options = kOptions,
     .produces = "o",
     .shape_option = "state_v_first",
     .new_options = new_options<KdaDecodeOptions>,
     .check = check_kda_decode,
     .make = make_kda_decode,
     .derive = derive_kda_decode,
     .check_values = check_kda_decode_values},
};

}  // namespace

std::span<const Operator> kda_decode_operators() { return kOperators; }

}  // namespace lathe
