// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file has the case from which tests of isolation begin.
#pragma once

#include "tests/ops/kda/case.h"

namespace apitest {

// One head's tokens of one row, everything made in the kernel. On sm_90a widths of whole rows of 16
// bytes are those of the kernels by warpgroups, whose gradients take one value head for a head.
inline KdaCase isolation_sample(bool whole_rows = false) {
  return {.group = whole_rows ? 1 : 2,
          .key_dim = whole_rows ? 72 : 60,
          .value_dim = whole_rows ? 40 : 36,
          .tokens = 150,
          .gate = 3,
          .dt_bias = true,
          .l2norm = true,
          .sigmoid = true};
}

}  // namespace apitest
