// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda against the recurrence in double and its gradients, under every checker:
// configurations that cover every width, type, option and tile of the kernels, each with several
// shapes, held against the bounds that the kernels keep.
#include <doctest/doctest.h>

#include <random>

#include "tests/ops/kda/setups.h"

using namespace apitest;

namespace {

// Any shape that the configuration allows.
KdaCase shape_of(const KdaSetup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  KdaCase kda = case_of(s);
  const int length = one_of({1, 15, 17, 64, 130}), sequences = one_of({1, 2, 4});
  if (s.has("packed")) {
    kda.cu_seqlens = {0};
    for (int n = 0; n < sequences; ++n) {
      kda.cu_seqlens.push_back(kda.cu_seqlens.back() + one_of({0, 1, 16, 31, 70, 150}));
    }
  }
  kda.batch = sequences, kda.tokens = length;
  kda.heads = one_of({1, 2});
  kda.group = s.has("single") ? 1 : s.has("grouped") ? 2 : one_of({1, 2});
  kda.key_dim = s.width - s.step() * (s.has("narrow") ? one_of({1, 3, 5}) : one_of({0, 1, 3}));
  kda.value_dim = 16 * s.warps + s.step() * one_of({-3, 0, 1});
  return kda;
}

const std::vector<KdaSetup> kForwards = setups(R"(
    bf16 f32 f32 64 4 | final
    bf16 bf16 bf16 128 8 | l2norm bounded factor bias sigmoid initial final
    f16 f32 f32 128 4 | packed initial final v_first chunks narrow
    bf16 f32 bf16 64 8 | packed l2norm softplus factor sigmoid negative final
    bf16 f32 f32 256 4 | l2norm bounded initial final chunks
    f32 f32 f32 64 4 | packed l2norm bounded bias sigmoid final
    f32 bf16 f32 128 2 | initial final v_first chunks
    f32 f32 f32 256 2 | packed l2norm softplus factor sigmoid initial final
)");

TEST_CASE("kda: forwards of random shapes on every configuration") {
  uint32_t seed = 1;
  for (const KdaSetup& s : kForwards) {
    for (int turn = 0; turn < 4; ++turn, ++seed) check_case(shape_of(s, seed), seed);
  }
}

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
    for (int turn = 0; turn < turns; ++turn, ++seed) check_case(shape_of(s, seed), seed);
  }
}

}  // namespace
