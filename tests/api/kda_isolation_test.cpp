// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What kda must not look at: what a later token or another sequence holds, be it NaN, what lies
// between rows and behind them, and what a call before this one left. Bit for bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/api/kda_case.h"

namespace {

using namespace apitest;
using ref::Array;

constexpr Array ref::Kda::*kPerToken[] = {&ref::Kda::q, &ref::Kda::k,    &ref::Kda::v,
                                          &ref::Kda::g, &ref::Kda::beta, &ref::Kda::d_o};

lathe_context* context() {
  static const Context made = make_context();
  return made.get();
}

// One head's tokens of one row, everything made in the kernel.
KdaCase sample() {
  KdaCase kda;
  kda.group = 2;
  kda.key_dim = 60, kda.value_dim = 36;
  kda.tokens = 150;
  kda.l2norm = kda.sigmoid = true;
  kda.gate = 3, kda.dt_bias = true;
  return kda;
}

// The values of tokens [from, to) of an array of `rows` of them.
Array rows_of(const Array& values, int64_t rows, int64_t from, int64_t to) {
  const auto row = static_cast<int64_t>(values.size()) / rows;
  return {values.begin() + from * row, values.begin() + to * row};
}
void set_rows(Array* values, int64_t rows, int64_t from, int64_t to, double value) {
  const auto row = static_cast<int64_t>(values->size()) / rows;
  std::fill(values->begin() + from * row, values->begin() + to * row, value);
}

// The first `tokens` of a case without packing and batch.
KdaInputs first_of(const KdaInputs& inputs, int64_t tokens) {
  KdaInputs out = inputs;
  for (const auto member : kPerToken) {
    Array& values = out.kda.*member;
    values = rows_of(values, inputs.kda.rows(), 0, tokens);
  }
  out.kda.begin = {0, tokens};
  return out;
}

TEST_CASE("kda: a token, even NaN, changes nothing before it") {
  const KdaCase kda = sample();
  const KdaInputs inputs = make_kda_inputs(kda);
  const KdaValues clean = run_kda(context(), kda, inputs);
  int which = 0;
  for (const int64_t token : {149, 128, 100, 79, 65, 64, 63, 47, 16, 9, 8, 7, 3, 1}) {
    for (const double value : {std::nan(""), 1e30}) {
      KdaInputs spoilt = inputs;
      // One input in turn, then all of them.
      const bool all = which % 6 == 5;
      for (int i = 0; i < 5; ++i) {
        if (all || which % 6 == i) set_rows(&(spoilt.kda.*kPerToken[i]), 150, token, 150, value);
      }
      INFO("from token " << token << " on, input " << which % 6 << " is " << value);
      const KdaValues out = run_kda(context(), kda, spoilt);
      CHECK(rows_of(out.at("o"), 150, 0, token) == rows_of(clean.at("o"), 150, 0, token));
      if (std::isnan(value)) {
        CHECK(std::isnan(out.at("o")[static_cast<size_t>(token) * 72]));
      }
      ++which;
    }
  }
  check_no_findings();
}

// A loss that ends before token p: nothing of p and behind it reaches a gradient before it.
TEST_CASE("kda: gradients of a prefix depend on no later token") {
  KdaCase kda = sample();
  kda.backward = true;
  for (const int64_t token : {130, 100, 64, 37, 5}) {
    KdaInputs inputs = make_kda_inputs(kda);
    set_rows(&inputs.kda.d_o, 150, token, 150, 0);
    const KdaValues clean = run_kda(context(), kda, inputs);
    KdaInputs other = make_kda_inputs(kda, 2), changed = inputs;
    for (int i = 0; i < 5; ++i) {
      const Array behind = rows_of(other.kda.*kPerToken[i], 150, token, 150);
      Array& values = changed.kda.*kPerToken[i];
      std::copy(behind.begin(), behind.end(),
                values.end() - static_cast<std::ptrdiff_t>(behind.size()));
    }
    const KdaValues out = run_kda(context(), kda, changed);
    INFO("token " << token);
    for (const std::string name : {"o", "dq", "dk", "dv", "dg", "dbeta"}) {
      INFO(name);
      CHECK(rows_of(out.at(name), 150, 0, token) == rows_of(clean.at(name), 150, 0, token));
    }
    CHECK(out.at("dinitial_state") == clean.at("dinitial_state"));
  }
  check_no_findings();
}

TEST_CASE("kda: appended tokens change nothing before them") {
  KdaCase kda = sample();
  kda.backward = true;
  const KdaInputs whole = make_kda_inputs(kda);
  for (const int64_t tokens : {129, 112, 96, 64, 50}) {
    KdaCase shorter = kda;
    shorter.tokens = tokens;
    const KdaValues once = run_kda(context(), shorter, first_of(whole, tokens));
    for (const int64_t more : {1, 3, 15, 16, 20}) {
      KdaCase longer = kda;
      longer.tokens = tokens + more;
      KdaInputs inputs = first_of(whole, tokens + more);
      set_rows(&inputs.kda.d_o, tokens + more, tokens, tokens + more, 0);
      const KdaValues out = run_kda(context(), longer, inputs);
      INFO("T " << tokens << " and " << more << " more");
      for (const std::string name : {"o", "dq", "dk", "dv", "dg", "dbeta"}) {
        INFO(name);
        CHECK(rows_of(out.at(name), tokens + more, 0, tokens) == once.at(name));
      }
    }
  }
  check_no_findings();
}

TEST_CASE("kda: a sequence of NaN, and padding of NaN, change no other sequence") {
  KdaCase kda = sample();
  kda.backward = kda.dht = true;
  kda.cu_seqlens = {0, 40, 40, 107, 150};
  kda.padding = 30;
  kda.segments = 2;
  const KdaInputs inputs = make_kda_inputs(kda);
  const KdaValues clean = run_kda(context(), kda, inputs);
  check_kda(kda, inputs, clean);
  for (const int64_t n : {0, 2, 3}) {
    KdaInputs spoilt = inputs;
    for (const auto member : kPerToken) {
      set_rows(&(spoilt.kda.*member), 180, kda.cu_seqlens[n], kda.cu_seqlens[n + 1], NAN);
    }
    set_rows(&spoilt.kda.initial_state, 4, n, n + 1, NAN);
    set_rows(&spoilt.kda.dht, 4, n, n + 1, NAN);
    const KdaValues out = run_kda(context(), kda, spoilt);
    INFO("sequence " << n);
    for (const auto& [name, values] : clean) {
      const bool state = name == "final_state" || name == "dinitial_state";
      if (name == "dA_log" || name == "ddt_bias") continue;  // sums over all sequences
      INFO(name);
      const int64_t rows = state ? 4 : 180, from = state ? n : kda.cu_seqlens[n],
                    to = state ? n + 1 : kda.cu_seqlens[n + 1];
      CHECK(rows_of(out.at(name), rows, 0, from) == rows_of(values, rows, 0, from));
      CHECK(rows_of(out.at(name), rows, to, rows) == rows_of(values, rows, to, rows));
    }
  }
  check_no_findings();
}

TEST_CASE("kda: what lies between rows is neither read nor written") {
  for (const int64_t width : {60, 100}) {
    KdaCase kda = sample();
    kda.backward = kda.dht = kda.chunk_states = true;
    kda.key_dim = kda.value_dim = width;
    kda.tokens = 75;
    const KdaInputs inputs = make_kda_inputs(kda);
    const KdaValues tight = run_kda(context(), kda, inputs);
    check_kda(kda, inputs, tight);
    for (const unsigned char poison : {0xff, 0x7a}) {
      for (const int64_t gap : {4, 28}) {
        KdaCase wide = kda;
        wide.gap = gap;
        wide.poison = poison;
        INFO(wide.text());
        CHECK(run_kda(context(), wide, inputs) == tight);
      }
    }
  }
  check_no_findings();
}

TEST_CASE("kda: upstream gradients of other placements and none of the final state") {
  KdaCase kda = sample();
  kda.backward = true;
  kda.tokens = 70;
  const KdaInputs inputs = make_kda_inputs(kda);  // final_state is asked for, dht is not given
  const KdaValues without = run_kda(context(), kda, inputs);
  check_kda(kda, inputs, without);
  KdaCase zero = kda;
  zero.dht = true;
  KdaInputs zeros = inputs;
  zeros.kda.dht.assign(inputs.kda.initial_state.size(), 0.0);
  CHECK(run_kda(context(), zero, zeros) == without);
  KdaCase none = zero;  // dht without final_state
  none.states = KdaCase::from;
  KdaValues out = run_kda(context(), none, zeros);
  out["final_state"] = without.at("final_state");
  CHECK(out == without);
  check_no_findings();
}

}  // namespace
