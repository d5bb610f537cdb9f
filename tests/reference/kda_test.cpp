// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the reference itself: its gradients against central differences of its forward,
// cases worked by hand, and the rules of the pool.
#include "reference/kda.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "reference/kda_backward.h"
#include "tests/reference/differences.h"

namespace {

using ref::Array;

// Two heads of two value heads each, K != V; sequences of 0, 3, 0, 1 and 5 tokens.
ref::Kda draw(uint64_t seed, int option) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](int64_t count, double size = 1, double shift = 0) {
    Array values(static_cast<size_t>(count));
    for (double& value : values) value = size * normal(random) + shift;
    return values;
  };
  ref::Kda a;
  a.heads = 2, a.value_heads = 4, a.key_dim = 3, a.value_dim = 2;
  a.begin = {0, 0, 3, 3, 4, 9};
  a.scale = 0.7;
  a.l2norm = option & 1;
  a.sigmoid = option & 2;
  a.negative_eigenvalues = a.sigmoid && (option & 4);
  a.state_v_first = option & 8;
  const int gate = option / 16 % 4;  // given, A, B, B without A_log
  a.gate = gate > 0;
  a.lower_bound = gate > 1 ? -3.0 : 0.0;
  const int64_t rows = a.rows();
  a.q = fill(rows * 6), a.k = fill(rows * 6, 0.6), a.v = fill(rows * 8);
  a.g = a.gate ? fill(rows * 12) : fill(rows * 12, 0.3, -0.8);
  a.beta = a.sigmoid ? fill(rows * 4) : fill(rows * 4, 0.2, 0.5);
  if (gate == 1 || gate == 2) a.A_log = fill(4, 0.5);
  if (a.gate && (option & 2)) a.dt_bias = fill(12, 0.5);
  if (!(option & 1)) a.initial_state = fill(5 * 4 * 6);
  a.d_o = fill(rows * 8);
  if (!(option & 4)) a.dht = fill(5 * 4 * 6);
  return a;
}

// Returns the value whose gradients the tests take.
double loss(const ref::Kda& a) {
  const auto forward = ref::kda_forward(a);
  return ref_test::inner(forward.o, a.d_o) + ref_test::inner(forward.final_state, a.dht);
}

void check_gradient(const char* name, const ref::Kda& problem, ref::Array ref::Kda::*input,
                    const ref::Array& gradient) {
  if ((problem.*input).empty()) return;
  ref_test::check_gradient(name, problem, input, gradient, loss, 1e-8);
}

// One sequence, one head, K = V = 1, where everything is a product of scalars.
ref::Kda scalar(Array q, Array k, Array v, Array g, Array beta) {
  ref::Kda a;
  a.begin = {0, static_cast<int64_t>(q.size())};
  a.q = std::move(q), a.k = std::move(k), a.v = std::move(v);
  a.g = std::move(g), a.beta = std::move(beta);
  return a;
}

TEST_CASE("kda: every gradient is that of the forward, for all transforms") {
  for (int option = 0; option < 64; ++option) {
    CAPTURE(option);
    const ref::Kda a = draw(static_cast<uint64_t>(option) + 1, option);
    const ref::KdaBackward gradient = ref::kda_backward(a);
    check_gradient("q", a, &ref::Kda::q, gradient.dq);
    check_gradient("k", a, &ref::Kda::k, gradient.dk);
    check_gradient("v", a, &ref::Kda::v, gradient.dv);
    check_gradient("g", a, &ref::Kda::g, gradient.dg);
    check_gradient("beta", a, &ref::Kda::beta, gradient.dbeta);
    check_gradient("A_log", a, &ref::Kda::A_log, gradient.dA_log);
    check_gradient("dt_bias", a, &ref::Kda::dt_bias, gradient.ddt_bias);
    check_gradient("initial_state", a, &ref::Kda::initial_state, gradient.dinitial_state);
  }
}

TEST_CASE("kda: decay first, then the delta rule, then the output") {
  // S: 2 exp(-ln 2) = 1, + 0.5 * 2 * (7 - 1 * 2) = 6; o = 3 * 6. Then 6 / 4 = 1.5, beta 0 leaves
  // it.
  ref::Kda a = scalar({3, -2}, {2, 5}, {7, 9}, {-std::log(2), -std::log(4)}, {0.5, 0});
  a.initial_state = {2};
  const auto forward = ref::kda_forward(a);
  CHECK(forward.o[0] == doctest::Approx(18).epsilon(1e-14));
  CHECK(forward.o[1] == doctest::Approx(-3).epsilon(1e-14));
  CHECK(forward.final_state[0] == doctest::Approx(1.5).epsilon(1e-14));
  CHECK(forward.chunk_states == Array{2});
}

TEST_CASE("kda: the transforms at their ends") {
  ref::Kda a = scalar({1}, {1}, {1}, {1000}, {0});
  a.gate = true;
  CHECK(ref::kda_gate(a, 0, 0, 0) == -1000);  // softplus is the identity there
  a.g = {-50};
  CHECK(ref::kda_gate(a, 0, 0, 0) == doctest::Approx(-std::exp(-50)).epsilon(1e-14));
  a.lower_bound = -5;
  CHECK(ref::kda_gate(a, 0, 0, 0) == doctest::Approx(-5 * std::exp(-50)).epsilon(1e-14));
  a.A_log = {std::log(2)};
  a.g = {0.5}, a.dt_bias = {-0.5};
  CHECK(ref::kda_gate(a, 0, 0, 0) == -2.5);
  a.sigmoid = a.negative_eigenvalues = true;
  CHECK(ref::kda_beta(a, 0, 0) == 1);
  a.l2norm = true;
  a.k = {0};
  CHECK(ref::kda_token(a, 0, 0).k[0] == 0);
  a.d_o = {1};
  CHECK(ref::kda_backward(a).dk[0] == doctest::Approx(1e3));  // x / sqrt(x^2 + 1e-6) at 0
}

TEST_CASE("kda: an empty sequence hands its state through, and chunk states begin each chunk") {
  ref::Kda a = draw(9, 0);
  a.chunk = 2;
  const auto forward = ref::kda_forward(a);
  for (const int64_t n : {0, 2}) {
    for (int64_t i = n * 24; i < (n + 1) * 24; ++i) {
      CHECK(forward.final_state[i] == a.initial_state[i]);
      CHECK(ref::kda_backward(a).dinitial_state[i] == a.dht[i]);
    }
  }
  CHECK(forward.chunk_states.size() == (2 + 1 + 3) * 24);
  // Chunk 4 is the second of the last sequence: its state is the final one of two tokens.
  ref::Kda part = a;
  part.begin = {4, 6};
  part.initial_state.assign(a.initial_state.begin() + 4 * 24, a.initial_state.end());
  const auto early = ref::kda_forward(part).final_state;
  for (size_t i = 0; i < 24; ++i) CHECK(forward.chunk_states[4 * 24 + i] == early[i]);
}

TEST_CASE("kda: states by value first are the same states, transposed") {
  ref::Kda a = draw(3, 0), b = a;
  b.state_v_first = true;
  for (int64_t i = 0; i < 5 * 4 * 6; ++i) {
    b.initial_state[b.state_at(i / 24, i / 6 % 4, i / 2 % 3, i % 2)] = a.initial_state[i];
    b.dht[b.state_at(i / 24, i / 6 % 4, i / 2 % 3, i % 2)] = a.dht[i];
  }
  CHECK(ref::kda_forward(a).o == ref::kda_forward(b).o);
  CHECK(ref::kda_backward(a).dk == ref::kda_backward(b).dk);
}

TEST_CASE("kda: the pool is read at the accepted column and written at each token's") {
  ref::Kda a = draw(5, 0);
  const Array start = a.initial_state;
  a.begin = {0, 3, 3, 4, 9, 9};
  ref::KdaPool pool;
  pool.slots = 5;
  pool.states = start;
  // One slot for each sequence: the final state, and nothing for padding or an empty sequence.
  pool.indices = {4, 0, -1, 2, 7};
  Array o = ref::kda_pool_forward(a, &pool);
  a.initial_state.assign(start.begin() + 4 * 24, start.end());
  a.begin = {0, 3};
  const auto first = ref::kda_forward(a);
  for (size_t i = 0; i < 24; ++i) {
    CHECK(pool.states[4 * 24 + i] == first.final_state[i]);
    CHECK(pool.states[i] == start[i]);
    CHECK(pool.states[24 + i] == start[24 + i]);
    CHECK(pool.states[2 * 24 + i] != start[2 * 24 + i]);
    CHECK(o[i] == first.o[i]);
  }
  for (size_t i = 24; i < 32; ++i) CHECK(o[i] == 0);  // the token of the padding
  // Columns: start from the second, write the states after the first, second and third token.
  pool.columns = 4;
  pool.indices = {3, 0, -1, 2};
  pool.accepted = {2};
  pool.states = start;
  a.initial_state.assign(start.begin(), start.begin() + 24);
  o = ref::kda_pool_forward(a, &pool);
  CHECK(std::equal(o.begin(), o.begin() + 24, ref::kda_forward(a).o.begin()));
  a.begin = {0, 1};
  const auto one = ref::kda_forward(a);
  a.begin = {0, 2};
  const auto two = ref::kda_forward(a);
  for (size_t i = 0; i < 24; ++i) {
    CHECK(pool.states[3 * 24 + i] == one.final_state[i]);
    CHECK(pool.states[i] == two.final_state[i]);
    CHECK(pool.states[2 * 24 + i] == start[2 * 24 + i]);
  }
  pool.accepted = {5};
  CHECK(pool.start(0) == -1);
  pool.accepted = {0};
  CHECK(pool.start(0) == -1);
}

}  // namespace
