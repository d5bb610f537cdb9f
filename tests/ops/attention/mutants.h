// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention's kernels by warpgroups as subjects of mutations.
#pragma once

#include "tests/harness/mutants.h"
#include "tests/ops/attention/case.h"

namespace apitest {

Subject forward_subject(const AttentionCase& c);
// With `inputs`, which tell of mods. `form` says what the kernel does with its products.
enum class BackwardForm { whole, halves, columns };
Subject backward_subject(const AttentionCase& c, const ref::Attention& inputs, BackwardForm form);
Subject backward_subject(const AttentionCase& c, BackwardForm form);

}  // namespace apitest
