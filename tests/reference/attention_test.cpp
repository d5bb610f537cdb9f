// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the reference itself: its backward against central differences of its forward,
// cases worked by hand, and the plain computation against it.
#include "reference/attention.h"

#include <doctest/doctest.h>

#include <random>

#include "reference/attention_plain.h"
#include "tests/numbers.h"
#include "tests/reference/differences.h"

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double as_float(double value) { return numbers::rounded(LATHE_F32, value); }
double as_bf16(double value) { return numbers::rounded(LATHE_BF16, value); }
double as_f16(double value) { return numbers::rounded(LATHE_F16, value); }

struct Options {
  double softcap = 0;
  bool causal = false;
  int64_t left = -1, right = -1;
  int slopes = 0;  // 1: [H], 2: [N, H]
  bool sinks = false, dlse = false;
};

// Two key heads of two query heads; sequences with more rows than keys, with fewer, and without
// either.
ref::Attention draw(uint64_t seed, const Options& options, ref::Round round) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](int64_t count) {
    ref::Array values(static_cast<size_t>(count));
    for (double& value : values) value = round(normal(random));
    return values;
  };
  ref::Attention a;
  a.heads = 4, a.kv_heads = 2, a.head_dim = 3, a.value_dim = 2;
  a.begin_q = {0, 0, 3, 7, 8, 13};
  a.begin_k = {0, 2, 7, 7, 8, 10};
  a.scale = 0.7, a.softcap = options.softcap;
  a.causal = options.causal, a.window_left = options.left, a.window_right = options.right;
  a.q = fill(13 * 4 * 3), a.k = fill(10 * 2 * 3), a.v = fill(10 * 2 * 2);
  a.dout = fill(13 * 4 * 2);
  if (options.slopes > 0) a.alibi_slopes = fill(options.slopes == 1 ? 4 : 5 * 4);
  if (options.sinks) {
    a.sinks = fill(4);
    a.sinks[1] = -ref::kInfinity;
  }
  if (options.dlse) a.dlse = fill(13 * 4);
  return a;
}

std::vector<Options> all_options() {
  std::vector<Options> all;
  for (const double softcap : {0.0, 1.5}) {
    for (const int slopes : {0, 1, 2}) {
      for (const bool extras : {false, true}) {
        all.push_back({softcap, false, -1, -1, slopes, extras, extras});
        all.push_back({softcap, true, -1, 7, slopes, extras, !extras});
        all.push_back({softcap, true, 1, -1, slopes, !extras, extras});
        all.push_back({softcap, false, 1, 0, slopes, extras, extras});
        all.push_back({softcap, false, -1, 1, slopes, extras, extras});
      }
    }
  }
  return all;
}

// Returns the value whose gradients the tests take.
double loss(const ref::Attention& a) {
  const auto forward = ref::attention_forward(a);
  double sum = ref_test::inner(forward.out, a.dout);
  for (size_t i = 0; i < a.dlse.size(); ++i) {
    if (forward.lse[i] != -ref::kInfinity) sum += forward.lse[i] * a.dlse[i];
  }
  return sum;
}

void check_gradient(const char* name, const ref::Attention& problem,
                    ref::Array ref::Attention::*input, const ref::Array& gradient) {
  ref_test::check_gradient(name, problem, input, gradient, loss);
}

// One sequence, one head of width 1.
ref::Attention single(const ref::Array& q, const ref::Array& k, const ref::Array& v) {
  ref::Attention a;
  a.head_dim = a.value_dim = 1;
  a.begin_q = {0, static_cast<int64_t>(q.size())};
  a.begin_k = {0, static_cast<int64_t>(k.size())};
  a.q = q, a.k = k, a.v = v;
  return a;
}

void check_close(const ref::Array& actual, const ref::Array& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    if (std::isinf(expected[i])) {
      CHECK(actual[i] == expected[i]);
    } else {
      CHECK(std::abs(actual[i] - expected[i]) <= 1e-12);
    }
  }
}

}  // namespace

TEST_CASE("ref attention: gradients are those of the forward") {
  uint64_t seed = 0;
  for (const Options& options : all_options()) {
    CAPTURE(seed);
    ref::Attention a = draw(++seed, options, as_float);
    const auto forward = ref::attention_forward(a);
    for (size_t i = 0; i < a.dlse.size(); ++i) {
      if (forward.lse[i] == -ref::kInfinity) a.dlse[i] = kNan;  // not to be looked at
    }
    const auto backward = ref::attention_backward(a, forward);
    check_gradient("dq", a, &ref::Attention::q, backward.dq);
    check_gradient("dk", a, &ref::Attention::k, backward.dk);
    check_gradient("dv", a, &ref::Attention::v, backward.dv);
    if (!a.sinks.empty()) {
      CHECK(backward.dsinks[1] == 0);  // there is none: -inf, which a step does not move
      check_gradient("dsinks", a, &ref::Attention::sinks, backward.dsinks);
    }
  }
}

TEST_CASE("ref attention: cases worked by hand") {
  const double ln2 = std::log(2.0), ln3 = std::log(3.0);
  ref::Attention a = single({1, 1}, {0, ln3}, {1, 5});
  check_close(ref::attention_forward(a).out, {4, 4});  // weights 1 : 3
  check_close(ref::attention_forward(a).lse, {2 * ln2, 2 * ln2});
  a.causal = true;
  a.window_right = 1;  // causal wins
  check_close(ref::attention_forward(a).out, {1, 4});
  check_close(ref::attention_forward(a).lse, {0, 2 * ln2});
  a.sinks = {2 * ln2};  // weighs 4
  check_close(ref::attention_forward(a).out, {0.2, 2});
  check_close(ref::attention_forward(a).lse, {std::log(5.0), 3 * ln2});

  // More rows than keys: the last row sees the last key, those above keep none.
  a = single({1, 1, 1}, {ln3}, {7});
  a.causal = true;
  check_close(ref::attention_forward(a).out, {0, 0, 7});
  check_close(ref::attention_forward(a).lse, {-ref::kInfinity, -ref::kInfinity, ln3});
  a.sinks = {ln2};
  check_close(ref::attention_forward(a).lse, {ln2, ln2, std::log(5.0)});

  // Windows and ALiBi count from the bottom right: this row stands at key 2.
  a = single({0}, {1, 1, 1}, {100, 10, 1});
  a.window_left = 1;
  check_close(ref::attention_forward(a).out, {5.5});
  a.alibi_slopes = {ln2};
  check_close(ref::attention_forward(a).out, {(10 * 0.5 + 1) / 1.5});
  check_close(ref::attention_forward(a).lse, {std::log(1.5)});

  // The cap comes after the scale, before the bias.
  a = single({8}, {1, 0}, {1, 0});
  a.scale = 0.5, a.softcap = 2;
  check_close(ref::attention_forward(a).lse, {std::log(std::exp(2 * std::tanh(2.0)) + 1)});
  a.alibi_slopes = {1};  // one key away
  check_close(ref::attention_forward(a).lse, {std::log(std::exp(2 * std::tanh(2.0) - 1) + 1)});
}

TEST_CASE("ref attention: slopes are of a head, or of a sequence and a head") {
  ref::Attention a = single({0, 0}, {1, 1, 1, 1}, {3, 0, 3, 0});
  a.begin_q = {0, 1, 2}, a.begin_k = {0, 2, 4};
  const double ln2 = std::log(2.0);
  a.alibi_slopes = {ln2};
  check_close(ref::attention_forward(a).out, {1, 1});
  a.alibi_slopes = {ln2, 0};
  check_close(ref::attention_forward(a).out, {1, 1.5});
}

TEST_CASE("ref attention: query heads read the key head of their group") {
  ref::Attention a;
  a.heads = 4, a.kv_heads = 2, a.head_dim = a.value_dim = 1;
  a.begin_q = a.begin_k = {0, 1};
  a.q = {1, 1, 1, 1}, a.k = {0, 0}, a.v = {3, 5};
  CHECK(ref::attention_forward(a).out == ref::Array{3, 3, 5, 5});
}

TEST_CASE("ref attention: a batch is packed rows with another order of lse") {
  ref::Attention a = draw(5, {}, as_float);
  a.begin_q = {0, 6, 12}, a.begin_k = {0, 5, 10};
  const auto packed = ref::attention_forward(a);
  a.q.resize(12 * 4 * 3);
  a.packed = false;
  const auto batch = ref::attention_forward(a);
  CHECK(ref::Array(packed.out.begin(), packed.out.begin() + 12 * 4 * 2) == batch.out);
  for (int n = 0; n < 2; ++n) {
    for (int h = 0; h < 4; ++h) {
      for (int i = 0; i < 6; ++i) {
        CHECK(batch.lse[(n * 4 + h) * 6 + i] == packed.lse[h * 13 + n * 6 + i]);
      }
    }
  }
}

TEST_CASE("ref attention: rows past the last offset are not read, a bad key reaches its own rows") {
  ref::Attention a = draw(6, {0, true, -1, -1, 1, true, true}, as_float);
  const auto clean = ref::attention_forward(a);
  const auto clean_back = ref::attention_backward(a, clean);
  ref::Attention padded = a;
  padded.q.resize(a.q.size() + 2 * 4 * 3, kNan);
  padded.k.resize(a.k.size() + 3 * 2 * 3, kNan);
  padded.v.resize(a.v.size() + 3 * 2 * 2, kNan);
  padded.dout.resize(a.dout.size() + 2 * 4 * 2, kNan);
  padded.dlse.clear();
  for (int h = 0; h < 4; ++h) {
    for (int i = 0; i < 15; ++i) padded.dlse.push_back(i < 13 ? a.dlse[h * 13 + i] : kNan);
  }
  const auto out = ref::attention_forward(padded);
  const auto back = ref::attention_backward(padded, out);
  ref::Array expected = clean.out;
  expected.resize(out.out.size(), 0.0);
  CHECK(out.out == expected);
  CHECK(out.lse[13] == -ref::kInfinity);
  expected = clean_back.dk;
  expected.resize(back.dk.size(), 0.0);
  CHECK(back.dk == expected);
  expected = clean_back.dq;
  expected.resize(back.dq.size(), 0.0);
  CHECK(back.dq == expected);

  // The first key of the sequence of rows 0 to 2: all of them see it, no others do.
  a.v[2 * 2 * 2] = kNan;
  const auto poisoned = ref::attention_forward(a);
  for (int i = 0; i < 13 * 4 * 2; ++i) {
    const bool reached = i / 8 < 3 && (i / 2) % 4 < 2 && i % 2 == 0;
    CHECK(std::isnan(poisoned.out[i]) == reached);
  }
}

TEST_CASE("ref attention: weights add up to one, whatever the options") {
  uint64_t seed = 100;
  for (Options options : all_options()) {
    options.sinks = false;
    ref::Attention a = draw(++seed, options, as_float);
    std::fill(a.v.begin(), a.v.end(), 1.0);
    const auto forward = ref::attention_forward(a);
    for (size_t row = 0; row < 13; ++row) {
      for (size_t h = 0; h < 4; ++h) {
        const bool empty = forward.lse[h * 13 + row] == -ref::kInfinity;
        CHECK(std::abs(forward.out[(row * 4 + h) * 2] - (empty ? 0 : 1)) <= 1e-14);
      }
    }
  }
}

TEST_CASE("ref attention: the plain computation differs by the rounding of its type") {
  struct Type {
    ref::Round round;
    double bound;
  };
  for (const Type& type : {Type{as_float, 2e-5}, Type{as_f16, 0.04}, Type{as_bf16, 0.3}}) {
    uint64_t seed = 200;
    double worst = 0;
    for (const Options& options : all_options()) {
      CAPTURE(seed);
      const ref::Attention a = draw(++seed, options, type.round);
      const auto forward = ref::attention_forward(a), plain = ref::plain_forward(a, type.round);
      const auto back = ref::attention_backward(a, forward);
      const auto plain_back = ref::plain_backward(a, type.round);
      for (size_t i = 0; i < forward.lse.size(); ++i) {
        CHECK(std::isinf(plain.lse[i]) == std::isinf(forward.lse[i]));
      }
      const std::pair<const ref::Array*, const ref::Array*> pairs[] = {
          {&plain.out, &forward.out}, {&plain.lse, &forward.lse},
          {&plain_back.dq, &back.dq}, {&plain_back.dk, &back.dk},
          {&plain_back.dv, &back.dv}, {&plain_back.dsinks, &back.dsinks},
      };
      for (const auto& [actual, expected] : pairs) {
        REQUIRE(actual->size() == expected->size());
        worst = std::max(worst, ref::largest_error(*actual, *expected));
      }
    }
    CHECK(worst <= type.bound);
    CHECK(worst >= type.bound / 100);  // it does round
  }
}

TEST_CASE("ref attention: the plain computation rounds every step, by hand") {
  const ref::Round quarters = [](double value) { return std::nearbyint(4 * value) / 4; };
  ref::Attention a = single({0.5}, {0.75, 0}, {1, 3});
  a.scale = 0.5, a.alibi_slopes = {0.6};
  // k is 0.375, so 0.5; the score 0.25; the bias -0.6, so -0.5; the weights 0.44 and 0.56, so 0.5.
  const auto plain = ref::plain_forward(a, quarters);
  CHECK(plain.out == ref::Array{2});
  CHECK(plain.lse[0] == doctest::Approx(std::log(1 + std::exp(-0.25))).epsilon(1e-6));
}

TEST_CASE("ref attention: the bound and the cosine difference by hand") {
  // 1.3 is 1.296875 in bf16, and 0.996875 is 0.99609375: 2^-8 is lost.
  CHECK(ref::max2x_bound({1, -ref::kInfinity}, {1.5, -ref::kInfinity}, 2, as_bf16) ==
        doctest::Approx(1 + 0x1p-7).epsilon(1e-12));
  CHECK(ref::max2x_bound({1}, {1.5}, 3, as_bf16, 0.25) ==
        doctest::Approx(1.75 + 0x1p-7).epsilon(1e-12));
  CHECK(ref::largest_error({1, 2, 5}, {1, 2.5, 4}) == 1);
  CHECK(ref::cosine_difference({1, 2}, {1, 2}) == 0);
  CHECK(ref::cosine_difference({1, 0}, {0, 1}) == 1);
  CHECK(ref::cosine_difference({1, 1}, {-1, -1}) == 2);
  CHECK(ref::cosine_difference({0}, {0}) == 0);
}
