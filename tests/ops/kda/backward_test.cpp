// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the gradients of kda against those of the recurrence in double, under every
// checker: configurations that cover every width, type, option and tile of the kernels, each with
// several shapes, held against the bounds that the kernels keep.
#include <doctest/doctest.h>

#include "tests/ops/kda/setups.h"

using namespace apitest;

namespace {

const std::vector<KdaSetup> kBackwards = setups(R"(
    bf16 f32 f32 64 4 | single
    bf16 bf16 bf16 128 8 | l2norm bounded factor bias sigmoid initial final single
    f16 f32 f32 128 4 | packed initial final v_first narrow grouped
    bf16 f32 bf16 64 8 | packed l2norm softplus factor bias sigmoid negative final grouped
    f32 f32 f32 64 4 | packed l2norm bounded factor sigmoid initial final single
    f32 f32 f32 128 2 | packed initial final single
    f16 f32 f32 64 4 | packed single l2norm initial final narrow
)");

TEST_CASE("kda: backwards of random shapes on every configuration") {
  uint32_t seed = 1;
  for (KdaSetup s : kBackwards) {
    s.flags += " backward";
    const int turns = s.element == LATHE_F32 ? 2 : 4;
    for (int turn = 0; turn < turns; ++turn, ++seed) check_case(any_shape_of(s, seed), seed);
  }
}

}  // namespace
