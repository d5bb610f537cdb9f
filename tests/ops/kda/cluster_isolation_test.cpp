// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Results of kda's segments by clusters depend on no later token, no other value, sequence, head or
// run, be it NaN, bit for bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/kda/cluster_case.h"

namespace {

using namespace apitest;
using ref::Array;

// Everything made in the kernel, of widths that end within its panels.
KdaCase isolated(int segments) {
  KdaCase kda = cluster_case(0, segments);
  kda.key_dim = 72, kda.value_dim = 80;
  kda.gate = 3;
  kda.dt_bias = kda.l2norm = kda.sigmoid = true;
  return kda;
}

Array rows_of(const Array& values, int64_t rows, int64_t from, int64_t to) {
  const auto row = std::ssize(values) / rows;
  return {values.begin() + from * row, values.begin() + to * row};
}
void spoil_rows(Array* values, int64_t rows, int64_t from, int64_t to) {
  const auto row = std::ssize(*values) / rows;
  std::fill(values->begin() + from * row, values->begin() + to * row, NAN);
}

// Returns every value but those where number i % cycle is in [from, to).
Array without(const Array& values, int64_t cycle, int64_t from, int64_t to) {
  Array out;
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    if (i % cycle < from || i % cycle >= to) out.push_back(values[static_cast<size_t>(i)]);
  }
  return out;
}
void spoil(Array* values, int64_t cycle, int64_t from, int64_t to) {
  for (int64_t i = 0; i < std::ssize(*values); ++i) {
    if (i % cycle >= from && i % cycle < to) (*values)[static_cast<size_t>(i)] = NAN;
  }
}

// Five segments of 128 tokens, of which the last one that has any has 74.
FAMILY_CASE("sm90", "kda: in a cluster a token of NaN changes nothing before it") {
  KdaCase kda = isolated(5);
  kda.tokens = 330, kda.group = 2;
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs clean = run_cluster(kda, inputs);
  int which = 0;
  for (const int64_t token : {329, 272, 256, 255, 192, 144, 129, 128, 127, 64, 63, 1}) {
    KdaInputs spoilt = inputs;
    for (int i = 0; i < 5; ++i) {
      if (which % 6 == 5 || which % 6 == i) {
        spoil_rows(&(spoilt.kda.*kPerToken[i]), 330, token, token + 1);
      }
    }
    INFO("token " << token << " input " << which % 6);
    const Outputs out = run_cluster(kda, spoilt);
    CHECK(rows_of(out.at("o"), 330, 0, token) == rows_of(clean.at("o"), 330, 0, token));
    CHECK(std::isnan(out.at("o")[static_cast<size_t>(token * 2 * 80)]));
    // Queries reach no state, and what another input spoils is there to the end.
    if (which % 6 == 0) CHECK(out.at("final_state") == clean.at("final_state"));
    if (which % 6 != 0) CHECK(std::isnan(out.at("o").back()));
    ++which;
  }
}

// Rows of the states that pass from block to block are one value's each.
FAMILY_CASE("sm90", "kda: in a cluster a value of NaN changes no other") {
  for (const int segments : {3, 6}) {
    KdaCase kda = isolated(segments);
    kda.tokens = 6 * 64;
    const KdaInputs inputs = make_kda_inputs(kda);
    const Outputs clean = run_cluster(kda, inputs);
    for (const int64_t value : {0, 15, 31, 32, 64, 79}) {
      KdaInputs spoilt = inputs;
      Array& v = spoilt.kda.v;
      v[static_cast<size_t>(3 * 80 + value)] = NAN;  // of token 3
      const Outputs out = run_cluster(kda, spoilt);
      INFO("value " << value);
      for (const char* name : {"o", "final_state"}) {
        CHECK(without(out.at(name), 80, value, value + 1) ==
              without(clean.at(name), 80, value, value + 1));
      }
      CHECK(std::isnan(out.at("o")[static_cast<size_t>(383 * 80 + value)]));
    }
  }
}

FAMILY_CASE("sm90", "kda: in clusters a sequence of NaN, and padding of NaN, change no other") {
  KdaCase kda = isolated(4);
  kda.cu_seqlens = {0, 40, 40, 307, 500, 640};
  kda.padding = 30;
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs clean = run_cluster(kda, inputs);
  for (const int64_t n : {0, 2, 3, 4}) {
    KdaInputs spoilt = inputs;
    const int64_t from = kda.cu_seqlens[n], to = kda.cu_seqlens[n + 1];
    for (int i = 0; i < 5; ++i) spoil_rows(&(spoilt.kda.*kPerToken[i]), 670, from, to);
    spoil_rows(&spoilt.kda.initial_state, 5, n, n + 1);
    const Outputs out = run_cluster(kda, spoilt);
    INFO("sequence " << n);
    const auto width = std::ssize(clean.at("o")) / 670;
    for (const int64_t end : {0, 1}) {
      const int64_t rows = end == 0 ? from : 670, first = end == 0 ? 0 : to;
      CHECK(rows_of(out.at("o"), 670, first, rows) == rows_of(clean.at("o"), 670, first, rows));
    }
    CHECK(without(out.at("final_state"), 5 * 72 * 80, n * 72 * 80, (n + 1) * 72 * 80) ==
          without(clean.at("final_state"), 5 * 72 * 80, n * 72 * 80, (n + 1) * 72 * 80));
    CHECK(std::isnan(out.at("o")[static_cast<size_t>(from * width)]));
  }
}

FAMILY_CASE("sm90", "kda: in clusters a head of NaN changes no other") {
  KdaCase kda = isolated(3);
  kda.tokens = 200, kda.heads = 2;
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs clean = run_cluster(kda, inputs);
  KdaInputs spoilt = inputs;
  ref::Kda& a = spoilt.kda;
  for (Array* each : {&a.q, &a.k, &a.g, &a.dt_bias}) spoil(each, 2 * 72, 72, 2 * 72);
  spoil(&a.v, 2 * 80, 80, 2 * 80);
  spoil(&a.beta, 2, 1, 2), spoil(&a.A_log, 2, 1, 2);
  spoil(&a.initial_state, 2 * 72 * 80, 72 * 80, 2 * 72 * 80);
  const Outputs out = run_cluster(kda, spoilt);
  CHECK(without(out.at("o"), 160, 80, 160) == without(clean.at("o"), 160, 80, 160));
  CHECK(without(out.at("final_state"), 2 * 72 * 80, 72 * 80, 2 * 72 * 80) ==
        without(clean.at("final_state"), 2 * 72 * 80, 72 * 80, 2 * 72 * 80));
  CHECK(std::isnan(out.at("o")[80]));
}

// The workspace is filled with poison between runs. Lengths of the second run have other segments
// without tokens.
FAMILY_CASE("sm90", "kda: runs of one plan leave nothing behind for the next") {
  for (const bool pool : {false, true}) {
    KdaCase kda = isolated(5);
    kda.cu_seqlens = {0, 500, 560, 640};
    if (pool) kda.states = KdaCase::pool;
    PlannedCall planned(shared_context(), kda_call(kda, make_kda_inputs(kda)));
    planned.run();
    const Outputs first = planned.outputs();
    check_kda(kda, make_kda_inputs(kda), first);
    kda.cu_seqlens = {0, 0, 65, 640};
    planned.upload("cu_seqlens", {0, 0, 65, 640});
    planned.run();
    KdaInputs inputs = make_kda_inputs(kda);
    CHECK(planned.outputs() == run_cluster(kda, inputs));
    check_kda(kda, inputs, planned.outputs());
    planned.upload("cu_seqlens", {0, 500, 560, 640});
    planned.run();
    CHECK(planned.outputs() == first);
  }
}

}  // namespace
