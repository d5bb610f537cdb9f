// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention over combinations of its options: the error is at most twice
// that of a plain computation of the same precision, forward and backward, under every checker.
//
// LATHE_TEST_SHARD=3/8 runs groups 3, 11, 19 ...; without it the first of eight.
#include "tests/ops/attention/options.h"

#include "tests/harness/family_case.h"

using namespace apitest;

namespace {

TEST_CASE("attention: at least 300 combinations of options") {
  CHECK(count_cases(attention_options()) >= 300);
}

EVERY_FAMILY_CASE("attention: combinations of options against float64") {
  run_combinations(attention_options(), 8, [](const AttentionCase& attention, size_t, size_t) {
    return checked(attention).kernels;
  });
}

}  // namespace
