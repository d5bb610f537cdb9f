// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes cases of kda whose calls must agree with one another.
#pragma once

#include "tests/ops/kda/case.h"

namespace apitest {

inline KdaCase sample() {
  return {.beta_dtype = LATHE_F32,
          .group = 2,
          .key_dim = 64,
          .value_dim = 40,
          .tokens = 150,
          .l2norm = true,
          .weakest = -0.2,
          .backward = true,
          .dht = true};
}

inline void check_near(const Outputs& actual, const Outputs& expected, double bound) {
  for (const auto& [name, values] : expected) {
    const bool sums = name == "dg" || name == "dbeta" || name == "dA_log" || name == "ddt_bias";
    check_rms(name, actual.at(name), values, sums ? 10 * bound : bound, 1e-6);
  }
}

}  // namespace apitest
