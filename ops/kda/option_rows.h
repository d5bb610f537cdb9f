// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes rows of option tables that several operators of KDA have.
#pragma once

#include "ops/kda/schema.h"
#include "ops/options.h"

namespace lathe {

// Options that all operators of the family have.
template <typename Options, typename B = Bind<Options>>
inline constexpr std::array kInputOptions = {
    B::template flag<&Options::use_qk_l2norm_in_kernel>(
        "use_qk_l2norm_in_kernel", "Whether rows of q and k are divided by their norms."),
    B::template flag<&Options::use_gate_in_kernel>(
        "use_gate_in_kernel", "Whether g is the raw gate; lower_bound chooses the formula."),
    B::template flag<&Options::use_beta_sigmoid_in_kernel>("use_beta_sigmoid_in_kernel",
                                                           "Whether beta is a logit."),
    B::template flag<&Options::allow_neg_eigval>("allow_neg_eigval",
                                                 "1: beta is twice the sigmoid of the logit."),
    B::template flag<&Options::safe_gate>(
        "safe_gate",
        "The promise of flash-linear-attention's callers that g is not below -5. With "
        "use_gate_in_kernel it needs lower_bound; no result depends on it."),
    B::template number<&Options::lower_bound>(
        "lower_bound", "unset", "unset|[-5,0)",
        "The gate becomes lower_bound * sigmoid; unset: -exp(A_log) * softplus."),
    B::template flag<&Options::state_v_first>("state_v_first", "Whether states are [..,V,K]."),
};
template <typename Options>
inline constexpr std::array kScale = {
    Bind<Options>::template number<&Options::scale>("scale", "K^-0.5", "K^-0.5|>0",
                                                    "o is multiplied by it."),
};

using pool_rows::kNullSlot;
template <typename Options>
inline constexpr std::array kAppend = {Bind<Options>::template flag<&Options::append>(
    "append",
    "With rings: whether ring_count grows by the tokens of the call. 0: their records are written, "
    "and the caller counts those that he accepts.",
    "1|0")};

}  // namespace lathe
