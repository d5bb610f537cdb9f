// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes combinations of kda's options from a fixed seed. Cases of a group share most of
// their kernels; over the groups every pair of values of two options that change the code occurs,
// and over the cases of all groups every width, length, ratio, chunk and number of segments.
#pragma once

#include "tests/harness/combinations.h"
#include "tests/ops/kda/case.h"

namespace apitest {

Groups<KdaCase> kda_options();

}  // namespace apitest
