// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the gradients of kda against those of the recurrence in double, under every
// checker, by the kernels of every family: configurations that cover every width, type, option and
// tile of the kernels, each with several shapes, held against the bounds that the kernels keep.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/numbers.h"
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

EVERY_FAMILY_CASE("kda: backwards of random shapes on every configuration") {
  uint32_t seed = 1;
  for (KdaSetup s : kBackwards) {
    s.flags += " backward";
    const int turns = s.element == LATHE_F32 ? 2 : 4;
    for (int turn = 0; turn < turns; ++turn, ++seed) check_case(any_shape_of(s, seed), seed);
  }
}

// Numbers: K as it is padded, and columns of V in parts of 64.
const std::vector<KdaSetup> kWide = setups(R"(
    bf16 bf16 bf16 128 2 | backward
    bf16 f32 f32 128 2 | backward initial final
    bf16 bf16 bf16 128 2 | backward l2norm bounded factor bias sigmoid initial final
    bf16 f32 bf16 128 1 | backward packed l2norm bounded sigmoid initial final v_first
    bf16 bf16 f32 128 3 | both packed l2norm softplus factor bias sigmoid negative initial final
    bf16 f32 bf16 64 1 | backward softplus factor sigmoid final
    bf16 bf16 bf16 64 2 | backward packed bounded bias initial final v_first
    bf16 f32 f32 64 1 | both packed l2norm initial final
)");

KdaCase wide_shape_of(const KdaSetup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  KdaCase kda = case_of(s);
  kda.warps = 0;
  if (s.has("packed")) {
    kda.cu_seqlens = {0};
    for (int n = 0; n < 6; ++n) {
      kda.cu_seqlens.push_back(kda.cu_seqlens.back() + one_of({0, 1, 15, 16, 17, 31, 65, 150}));
    }
    kda.padding = one_of({0, 20});
  }
  kda.batch = one_of({1, 2}), kda.tokens = one_of({15, 16, 17, 63, 64, 65, 130, 250});
  kda.heads = one_of({1, 2}), kda.group = one_of({1, 1, 2});
  kda.key_dim = s.width - one_of({0, 8, 24});
  kda.value_dim = 64 * s.warps - one_of({0, 8, 40});
  return kda;
}

EVERY_FAMILY_CASE("kda: wide backwards of random shapes") {
  uint32_t seed = 1;
  for (const KdaSetup& s : kWide) {
    for (int turn = 0; turn < 4; ++turn, ++seed) check_case(wide_shape_of(s, seed), seed);
  }
}

EVERY_FAMILY_CASE("kda: backwards in segments") {
  uint32_t seed = 100;
  for (const KdaSetup& s : kWide) {
    KdaCase kda = wide_shape_of(s, seed);
    kda.segments = 2 + static_cast<int>(seed % 3);
    kda.tokens = 200 + static_cast<int64_t>(seed % 150);
    for (int64_t& at : kda.cu_seqlens) at *= 2;
    check_case(kda, seed++);
  }
}

// Rows of dv may be kept in place of what beta scales, but for those that a division by beta would
// not bring back.
EVERY_FAMILY_CASE("kda: backwards with steps of nothing and of nearly nothing") {
  constexpr double kSteps[] = {0.0, -0.0, 0x1p-40, 0x1.fep-41, -0x1.fep-41, 1e-30, 0.5};
  KdaCase kda = case_of(kWide[1]);
  kda.warps = 0;
  kda.key_dim = 128, kda.value_dim = 120, kda.tokens = 130;
  KdaInputs inputs = make_kda_inputs(kda);
  for (size_t i = 0; i < inputs.kda.beta.size(); ++i) {
    inputs.kda.beta[i] = numbers::rounded(kda.beta_dtype, kSteps[i % std::size(kSteps)]);
  }
  INFO(kda.text());
  check_kda(kda, inputs);
}

// Decays of a block of 16 tokens go below what quotients do for: at every token, at some, and just
// not.
EVERY_FAMILY_CASE("kda: backwards with gates from 0 to -200") {
  for (const double weakest : {-0.001, -1.0, -4.9, -5.2, -12.0, -40.0, -200.0}) {
    for (const lathe_dtype gate : {LATHE_BF16, LATHE_F32}) {
      KdaCase kda;
      kda.element = LATHE_BF16, kda.gate_dtype = gate, kda.beta_dtype = LATHE_BF16;
      kda.key_dim = 128, kda.value_dim = 64, kda.tokens = 100, kda.group = 1;
      kda.states = KdaCase::both;
      kda.backward = kda.dht = true, kda.forward = false;
      kda.weakest = weakest;
      check_case(kda, 3);
      kda.strong_share = 0.05;
      check_case(kda, 4);
    }
  }
}

}  // namespace
