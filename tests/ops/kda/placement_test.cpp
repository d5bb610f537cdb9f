// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Results of kda depend on nothing between rows and behind them, and not on where upstream
// gradients lie, bit for bit.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/ops/kda/isolation_sample.h"

namespace {

using namespace apitest;
using ref::Array;

void check_padding_rows(KdaCase kda) {
  kda.backward = kda.dht = true;
  kda.cu_seqlens = {0, 20, 20, 90, 123};
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs clean = run_kda(kda, inputs);
  for (const int64_t padding : {1, 5, 64, 150}) {
    kda.padding = padding;
    INFO(padding << " rows");
    KdaInputs longer = inputs;
    for (const auto member : kPerToken) {
      Array& values = longer.kda.*member;
      values.resize(values.size() / 123 * static_cast<size_t>(123 + padding), NAN);
    }
    const Outputs out = run_kda(kda, longer);
    check_kda(kda, longer, out);
    for (const auto& [name, values] : clean) {
      // Idle slots add nothing, but the order of a sum is that of their number.
      if (name == "dA_log" || name == "ddt_bias") continue;
      INFO(name);
      CHECK(Array(out.at(name).begin(), out.at(name).begin() + std::ssize(values)) == values);
    }
  }
}

TEST_CASE("kda: rows that no sequence has change nothing, and get 0") {
  for (const bool whole_rows : {false, true}) check_padding_rows(isolation_sample(whole_rows));
}

TEST_CASE("kda: what lies between rows is neither read nor written") {
  for (const int64_t width : {60, 100, 72}) {
    const bool whole_rows = width == 72;
    KdaCase kda = isolation_sample(whole_rows);
    kda.backward = kda.dht = true;
    kda.chunk_states = !whole_rows;  // Hopper's forward leaves none
    kda.key_dim = width;
    if (!whole_rows) kda.value_dim = width;
    kda.tokens = 75;
    const KdaInputs inputs = make_kda_inputs(kda);
    const Outputs tight = run_kda(kda, inputs);
    check_kda(kda, inputs, tight);
    for (const unsigned char poison : {0xff, 0x7a}) {
      for (const int64_t gap : {4, 28}) {
        KdaCase wide = kda;
        wide.gap = whole_rows ? gap + 4 : gap;
        wide.poison = poison;
        INFO(wide.text());
        CHECK(run_kda(wide, inputs) == tight);
      }
    }
  }
}

void check_upstream(KdaCase kda) {
  kda.backward = true;
  kda.tokens = 70;
  const KdaInputs inputs = make_kda_inputs(kda);  // final_state is asked for, dht is not given
  const Outputs without = run_kda(kda, inputs);
  check_kda(kda, inputs, without);
  KdaCase zero = kda;
  zero.dht = true;
  KdaInputs zeros = inputs;
  zeros.kda.dht.assign(inputs.kda.initial_state.size(), 0.0);
  CHECK(run_kda(zero, zeros) == without);
  KdaCase none = zero;  // dht without final_state
  none.states = KdaCase::from;
  Outputs out = run_kda(none, zeros);
  out["final_state"] = without.at("final_state");
  CHECK(out == without);
}

TEST_CASE("kda: upstream gradients of other placements and none of the final state") {
  for (const bool whole_rows : {false, true}) check_upstream(isolation_sample(whole_rows));
}

}  // namespace
