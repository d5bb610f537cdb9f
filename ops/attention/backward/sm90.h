// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares what Hopper's block step takes over from Hopper's backward.
#pragma once

#include "ops/attention/backward/step.h"

namespace lathe {

std::string attention_backward_warpgroups_refusal(const AttentionProblem& problem,
                                                  const DeviceFacts& facts);
// Returns the main kernel of a problem that is covered, with a block for each query head if
// `apart`. With mods it has forms, of which a later one takes fewer registers.
KernelSpec attention_backward_warpgroups_spec(const AttentionProblem& problem, bool apart,
                                              int form = 0);

}  // namespace lathe
