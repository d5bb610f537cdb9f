// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the tensors and options of kda_decode.
#pragma once

#include "ops/kda/schema.h"

namespace lathe {

namespace kda_decode {

using kda_shapes::kAlignment;
inline constexpr const char *kChannels = "B,D|B,T,D", *kKeyRows = "B,HV,K|B,T,HV,K",
                            *kValueRows = "B,T,HV,V|B,HV,V";

inline constexpr auto kTensors = joined(
    std::array{
        input("qkv", kChannels, kFloats,
              "What the convolution reads: H*K channels of q, H*K of k and HV*V of v. Its dtype is "
              "that of o and of keys in records.")
            .strided(),
        input("conv_weight", "D,W", kFloats, "Taps, oldest first; W is 2 to 8."),
        inout("conv_pool", "S,D,LS", "=qkv",
              "The last inputs of each slot, the newest in the last of at least W - 1 columns, "
              "rolled in place; its columns or its channels may lie side by side.")
            .free_columns()
            .aligned(1),
        // These rows are where kda has them, because shared code names tensors by kda's indices.
        input("g", kKeyRows, kFloats, "The decay's natural logarithm, or the raw gate.").strided(),
        input("beta", "B,HV|B,T,HV", kFloats, "The step of the delta rule, or its logit.")
            .strided()
            .aligned(1),
    },
    std::array{
        kda_shapes::kInputs[5],
        kda_shapes::kInputs[6],
        input("conv_bias", "D", "=conv_weight", "Added before the activation.").optional(),
        kda_shapes::kPool.required(),
        input("state_indices", "B", kOffsets,
              "The slot of each sequence, of both pools; below 0 or null_slot: padding."),
        input("source_indices", "B", "=state_indices",
              "The slot that each sequence reads in place of the one that it writes; below 0 or "
              "null_slot: its state and its inputs before are 0.")
            .optional(),
        input("output_gate", kValueRows, kFloats, "o is multiplied by gate_activation of it.")
            .optional()
            .strided(),
        input("norm_weight", "V", kFloats,
              "Rows of o are divided by their root mean square and multiplied by it; float32 or "
              "qkv's dtype.")
            .optional()
            .aligned(kAlignment),
    },
    kda_shapes::ring_rows("=qkv"),
    std::array{output("o", kValueRows, "=qkv", "The result.").strided()});

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int qkv = at("qkv"), conv_weight = at("conv_weight"), conv_pool = at("conv_pool"),
                     g = at("g"), beta = at("beta"), A_log = at("A_log"), dt_bias = at("dt_bias"),
                     conv_bias = at("conv_bias"), state_pool = at("state_pool"),
                     state_indices = at("state_indices"), source_indices = at("source_indices"),
                     output_gate = at("output_gate"), norm_weight = at("norm_weight"),
                     ring_k = at("ring_k"), ring_u = at("ring_u"), ring_g = at("ring_g"),
                     ring_count = at("ring_count"), o = at("o");
static_assert(g == kda::g && beta == kda::beta && A_log == kda::A_log && dt_bias == kda::dt_bias);

}  // namespace kda_decode

struct KdaDecodeOptions : KdaRecurrentOptions {
  enum class Activation { silu, none } activation = Activation::silu;
  enum class Gate { sigmoid, silu } gate_activation = Gate::sigmoid;
  float norm_eps = 1e-5f;
};

}  // namespace lathe
