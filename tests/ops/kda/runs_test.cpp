// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover gradients of kda on Hopper by runs of two chunks, whose second state is made of
// the first one's, against the recurrence in double: two configurations between which every input
// transform, both types of gates, packed sequences and odd numbers of chunks are.
#include "tests/ops/kda/runs.h"

#include <doctest/doctest.h>

using namespace apitest;

namespace {

const std::vector<KdaSetup> kRuns = setups(R"(
    bf16 bf16 bf16 128 2 | backward packed l2norm softplus factor bias sigmoid negative initial final
    bf16 f32 f32 64 2 | backward initial final
)");

FAMILY_CASE("sm90", "kda: gradients by runs of two chunks") {
  for (size_t i = 0; i < kRuns.size(); ++i) {
    const KdaCase kda = run_shape_of(kRuns[i], 0);
    check_runs(kda, make_kda_inputs(kda, i + 1), kda_small_device(kda), i, true);
  }
}

}  // namespace
