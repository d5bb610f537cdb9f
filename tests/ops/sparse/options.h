// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes combinations of sparse_flash_attention's options from a fixed seed. Cases of a
// group share their kernels; over the groups every pair of values of two options that change the
// code occurs, and over the cases every length of a list, kind of list, layout and index space.
#pragma once

#include "tests/harness/combinations.h"
#include "tests/ops/sparse/case.h"

namespace apitest {

Groups<SparseCase> sparse_options();

}  // namespace apitest
