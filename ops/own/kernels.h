// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses the constants of a caller's kernels and makes their specs.
#pragma once

#include <vector>

#include "codegen/choice.h"
#include "codegen/device_facts.h"
#include "ops/own/operator.h"
#include "ops/own/params.h"

namespace lathe::own {

// What a plan has chosen: a spec for each kernel, and the values that constants have in them.
struct ChosenKernels {
  std::vector<KernelSpec> specs;
  KnownValues known;
};

// Returns the choice among all combinations of the constants' lists that no rule refuses. The first
// values of the lists are the default. INVALID_ARGUMENT or UNSUPPORTED, with the first
// combination's reason, if none is left.
Result<ChosenKernels> choose_kernels(const Resolved& resolved, const ParamsLayout& params,
                                     const DeviceFacts& facts);

}  // namespace lathe::own
