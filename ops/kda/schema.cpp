// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operators kda and kda_recurrent.
#include "ops/kda/schema.h"

#include "ops/kda/option_rows.h"
#include "ops/kda/request.h"

namespace lathe {
namespace {

constexpr std::array kFinalState = {
    output_option("output_final_state",
                  "Whether final_state is computed; declaring the tensor says the same."),
};

using Chunked = Bind<KdaOptions>;
constexpr auto kKdaOptions = joined(
    kScale<KdaOptions>,
    std::array{Chunked::integer<&KdaOptions::chunk_size>(
        "chunk_size", "64", "64|16|32",
        "How many tokens lie between two of chunk_states; nothing else depends on it.")},
    kInputOptions<KdaOptions>, kFinalState, kNullSlot<KdaOptions>,
    std::array{
        output_option("output_chunk_states",
                      "Whether chunk_states are computed; declaring the tensor says the same."),
        Chunked::flag<&KdaOptions::disable_recompute>(
            "disable_recompute",
            "1: the forward stores saved_values and saved_states, so that the backward need not "
            "compute them again."),
        Chunked::integer<&KdaOptions::segments>(
            "segments", "0", "0|[1,33)",
            "How many segments each sequence is cut into, computed at the same time; results are "
            "as exact as without. 0: chosen for the device."),
        Chunked::integer<&KdaOptions::warmup_segments>(
            "warmup_segments", "0", "0|[1,33)",
            "Like segments, for inference alone and with a bounded error: each segment starts some "
            "tokens early, from a state of 0. 0: off."),
        OptionInfo{"deterministic", OptionType::integer, "1", "1|0",
                   "Accepted as other libraries have it: with 0 results repeat bit for bit too."},
    });
constexpr auto kKdaRecurrentOptions = joined(
    kScale<KdaRecurrentOptions>, kInputOptions<KdaRecurrentOptions>, kFinalState,
    kNullSlot<KdaRecurrentOptions>,
    std::array{Bind<KdaRecurrentOptions>::flag<&KdaRecurrentOptions::update_state>(
        "update_state", "0: state_pool is only read, and o is as if it had been written.", "1|0")},
    kAppend<KdaRecurrentOptions>);

constexpr Operator kOperators[] = {
    {.name = "kda",
     .sentence = "Kimi Delta Attention over whole or packed sequences, forward and backward.",
     .tensors = kda::kTensors,
     .options = kKdaOptions,
     .produces = "o,dq,dk,dv,dg,dbeta,dA_log,ddt_bias,dinitial_state",
     .backward = "do",
     .ranks = true,
     .chain = true,
     .shape_option = "state_v_first",
     .least_alignment = 8,
     .new_options = new_options<KdaOptions>,
     .check = check_kda,
     .make = make_kda,
     .derive = derive_kda,
     .check_values = check_kda_values},
    {.name = "kda_recurrent",
     .sentence = "Kimi Delta Attention token by token, for decoding and as the reference.",
     .tensors = kda_recurrent::kTensors,
     .options = kKdaRecurrentOptions,
     .produces = "o",
     .shape_option = "state_v_first",
     .new_options = new_options<KdaRecurrentOptions>,
     .check = check_kda_recurrent,
     .make = make_kda_recurrent,
     .check_values = check_kda_recurrent_values},
};

}  // namespace

std::span<const Operator> kda_operators() { return kOperators; }

}  // namespace lathe
