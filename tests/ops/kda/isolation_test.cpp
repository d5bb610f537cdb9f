// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Results of kda depend on no later token, no other sequence and no other head, be it NaN, bit for
// bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/ops/kda/isolation_sample.h"

namespace {

using namespace apitest;
using ref::Array;

// Returns the values of tokens [from, to) of an array of `rows` of them.
Array rows_of(const Array& values, int64_t rows, int64_t from, int64_t to) {
  const auto row = static_cast<int64_t>(values.size()) / rows;
  return {values.begin() + from * row, values.begin() + to * row};
}
void set_rows(Array* values, int64_t rows, int64_t from, int64_t to, double value) {
  const auto row = static_cast<int64_t>(values->size()) / rows;
  std::fill(values->begin() + from * row, values->begin() + to * row, value);
}

bool is_nan(double value) { return std::isnan(value); }

void check_tokens_before(const KdaCase& kda) {
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs clean = run_kda(kda, inputs);
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
      const Outputs out = run_kda(kda, spoilt);
      CHECK(rows_of(out.at("o"), 150, 0, token) == rows_of(clean.at("o"), 150, 0, token));
      if (std::isnan(value)) {
        CHECK(std::isnan(
            out.at("o")[static_cast<size_t>(token * kda.value_heads() * kda.value_dim)]));
      }
      ++which;
    }
  }
}

TEST_CASE("kda: a token, even NaN, changes nothing before it") {
  for (const bool whole_rows : {false, true}) {
    KdaCase kda = isolation_sample(whole_rows);
    kda.group = 2;
    check_tokens_before(kda);
  }
}

// The cases below are of these kernels then, forward and backward.
FAMILY_CASE("sm90", "kda: the sample with whole rows is one of Hopper's kernels") {
  KdaCase kda = isolation_sample(true);
  kda.backward = true;
  const Answer answer = run(kda_call(kda, make_kda_inputs(kda)));
  for (const std::string name : {"forward", "backward_scan", "backward"}) {
    CHECK(answer.spec("kda_" + name + "_warpgroups") != "");
  }
}

// A loss that ends before token p: nothing of p and behind it reaches a gradient before it.
void check_prefix(KdaCase kda) {
  kda.backward = true;
  for (const int64_t token : {130, 100, 64, 37, 5}) {
    KdaInputs inputs = make_kda_inputs(kda);
    set_rows(&inputs.kda.d_o, 150, token, 150, 0);
    const Outputs clean = run_kda(kda, inputs);
    KdaInputs other = make_kda_inputs(kda, 2), changed = inputs;
    for (int i = 0; i < 5; ++i) {
      const Array behind = rows_of(other.kda.*kPerToken[i], 150, token, 150);
      Array& values = changed.kda.*kPerToken[i];
      std::copy(behind.begin(), behind.end(),
                values.end() - static_cast<std::ptrdiff_t>(behind.size()));
    }
    const Outputs out = run_kda(kda, changed);
    INFO("token " << token);
    for (const std::string name : {"o", "dq", "dk", "dv", "dg", "dbeta"}) {
      INFO(name);
      CHECK(rows_of(out.at(name), 150, 0, token) == rows_of(clean.at(name), 150, 0, token));
    }
    CHECK(out.at("dinitial_state") == clean.at("dinitial_state"));
  }
}

TEST_CASE("kda: gradients of a prefix depend on no later token") {
  for (const bool whole_rows : {false, true}) check_prefix(isolation_sample(whole_rows));
}

void check_appended(KdaCase kda) {
  kda.backward = true;
  const KdaInputs whole = make_kda_inputs(kda);
  for (const int64_t tokens : {129, 112, 96, 64, 50}) {
    KdaCase shorter = kda;
    shorter.tokens = tokens;
    const Outputs once = run_kda(shorter, kda_slice(whole, 0, tokens));
    for (const int64_t more : {1, 3, 15, 16, 20}) {
      KdaCase longer = kda;
      longer.tokens = tokens + more;
      KdaInputs inputs = kda_slice(whole, 0, tokens + more);
      set_rows(&inputs.kda.d_o, tokens + more, tokens, tokens + more, 0);
      const Outputs out = run_kda(longer, inputs);
      INFO("T " << tokens << " and " << more << " more");
      for (const std::string name : {"o", "dq", "dk", "dv", "dg", "dbeta"}) {
        INFO(name);
        CHECK(rows_of(out.at(name), tokens + more, 0, tokens) == once.at(name));
      }
    }
  }
}

TEST_CASE("kda: appended tokens change nothing before them") {
  for (const bool whole_rows : {false, true}) check_appended(isolation_sample(whole_rows));
}

void check_sequences(KdaCase kda) {
  kda.backward = kda.dht = true;
  kda.cu_seqlens = {0, 40, 40, 107, 150};
  kda.padding = 30;
  kda.segments = 2;
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs clean = run_kda(kda, inputs);
  check_kda(kda, inputs, clean);
  for (const int64_t n : {0, 2, 3}) {
    KdaInputs spoilt = inputs;
    for (const auto member : kPerToken) {
      set_rows(&(spoilt.kda.*member), 180, kda.cu_seqlens[n], kda.cu_seqlens[n + 1], NAN);
    }
    set_rows(&spoilt.kda.initial_state, 4, n, n + 1, NAN);
    set_rows(&spoilt.kda.dht, 4, n, n + 1, NAN);
    const Outputs out = run_kda(kda, spoilt);
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
}

TEST_CASE("kda: a sequence of NaN, and padding of NaN, change no other sequence") {
  for (const bool whole_rows : {false, true}) check_sequences(isolation_sample(whole_rows));
}

// The second of two query heads, with all that its value heads read, is NaN.
void check_heads(KdaCase kda) {
  kda.heads = 2;
  kda.backward = kda.dht = true;
  kda.cu_seqlens = {0, 20, 20, 90, 123};
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs clean = run_kda(kda, inputs);
  KdaInputs spoilt = inputs;
  ref::Kda& a = spoilt.kda;
  // G value heads read a query head.
  const int64_t K = kda.key_dim, V = kda.value_dim, G = kda.group;
  const std::map<std::string, int64_t> widths = {{"o", G * V},
                                                 {"dq", K},
                                                 {"dk", K},
                                                 {"dv", G * V},
                                                 {"dg", G * K},
                                                 {"dbeta", G},
                                                 {"dA_log", G},
                                                 {"ddt_bias", G * K},
                                                 {"final_state", G * K * V},
                                                 {"dinitial_state", G * K * V}};
  const auto second = [](Array* x, int64_t width) {
    for (size_t at = 0; at < x->size(); ++at) {
      if (static_cast<int64_t>(at) / width % 2 == 1) (*x)[at] = NAN;
    }
  };
  second(&a.q, K), second(&a.k, K), second(&a.v, G * V), second(&a.d_o, G * V);
  second(&a.g, G * K), second(&a.beta, G), second(&a.A_log, G), second(&a.dt_bias, G * K);
  second(&a.initial_state, G * K * V), second(&a.dht, G * K * V);
  const Outputs out = run_kda(kda, spoilt);
  for (const auto& [name, values] : clean) {
    INFO(name);
    Array expected = values, found = out.at(name);
    CHECK(std::isnan(found[static_cast<size_t>(widths.at(name))]));
    second(&expected, widths.at(name)), second(&found, widths.at(name));
    expected.erase(std::remove_if(expected.begin(), expected.end(), is_nan), expected.end());
    found.erase(std::remove_if(found.begin(), found.end(), is_nan), found.end());
    CHECK(found == expected);
  }
}

TEST_CASE("kda: a head of NaN changes no other") {
  for (const bool whole_rows : {false, true}) check_heads(isolation_sample(whole_rows));
}

// Rows of `values`, [rows, 2 heads, width], that only what comes before token `bad` or lies in
// another sequence or head can reach; the sequence of `bad` has tokens [begin, end).
Array out_of_reach(const Array& values, int64_t rows, int64_t begin, int64_t end, int64_t bad) {
  const auto width = static_cast<int64_t>(values.size()) / rows / 2;
  Array out;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < 2; ++head) {
      if (head == 0 && row >= std::max(begin, bad) && row < end) continue;
      const auto from = values.begin() + (2 * row + head) * width;
      out.insert(out.end(), from, from + width);
    }
  }
  return out;
}

TEST_CASE("kda: what is not finite reaches no earlier token, no other sequence or head") {
  for (int which = 0; which < 6; ++which) {
    KdaCase kda = isolation_sample(which >= 4);
    kda.heads = 2, kda.group = 1;
    kda.element = which == 2 ? LATHE_F16 : which == 3 ? LATHE_F32 : LATHE_BF16;
    kda.gate = which % 4 == 0 || which == 3 ? 0 : 2, kda.dt_bias = which % 4 == 1;
    kda.l2norm = kda.sigmoid = kda.gate > 0;
    kda.cu_seqlens = {0, 20, 61, 90};
    const KdaInputs inputs = make_kda_inputs(kda);
    const Outputs clean = run_kda(kda, inputs);
    int turn = 0;
    for (const int64_t token : {20, 21, 26, 31, 39, 60}) {
      KdaInputs spoilt = inputs;
      const bool all = token % 2 == 0;
      const double value = token == 21 ? INFINITY : NAN;
      for (int i = 0; i < 5; ++i) {
        Array& values = spoilt.kda.*kPerToken[i];
        const auto width = static_cast<std::ptrdiff_t>(values.size()) / 180;
        if (all || turn % 5 == i) std::fill_n(values.begin() + 2 * token * width, width, value);
      }
      INFO(kda.text() << " token " << token << " input " << turn++ % 5);
      const Outputs out = run_kda(kda, spoilt);
      CHECK(out_of_reach(out.at("o"), 90, 20, 61, token) ==
            out_of_reach(clean.at("o"), 90, 20, 61, token));
      CHECK(out_of_reach(out.at("final_state"), 3, 1, 2, 0) ==
            out_of_reach(clean.at("final_state"), 3, 1, 2, 0));
      const Array bad = rows_of(out.at("o"), 90, token, 61);
      CHECK(std::any_of(bad.begin(), bad.end(), [](double x) { return !std::isfinite(x); }));
    }
  }
}

TEST_CASE("kda: a bad gradient reaches no later token, no other sequence or head") {
  struct Kind {
    lathe_dtype dtype;
    bool fused, whole_rows;
  };
  for (const auto& [dtype, fused, whole_rows] :
       {Kind{LATHE_BF16, false, false}, Kind{LATHE_BF16, true, false}, Kind{LATHE_F16, true, false},
        Kind{LATHE_F32, false, false}, Kind{LATHE_BF16, false, true},
        Kind{LATHE_BF16, true, true}}) {
    KdaCase kda = isolation_sample(whole_rows);
    kda.element = dtype;
    kda.heads = 2, kda.group = 1;
    kda.gate = fused ? 2 : 0, kda.dt_bias = kda.l2norm = fused;
    kda.cu_seqlens = {0, 37, 37, 150};
    kda.forward = false, kda.backward = kda.dht = true;
    const KdaInputs inputs = make_kda_inputs(kda);
    const Outputs clean = run_kda(kda, inputs);
    KdaInputs spoilt = inputs;
    const int64_t bad = 37 + 54, V = kda.value_dim;
    std::fill_n(spoilt.kda.d_o.begin() + 2 * bad * V, V, NAN);
    const Outputs out = run_kda(kda, spoilt);
    INFO(kda.text());
    // Tokens [37, bad] are reached.
    const auto beyond = [&](const Array& values) {
      return out_of_reach(values, 150, 37, bad + 1, 0);
    };
    CHECK(beyond(out.at("dv")) == beyond(clean.at("dv")));
    CHECK(std::isnan(out.at("dv")[static_cast<size_t>(2 * 37 * V)]));
    for (const std::string name : {"dq", "dk", "dg", "dbeta"}) {
      INFO(name);
      const auto others = [&](const Array& values) {
        return out_of_reach(values, 150, 37, 150, 0);
      };
      CHECK(others(out.at(name)) == others(clean.at(name)));
    }
  }
}

}  // namespace
