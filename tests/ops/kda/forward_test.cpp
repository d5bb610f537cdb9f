// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the forward of kda against the recurrence in double, by the kernels of every
// family: every option, every kind of length and gate, widths, types and tiles.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/ops/kda/setups.h"

namespace {

using namespace apitest;

// Numbers: K as it is padded, and columns of V in parts of 64.
const std::vector<KdaSetup> kWide = setups(R"(
    bf16 bf16 bf16 128 2 | final
    bf16 f32 f32 128 2 | initial final
    bf16 bf16 bf16 128 2 | l2norm bounded factor bias sigmoid initial final
    bf16 f32 bf16 128 1 | packed l2norm bounded sigmoid initial final v_first
    bf16 bf16 f32 128 3 | packed l2norm softplus factor bias sigmoid negative initial final
    bf16 f32 bf16 64 1 | softplus factor sigmoid final
    bf16 bf16 bf16 64 2 | packed bounded bias initial final v_first
    bf16 f32 f32 64 1 | packed l2norm initial final
    bf16 bf16 bf16 256 4 | final
    bf16 f32 f32 256 2 | packed initial final
    bf16 bf16 f32 256 3 | packed l2norm softplus factor bias sigmoid negative initial final
    bf16 f16 bf16 256 1 | l2norm bounded factor sigmoid initial final v_first
    bf16 f32 bf16 192 2 | packed l2norm softplus factor bias sigmoid initial final
    bf16 f16 bf16 128 2 | l2norm initial final
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
  kda.batch = one_of({1, 2}), kda.tokens = one_of({1, 15, 16, 17, 63, 64, 65, 130, 250});
  kda.heads = one_of({1, 2}), kda.group = one_of({1, 2});
  kda.key_dim = s.width - one_of({0, 8, 24});
  kda.value_dim = 64 * s.warps - one_of({0, 8, 40});
  return kda;
}

EVERY_FAMILY_CASE("kda: wide forwards of random shapes") {
  uint32_t seed = 1;
  for (const KdaSetup& s : kWide) {
    for (int turn = 0; turn < 4; ++turn, ++seed) check_case(wide_shape_of(s, seed), seed);
  }
}

// Nine are more than a cluster has: then Hopper's launches are three at every width.
EVERY_FAMILY_CASE("kda: segments") {
  uint32_t seed = 100;
  for (const KdaSetup& s : kWide) {
    for (const int segments : {2, 3, 5, 9}) {
      KdaCase kda = wide_shape_of(s, seed);
      kda.segments = segments;
      kda.tokens = 200 + static_cast<int64_t>(seed % 150);
      for (int64_t& at : kda.cu_seqlens) at *= 2;
      check_case(kda, seed++);
    }
  }
}

// Decays of a block of 16 tokens go below what the kernel takes in one part: at every token, at
// some, and just not.
EVERY_FAMILY_CASE("kda: forwards with gates from 0 to -200") {
  for (const int64_t width : {128, 192, 256}) {
    for (const double weakest : {-0.001, -1.0, -4.9, -5.2, -12.0, -40.0, -200.0}) {
      for (const lathe_dtype gate : {LATHE_BF16, LATHE_F16, LATHE_F32}) {
        KdaCase kda;
        kda.element = LATHE_BF16, kda.gate_dtype = gate, kda.beta_dtype = LATHE_BF16;
        kda.key_dim = width, kda.value_dim = 64, kda.tokens = 100;
        kda.states = KdaCase::both;
        kda.weakest = weakest;
        check_case(kda, 3);
        kda.strong_share = 0.05;
        check_case(kda, 4);
      }
    }
  }
}

// The ring of records comes around many times, and the state is a sum of many rounded products.
EVERY_FAMILY_CASE("kda: wide states over many tokens that hardly decay") {
  KdaCase kda;
  kda.element = LATHE_BF16, kda.gate_dtype = LATHE_BF16, kda.beta_dtype = LATHE_BF16;
  kda.key_dim = kda.value_dim = 256, kda.tokens = 700;
  kda.l2norm = kda.sigmoid = kda.negative = true;
  kda.weakest = -1e-3;
  check_case(kda, 5);
}

// Numbers: K as it is padded, and the tile: 16 columns of V a warp.
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

EVERY_FAMILY_CASE("kda: forwards of random shapes on every configuration") {
  uint32_t seed = 1;
  for (const KdaSetup& s : kForwards) {
    for (int turn = 0; turn < 4; ++turn, ++seed) check_case(any_shape_of(s, seed), seed);
  }
}

}  // namespace
