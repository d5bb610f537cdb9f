// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover sparse_flash_attention over combinations of its options: the error is at most
// twice that of a plain computation of the same precision, under every checker.
//
// LATHE_TEST_SHARD=3/16 runs groups 3, 19, 35 ...; without it the first of sixteen.
#include "tests/ops/sparse/options.h"

using namespace apitest;

namespace {

TEST_CASE("sparse attention: at least 300 combinations of options") {
  CHECK(count_cases(sparse_options()) >= 300);
}

TEST_CASE("sparse attention: combinations of options against float64") {
  run_combinations(sparse_options(), 16, [](const SparseCase& sparse, size_t, size_t) {
    return checked(sparse, make_sparse(sparse)).kernels;
  });
}

}  // namespace
