// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda_recurrent against the recurrence in double, under every checker:
// configurations that cover every class of widths, type, option, kind of states and tile, each with
// several shapes.
#include <doctest/doctest.h>

#include <array>
#include <random>

#include "tests/numbers.h"
#include "tests/ops/kda/case.h"

namespace {

using namespace apitest;

// Types, K and V of every class of widths, the warps of the tile, and everything that turns on
// code.
struct Setup {
  lathe_dtype element, gate_dtype, beta_dtype;
  int64_t key_dim, value_dim;
  int warps, gate;
  KdaCase::States states;
  std::string flags;
};
constexpr lathe_dtype kF32 = LATHE_F32, kF16 = LATHE_F16, kBf16 = LATHE_BF16;
const std::vector<Setup> kSetups = {
    {kF32, kF32, kF32, 128, 128, 4, 0, KdaCase::both, ""},
    {kBf16, kF32, kBf16, 128, 128, 4, 3, KdaCase::pool, "dt_bias sigmoid l2norm"},
    {kBf16, kBf16, kF32, 128, 64, 2, 1, KdaCase::columns, "dt_bias l2norm packed wide"},
    {kF32, kF16, kF16, 60, 100, 4, 0, KdaCase::both, "sigmoid packed v_first"},
    {kF16, kF32, kF16, 256, 36, 4, 2, KdaCase::both, "dt_bias l2norm"},
    {kF32, kF32, kF32, 256, 256, 4, 1, KdaCase::pool, "sigmoid l2norm v_first wide"},
    {kF16, kF16, kF32, 8, 8, 1, 0, KdaCase::columns, "v_first"},
    {kF32, kF32, kBf16, 32, 140, 4, 1, KdaCase::both, "packed wide"},
    {kBf16, kF32, kF32, 68, 32, 2, 0, KdaCase::pool, "packed sigmoid"},
    {kF32, kF32, kF32, 192, 192, 8, 3, KdaCase::columns, "dt_bias sigmoid v_first packed"},
};

// Any shape that the configuration allows, with slots and columns that there are and that are not.
KdaCase shape_of(const Setup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  const auto has = [&](const char* flag) { return s.flags.find(flag) != std::string::npos; };
  KdaCase kda;
  kda.element = s.element, kda.gate_dtype = s.gate_dtype, kda.beta_dtype = s.beta_dtype;
  kda.key_dim = s.key_dim, kda.value_dim = s.value_dim;
  kda.warps = s.warps, kda.gate = s.gate, kda.states = s.states;
  kda.lower_bound = -5, kda.any_gates = kda.wild_slots = kda.tight = true;
  kda.dt_bias = has("dt_bias"), kda.l2norm = has("l2norm"), kda.v_first = has("v_first");
  kda.sigmoid = has("sigmoid"), kda.negative = kda.sigmoid && seed % 2 == 0;
  kda.index_dtype = has("wide") ? LATHE_I64 : LATHE_I32;
  kda.heads = one_of({1, 2}), kda.group = one_of({1, 2, 3});
  kda.batch = one_of({1, 2, 3}), kda.tokens = one_of({1, 2, 4, 5, 9, 17});
  kda.gap = one_of({0, 8});
  if (has("packed")) {
    kda.cu_seqlens = {0};
    for (int n = 0; n < kda.batch; ++n) {
      kda.cu_seqlens.push_back(kda.cu_seqlens.back() + one_of({0, 1, 3, 8, 21}));
    }
    kda.padding = one_of({0, 0, 3});
  }
  if (s.states == KdaCase::both) {
    kda.states = std::array{KdaCase::both, KdaCase::both, KdaCase::from, KdaCase::into,
                            KdaCase::none}[random() % 5];
  }
  return kda;
}

TEST_CASE("kda_recurrent: random shapes on every configuration") {
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    for (int turn = 0; turn < 5; ++turn, ++seed) {
      const KdaCase kda = shape_of(s, seed);
      const KdaInputs inputs = make_kda_inputs(kda, seed);
      INFO(kda.text() << " seed " << seed);
      check_kda_recurrent(kda, inputs, run_kda_recurrent(kda, inputs));
    }
  }
}

TEST_CASE("kda_recurrent: a rate beyond float32 times a softplus of nearly 0") {
  for (const double A_log : {88.0, 89.0, 140.0}) {
    KdaCase kda{.gate = 1};
    KdaInputs inputs = make_kda_inputs(kda);
    std::ranges::fill(inputs.kda.A_log, A_log);
    for (size_t i = 0; i < inputs.kda.g.size(); ++i) {
      const double below = i % 11 == 0 ? 60.0 : 20.0 * static_cast<double>(i % 97) / 97.0;
      inputs.kda.g[i] = numbers::rounded(LATHE_F32, 2.0 - A_log - below);
    }
    INFO("A_log " << A_log);
    const Outputs outputs = run_kda_recurrent(kda, inputs);
    check_kda_recurrent(kda, inputs, outputs);
    for (const double value : outputs.at("o")) CHECK(std::isfinite(value));
  }
}

// Views that begin at any element: every access is as narrow as it must be, and the bits are those
// of aligned rows.
TEST_CASE("kda_recurrent: rows at multiples of 2, 4 and 8 bytes") {
  for (const KdaCase::States states : {KdaCase::both, KdaCase::pool, KdaCase::columns}) {
    const Setup s = {kBf16, kF32, kBf16, 64, 100, 4, 2, states, "l2norm sigmoid"};
    for (const bool v_first : {false, true}) {
      KdaCase kda = shape_of(s, 4);
      kda.v_first = v_first;
      const KdaInputs inputs = make_kda_inputs(kda, 4);
      const Outputs aligned = run_kda_recurrent(kda, inputs);
      for (const int alignment : {2, 4, 8}) {
        INFO(kda.text() << " alignment " << alignment);
        Call call = kda_recurrent_call(kda, inputs);
        call.alignment = alignment;
        for (auto& [name, tensor] : call.tensors) {
          const bool rows = tensor.shape.size() > 2;
          const int64_t item = tensor.dtype == LATHE_F32 ? 4 : 2;
          if (rows) tensor.placement.offset = std::max<int64_t>(alignment / item, 1);
        }
        Answer answer = execute(shared_context(), call);
        check_findings(answer);
        CHECK(answer.outputs == aligned);
      }
    }
  }
}

TEST_CASE("kda_recurrent: every tile gives the same bits") {
  const Setup s = {kBf16, kF32, kBf16, 64, 100, 4, 2, KdaCase::pool, "l2norm sigmoid"};
  KdaCase kda = shape_of(s, 4);
  const KdaInputs inputs = make_kda_inputs(kda, 4);
  const Outputs first = run_kda_recurrent(kda, inputs);
  check_kda_recurrent(kda, inputs, first);
  for (const int warps : {8, 2, 1}) {
    kda.warps = warps;
    INFO(warps << " warps");
    CHECK(run_kda_recurrent(kda, inputs) == first);
  }
}

}  // namespace
