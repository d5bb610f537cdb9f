// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda_recurrent through lathe.h on the simulator, under every check: a table of
// options against the token recurrence in double, and the properties that must hold bit for bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/numbers.h"
#include "tests/ops/kda/case.h"

namespace {

using namespace apitest;
using ref::Array;

Outputs check_case(const KdaCase& kda, const KdaInputs& inputs) {
  INFO(kda.text());
  const Outputs actual = run_kda_recurrent(kda, inputs);
  check_kda_recurrent(kda, inputs, actual);
  return actual;
}

// Few kernels, many calls: what a number of the table turns on is spread by its digits.
std::vector<KdaCase> generated() {
  constexpr lathe_dtype kTypes[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
  constexpr int64_t kWidths[] = {32, 60, 128, 8, 100};
  std::vector<KdaCase> cases;
  for (int kernel = 0; kernel < 14; ++kernel) {
    KdaCase kda;
    kda.element = kTypes[kernel % 3], kda.gate_dtype = kTypes[(kernel / 2 + 2) % 3];
    kda.beta_dtype = kTypes[kernel / 3 % 3];
    kda.key_dim = kWidths[kernel % 5], kda.value_dim = kWidths[(3 * kernel + 1) % 5];
    kda.gate = kernel % 4, kda.dt_bias = kda.gate > 0 && kernel % 3 != 0;
    kda.l2norm = kernel % 2 != 0, kda.sigmoid = kernel / 2 % 2 != 0;
    kda.negative = kda.sigmoid && kernel % 3 == 0;
    kda.v_first = kernel / 3 % 2 != 0;
    kda.states = static_cast<KdaCase::States>(kernel % 6);
    kda.index_dtype = kernel % 2 != 0 ? LATHE_I64 : LATHE_I32;
    kda.gap = kernel % 4 == 2 ? 8 : 0;
    kda.scale = kernel % 5 == 4 ? 0.5 : 0;
    const bool packed = kernel / 4 % 2 != 0;
    for (int call = 0; call < 5; ++call) {
      kda.heads = 1 + (kernel + call) % 2, kda.group = 1 + call % 3;
      kda.batch = 1 + call % 3, kda.tokens = call == 3 ? 0 : 1 + 3 * call;
      kda.strong_share = call % 2 != 0 ? 0.1 : 0;
      kda.weakest = call == 4 ? -0.001 : -2;
      const std::vector<int64_t> lists[] = {
          {0, 3}, {0, 0, 1, 6}, {0, 0, 5, 5, 5, 12, 12}, {0, 0}, {0, 9, 10, 21}};
      if (packed) kda.cu_seqlens = lists[call];
      cases.push_back(kda);
    }
  }
  return cases;
}

std::vector<double> part(const std::vector<double>& from, size_t begin, size_t end) {
  return {from.begin() + static_cast<std::ptrdiff_t>(begin),
          from.begin() + static_cast<std::ptrdiff_t>(end)};
}

TEST_CASE("kda_recurrent: all options, generated, against the recurrence in double") {
  uint64_t seed = 1;
  for (const KdaCase& kda : generated()) check_case(kda, make_kda_inputs(kda, seed++));
}

TEST_CASE("kda_recurrent: slots that are read elsewhere, not at all, not written or padding") {
  uint64_t seed = 1;
  for (const bool columns : {false, true}) {
    for (const bool packed : {false, true}) {
      KdaCase kda;
      kda.states = columns ? KdaCase::columns : KdaCase::pool;
      kda.element = LATHE_F32, kda.key_dim = 32, kda.value_dim = 60, kda.batch = 5, kda.tokens = 3;
      kda.index_dtype = packed ? LATHE_I64 : LATHE_I32;
      if (packed) kda.cu_seqlens = {0, 2, 2, 7, 7, 8};
      for (kda.slot_options = 0; kda.slot_options < 16; ++kda.slot_options) {
        check_case(kda, make_kda_inputs(kda, seed++));
        KdaCase none = kda;  // states go from their sources to their slots
        none.tokens = 0;
        if (packed) none.cu_seqlens.assign(6, 0);
        check_case(none, make_kda_inputs(none, seed++));
      }
    }
  }
}

TEST_CASE("kda_recurrent: pools of 16 bits are float32 within a call, rounded where written") {
  uint64_t seed = 50;
  for (const lathe_dtype type : {LATHE_BF16, LATHE_F16}) {
    for (const KdaCase::States states : {KdaCase::pool, KdaCase::columns}) {
      KdaCase kda;
      kda.states = states, kda.element = LATHE_F32, kda.value_dim = 60, kda.group = 2;
      kda.cu_seqlens = {0, 2, 2, 7, 8}, kda.pool_dtype = type;
      for (const int options : {0, 1, 2, 4, 8, 7}) {
        kda.slot_options = options, kda.gap = options % 2 != 0 ? 8 : 0;
        kda.v_first = options > 3;
        const KdaInputs inputs = make_kda_inputs(kda, seed++);
        const Outputs narrow = check_case(kda, inputs);
        KdaCase wide = kda;
        wide.pool_dtype = LATHE_F32;
        const Outputs exact = run_kda_recurrent(wide, inputs);
        CHECK(narrow.at("o") == exact.at("o"));
        Array rounded = exact.at("state_pool");
        for (double& value : rounded) value = numbers::rounded(type, value);
        CHECK(narrow.at("state_pool") == rounded);
      }
    }
  }
}

// Calls over a pool whose states have records behind them, one after another.
class Rings {
 public:
  static constexpr int64_t kLength = 5;

  Rings(const KdaCase& kda, const KdaInputs& whole) : kda_(kda), whole_(whole) {
    const auto fill = [this](const char* name, lathe_dtype dtype, std::vector<int64_t> shape) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      // Records that do not count are not read.
      rings_[name] = {dtype, shape, Array(static_cast<size_t>(count), std::nan(""))};
    };
    const int64_t slots = whole.pool.slots, heads = kda.value_heads();
    fill("ring_k", kda.element, {slots, kLength, kda.heads, kda.key_dim});
    fill("ring_u", LATHE_F32, {slots, kLength, heads, kda.value_dim});
    fill("ring_g", LATHE_F32, {slots, kLength, heads, kda.key_dim});
    fill("ring_count", LATHE_I32, {slots});
    for (double& count : rings_["ring_count"].values) count = 0;
    states_ = whole.pool.states;
  }

  // Runs tokens [from, to) and returns o.
  Array run(int64_t from, int64_t to, bool append = true) {
    KdaCase shorter = kda_;
    shorter.tokens = to - from;
    KdaInputs piece = kda_slice(whole_, from, to);
    piece.pool = whole_.pool;
    piece.pool.states = states_;
    Call call = kda_recurrent_call(shorter, piece);
    for (const auto& [name, ring] : rings_) {
      call.put(name.c_str(), ring.dtype, ring.shape, ring.values);
      call.tensors.at(name).changed = true;
    }
    if (!append) call.set("append", int64_t{0});
    Outputs out = run_kda_call(shorter, call);
    for (auto& [name, ring] : rings_) ring.values = out.at(name);
    states_ = out.at("state_pool");
    return out.at("o");
  }
  double& count() { return rings_["ring_count"].values[static_cast<size_t>(slot())]; }
  bool has_folded() const { return states_ != whole_.pool.states; }

 private:
  struct Ring {
    lathe_dtype dtype;
    std::vector<int64_t> shape;
    Array values;
  };
  int64_t slot() const { return whole_.pool.indices[0]; }

  const KdaCase& kda_;
  const KdaInputs& whole_;
  std::map<std::string, Ring> rings_;
  Array states_;
};

TEST_CASE("kda_recurrent: records of tokens are the recurrence, bit for bit, folded or not") {
  KdaCase kda;
  kda.states = KdaCase::pool, kda.element = LATHE_F32, kda.value_dim = 60;
  kda.heads = 2, kda.group = 2, kda.tokens = 12, kda.l2norm = true;
  for (const auto& [key_dim, gate] : {std::pair(32, 0), {100, 1}, {8, 2}}) {
    kda.key_dim = key_dim, kda.gate = gate, kda.dt_bias = gate > 0;
    CAPTURE(key_dim);
    const KdaInputs whole = make_kda_inputs(kda);
    const Outputs once = check_case(kda, whole);
    Rings rings(kda, whole);
    Array o;
    const auto run = [&](int64_t from, int64_t to) {
      const Array piece = rings.run(from, to);
      o.insert(o.end(), piece.begin(), piece.end());
    };
    run(0, 2), run(2, 5);  // the records are full
    CHECK(rings.count() == 5);
    CHECK_FALSE(rings.has_folded());
    run(5, 6);
    CHECK(rings.count() == 1);
    CHECK(rings.has_folded());
    // Three drafts, of which the caller accepts one.
    const Array drafts = rings.run(6, 9, false);
    CHECK(rings.count() == 1);
    rings.count() += 1;
    const auto token = std::ssize(drafts) / 3;
    o.insert(o.end(), drafts.begin(), drafts.begin() + token);
    run(7, 12);  // all that a slot has room for
    CHECK(rings.count() == 5);
    CHECK(o == once.at("o"));
  }
}

TEST_CASE("kda_recurrent: a state handed from call to call is one call, bit for bit") {
  KdaCase kda;
  kda.heads = 2, kda.tokens = 11;
  const KdaInputs whole = make_kda_inputs(kda);
  const Outputs once = check_case(kda, whole);
  for (const int64_t cut : {1, 4, 7}) {
    Array o, state = whole.kda.initial_state;
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>(0, cut), {cut, 11}}) {
      KdaCase shorter = kda;
      shorter.tokens = to - from;
      KdaInputs piece = kda_slice(whole, from, to);
      piece.kda.initial_state = state;
      const Outputs out = run_kda_recurrent(shorter, piece);
      o.insert(o.end(), out.at("o").begin(), out.at("o").end());
      state = out.at("final_state");
    }
    CHECK(o == once.at("o"));
    CHECK(state == once.at("final_state"));
  }
}

TEST_CASE("kda_recurrent: packed equals rows of a batch, and layouts are only layouts") {
  KdaCase rows;
  rows.batch = 3, rows.tokens = 5, rows.value_dim = 60;
  const KdaInputs inputs = make_kda_inputs(rows);
  const Outputs expected = check_case(rows, inputs);
  KdaCase packed = rows;
  packed.cu_seqlens = {0, 5, 10, 15};
  CHECK(run_kda_recurrent(packed, inputs) == expected);
  KdaCase turned = rows;
  turned.v_first = true;
  KdaInputs other = inputs;
  other.kda.state_v_first = true;
  for (int64_t n = 0; n < 3; ++n) {
    ref::kda_store(other.kda, ref::kda_load(inputs.kda, inputs.kda.initial_state, n, 0), n, 0,
                   &other.kda.initial_state);
  }
  const Outputs out = run_kda_recurrent(turned, other);
  CHECK(out.at("o") == expected.at("o"));
  for (int64_t n = 0; n < 3; ++n) {
    CHECK(ref::kda_load(other.kda, out.at("final_state"), n, 0) ==
          ref::kda_load(inputs.kda, expected.at("final_state"), n, 0));
  }
}

TEST_CASE("kda_recurrent: what comes later, or is another's, changes nothing, even NaN") {
  KdaCase kda;
  kda.group = 2, kda.l2norm = kda.sigmoid = true;
  kda.gate = 3, kda.dt_bias = true;
  kda.cu_seqlens = {0, 9, 15};
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs clean = check_case(kda, inputs);
  KdaInputs spoilt = inputs;
  for (auto member : {&ref::Kda::q, &ref::Kda::k, &ref::Kda::v, &ref::Kda::g, &ref::Kda::beta}) {
    auto& values = spoilt.kda.*member;
    const size_t row = values.size() / 15;
    std::fill(values.begin() + static_cast<std::ptrdiff_t>(5 * row),
              values.begin() + static_cast<std::ptrdiff_t>(9 * row), NAN);
  }
  const Outputs out = run_kda_recurrent(kda, spoilt);
  const size_t row = clean.at("o").size() / 15;
  CHECK(part(out.at("o"), 0, 5 * row) == part(clean.at("o"), 0, 5 * row));
  CHECK(part(out.at("o"), 9 * row, 15 * row) == part(clean.at("o"), 9 * row, 15 * row));
  CHECK(std::isnan(out.at("o")[5 * row]));
  const size_t state = clean.at("final_state").size() / 2;
  CHECK(part(out.at("final_state"), state, 2 * state) ==
        part(clean.at("final_state"), state, 2 * state));
}

TEST_CASE("kda_recurrent: one key for ever, no decay or hardly any, and rows of zeros") {
  KdaCase kda;
  kda.element = kda.beta_dtype = LATHE_F32;
  kda.key_dim = kda.value_dim = 8;
  kda.tokens = 700;
  kda.l2norm = true;
  for (const double g : {0.0, -3e-5}) {
    for (const double beta : {2.0, 0.9997}) {
      KdaInputs inputs = make_kda_inputs(kda);
      for (size_t i = 8; i < inputs.kda.k.size(); ++i) inputs.kda.k[i] = inputs.kda.k[i % 8];
      const double rounded = static_cast<float>(g);
      std::fill(inputs.kda.g.begin(), inputs.kda.g.end(), rounded);
      std::fill(inputs.kda.beta.begin(), inputs.kda.beta.end(), static_cast<float>(beta));
      INFO("g " << g << " beta " << beta);
      const Outputs out = run_kda_recurrent(kda, inputs);
      for (const auto& [name, values] : kda_recurrent_reference(kda, inputs)) {
        check_rms(name, out.at(name), values, 1e-4, 0);
      }
    }
  }
  kda.tokens = 3;
  KdaInputs inputs = make_kda_inputs(kda);
  std::fill(inputs.kda.k.begin(), inputs.kda.k.end(), 0.0);
  std::fill(inputs.kda.q.begin(), inputs.kda.q.begin() + 8, 0.0);
  check_case(kda, inputs);
}

}  // namespace
