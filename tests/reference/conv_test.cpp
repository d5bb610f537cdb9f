// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the reference itself: its backward against central differences of its forward,
// its update against its forward, and a case worked by hand.
#include "reference/conv.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/reference/differences.h"

namespace {

ref::Array draw(std::mt19937_64& random, int64_t count) {
  std::normal_distribution<double> normal;
  ref::Array values(static_cast<size_t>(count));
  for (double& value : values) value = normal(random);
  return values;
}

ref::Conv draw_conv(std::mt19937_64& random, int64_t width, bool silu, bool options) {
  ref::Conv conv;
  conv.channels = 2;
  conv.width = width;
  conv.begin = {0, 5, 5, 6, 6 + width, 17 + width};  // one empty, one of a token, one of W
  conv.silu = silu;
  const int64_t states = conv.sequences() * conv.channels * width;
  conv.x = draw(random, conv.rows() * conv.channels);
  conv.dy = draw(random, conv.rows() * conv.channels);
  conv.weight = draw(random, conv.channels * width);
  if (options) {
    conv.bias = draw(random, conv.channels);
    conv.residual = draw(random, conv.rows() * conv.channels);
    conv.initial_state = draw(random, states);
    conv.dfinal_state = draw(random, states);
  }
  return conv;
}

// Returns the value whose gradients the tests take.
double loss(const ref::Conv& conv) {
  const auto out = ref::conv_forward(conv);
  return ref_test::inner(out.y, conv.dy) + ref_test::inner(out.final_state, conv.dfinal_state);
}

void check_gradient(const char* name, const ref::Conv& problem, ref::Array ref::Conv::*input,
                    const ref::Array& gradient) {
  ref_test::check_gradient(name, problem, input, gradient, loss);
}

TEST_CASE("ref: gradients are those of the forward") {
  std::mt19937_64 random(3);
  for (int64_t width : {2, 3, 4, 8}) {
    for (bool silu : {false, true}) {
      for (bool options : {false, true}) {
        CAPTURE(width);
        CAPTURE(silu);
        CAPTURE(options);
        const auto conv = draw_conv(random, width, silu, options);
        const auto out = ref::conv_backward(conv);
        check_gradient("dx", conv, &ref::Conv::x, out.dx);
        check_gradient("dweight", conv, &ref::Conv::weight, out.dweight);
        if (!options) continue;
        check_gradient("dbias", conv, &ref::Conv::bias, out.dbias);
        check_gradient("dresidual", conv, &ref::Conv::residual, out.dresidual);
        check_gradient("dinitial_state", conv, &ref::Conv::initial_state, out.dinitial_state);
      }
    }
  }
}

TEST_CASE("ref: a case worked by hand") {
  ref::Conv conv;
  conv.channels = 1;
  conv.width = 3;
  conv.begin = {0, 2, 2};
  conv.x = {5, 7};
  conv.weight = {100, 10, 1};
  conv.bias = {0.5};
  conv.residual = {1000, 2000};
  conv.initial_state = {1, 2, 3, /* second sequence, empty */ 4, 5, 6};
  const auto out = ref::conv_forward(conv);
  CHECK(out.y == ref::Array{1000 + 0.5 + 200 + 30 + 5, 2000 + 0.5 + 300 + 50 + 7});
  CHECK(out.final_state == ref::Array{3, 5, 7, 4, 5, 6});
  conv.dy = {1, 1};
  conv.dfinal_state = {0.25, 0, 0, 8, 0, 0};
  const auto back = ref::conv_backward(conv);
  CHECK(back.dx == ref::Array{1 + 10, 1});
  CHECK(back.dinitial_state == ref::Array{0, 100, 10 + 100 + 0.25, 8, 0, 0});
  CHECK(back.dweight == ref::Array{2 + 3, 3 + 5, 5 + 7});
  CHECK(back.dbias == ref::Array{2});
}

TEST_CASE("ref: update, token by token, is the forward") {
  std::mt19937_64 random(4);
  for (int64_t width = 2; width <= 8; ++width) {
    CAPTURE(width);
    auto conv = draw_conv(random, width, true, true);
    conv.begin = {0, conv.rows()};
    conv.initial_state = draw(random, conv.channels * width);
    const auto expected = ref::conv_forward(conv);
    ref::Conv step = conv;
    ref::Array state = conv.initial_state;
    for (int64_t t = 0; t < conv.rows(); ++t) {
      const auto row = [&](const ref::Array& all) {
        return ref::Array(all.begin() + t * conv.channels, all.begin() + (t + 1) * conv.channels);
      };
      step.x = row(conv.x);
      step.residual = row(conv.residual);
      const auto out = ref::conv_update(step, state);
      CHECK(out.y == row(expected.y));
      state = out.state;
    }
    CHECK(state == expected.final_state);
  }
}

}  // namespace
