// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes combinations of flash_attention's options from a fixed seed. Cases of a group
// share their kernels; over the groups every pair of values of two options that change the code
// occurs, and over the cases of all groups every length, ratio and mask.
#pragma once

#include "tests/harness/combinations.h"
#include "tests/ops/attention/case.h"

namespace apitest {

Groups<AttentionCase> attention_options();

}  // namespace apitest
