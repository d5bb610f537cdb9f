// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the reference of sparse attention: its backward against central differences of
// its forward, both against dense attention over gathered keys, and cases worked by hand.
#include <doctest/doctest.h>

#include <climits>
#include <random>

#include "reference/sparse_plain.h"
#include "tests/numbers.h"
#include "tests/reference/differences.h"

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double exact(double value) { return value; }
double as_bf16(double value) { return numbers::rounded(LATHE_BF16, value); }

struct Options {
  bool causal = false, absolute = false, q_pos = false, sinks = false, rope = true, packed = true;
  int64_t block = 1;
};

std::vector<Options> all_options() {
  std::vector<Options> all;
  for (int bits = 0; bits < 128; ++bits) {
    Options o{(bits & 1) != 0, (bits & 2) != 0,  (bits & 4) != 0,
              (bits & 8) != 0, (bits & 16) != 0, (bits & 32) != 0};
    o.block = (bits & 64) != 0 && !o.absolute ? 2 : 1;
    if (o.q_pos && !o.causal) continue;
    all.push_back(o);
  }
  return all;
}

// Two key heads of two query heads; packed, sequences with more rows than keys, with fewer, without
// either, and two whose keys overlap. Lists have entries of every kind.
ref::SparseAttention draw(uint64_t seed, const Options& o) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](int64_t count) {
    ref::Array values(static_cast<size_t>(count));
    for (double& value : values) value = static_cast<float>(normal(random));
    return values;
  };
  ref::SparseAttention a;
  a.heads = 4, a.kv_heads = 2, a.head_dim = 3, a.value_dim = 2, a.topk = 5;
  a.rope_dim = o.rope ? 2 : 0;
  a.begin_q = {0, 0, 3, 7, 8}, a.begin_k = {0, 2, 5, 9}, a.end_k = {2, 7, 10, 9};
  if (!o.packed) a.begin_q = {0, 4, 8}, a.begin_k = {0, 5}, a.end_k = {5, 10};
  a.packed = o.packed, a.scale = 0.7, a.causal = o.causal, a.absolute = o.absolute;
  a.block = o.block;
  a.q = fill(8 * 4 * 3), a.k = fill(10 * 2 * 3), a.v = fill(10 * 2 * 2), a.dout = fill(8 * 4 * 2);
  a.q_rope = fill(8 * 4 * a.rope_dim), a.k_rope = fill(10 * 2 * a.rope_dim);
  for (int i = 0; i < 8 * 2 * 5; ++i) {
    const int kind = static_cast<int>(random() % 16);
    a.indices.push_back(kind == 0   ? INT_MAX
                        : kind == 1 ? INT_MIN
                                    : static_cast<int>(random() % 12) - 1);
  }
  if (o.q_pos) {
    for (int i = 0; i < 8; ++i) a.q_pos.push_back(static_cast<int>(random() % 7) - 1);
  }
  if (o.sinks) a.sinks = fill(4), a.sinks[1] = -ref::kInfinity;
  return a;
}

double loss(const ref::SparseAttention& a) {
  const auto forward = ref::sparse_forward(a);
  return ref_test::inner(forward.out, a.dout);
}

void check_gradient(const char* name, const ref::SparseAttention& problem,
                    ref::Array ref::SparseAttention::*input, const ref::Array& gradient) {
  ref_test::check_gradient(name, problem, input, gradient, loss);
}

// One row, one head of width 1 with scale 1.
ref::SparseAttention single(const ref::Array& k, const ref::Array& v,
                            const std::vector<int32_t>& list) {
  ref::SparseAttention a;
  a.head_dim = a.value_dim = 1;
  a.begin_q = {0, 1}, a.begin_k = {0}, a.end_k = {static_cast<int64_t>(k.size())};
  a.q = {1}, a.k = k, a.v = v, a.indices = list, a.topk = static_cast<int64_t>(list.size());
  return a;
}

double out_of(const ref::SparseAttention& a) { return ref::sparse_forward(a).out[0]; }
double lse_of(const ref::SparseAttention& a) { return ref::sparse_forward(a).lse[0]; }

// lse of the gathered is [G, rows].
void check_gathered(const ref::SparseAttention& a, int64_t kv_head,
                    const ref::SparseForward& forward) {
  const auto gathered = ref::gather(a, kv_head);
  const auto dense = ref::attention_forward(gathered.attention);
  const size_t group = static_cast<size_t>(a.group()), rows = gathered.row.size() / group;
  for (size_t i = 0; i < gathered.row.size(); ++i) {
    const double found = dense.lse[i % group * rows + i / group];
    const double expected = forward.lse[gathered.lse[i]];
    if (expected == -ref::kInfinity) {
      CHECK(found == expected);
    } else {
      CHECK(std::abs(found - expected) < 1e-12);
      CHECK(std::abs(forward.softmax_max[gathered.statistic[i]] +
                     std::log(forward.softmax_sum[gathered.statistic[i]]) - expected) < 1e-12);
    }
  }
}

}  // namespace

TEST_CASE("ref sparse: gradients are those of the forward") {
  uint64_t seed = 0;
  for (const Options& options : all_options()) {
    CAPTURE(seed);
    const ref::SparseAttention a = draw(++seed, options);
    const auto backward = ref::sparse_backward(a, ref::sparse_forward(a));
    check_gradient("dq", a, &ref::SparseAttention::q, backward.dq);
    check_gradient("dk", a, &ref::SparseAttention::k, backward.dk);
    check_gradient("dv", a, &ref::SparseAttention::v, backward.dv);
    check_gradient("dq_rope", a, &ref::SparseAttention::q_rope, backward.dq_rope);
    check_gradient("dk_rope", a, &ref::SparseAttention::k_rope, backward.dk_rope);
    if (a.sinks.empty()) continue;
    CHECK(backward.dsinks[1] == 0);
    check_gradient("dsinks", a, &ref::SparseAttention::sinks, backward.dsinks);
  }
}

TEST_CASE("ref sparse: equals dense attention over gathered keys; rounded, it differs a little") {
  uint64_t seed = 500;
  double worst = 0, worst_plain = 0;
  for (const Options& options : all_options()) {
    const ref::SparseAttention a = draw(++seed, options);
    const auto forward = ref::sparse_forward(a);
    for (int64_t hk = 0; hk < a.kv_heads; ++hk) check_gathered(a, hk, forward);
    const auto backward = ref::sparse_backward(a, forward);
    const auto unrounded = ref::sparse_plain_backward(a, exact);
    worst = std::max(worst, ref::largest_error(ref::sparse_plain_out(a, exact), forward.out));
    worst = std::max(worst, ref::largest_error(unrounded.dq, backward.dq));
    worst = std::max(worst, ref::largest_error(unrounded.dk, backward.dk));
    worst = std::max(worst, ref::largest_error(unrounded.dv, backward.dv));
    worst = std::max(worst, ref::largest_error(unrounded.dq_rope, backward.dq_rope));
    worst = std::max(worst, ref::largest_error(unrounded.dk_rope, backward.dk_rope));
    worst = std::max(worst, ref::largest_error(unrounded.dsinks, backward.dsinks));
    worst_plain =
        std::max(worst_plain, ref::largest_error(ref::sparse_plain_out(a, as_bf16), forward.out));
  }
  CHECK(worst < 2e-5);  // the plain computation's sums are float32
  CHECK(worst_plain > 1e-3);
  CHECK(worst_plain < 0.1);
}

TEST_CASE("ref sparse: lists worked by hand") {
  const double ln2 = std::log(2.0), ln3 = std::log(3.0), inf = ref::kInfinity;
  CHECK(out_of(single({0, ln3}, {1, 5}, {0, 1})) == doctest::Approx(4));
  CHECK(out_of(single({0, ln3}, {1, 5}, {0, 0, 0, 1})) == doctest::Approx(3));  // thrice
  CHECK(out_of(single({0, ln3}, {1, 5}, {-1, 2, 1, INT_MAX, INT_MIN})) == doctest::Approx(5));
  CHECK(lse_of(single({0, ln3}, {1, 5}, {1, 1})) == doctest::Approx(ln2 + ln3));
  const auto empty = ref::sparse_forward(single({0}, {kNan}, {-1, 1}));
  CHECK(empty.out[0] == 0);
  CHECK(empty.softmax_max[0] == -inf);
  CHECK(empty.softmax_sum[0] == 0);
  CHECK(empty.lse[0] == -inf);

  // A sink alone, and one that weighs as much as the two keys.
  auto a = single({0}, {7}, {-1});
  a.sinks = {ln3};
  CHECK(lse_of(a) == doctest::Approx(ln3));
  CHECK(ref::sparse_forward(a).softmax_sum[0] == doctest::Approx(1));
  a = single({0}, {6}, {0, 0});
  a.sinks = {ln2};
  CHECK(out_of(a) == doctest::Approx(3));

  // Blocks: the last one is cut by the end; causal: the row is that of the last key.
  a = single({0, 0, 0}, {3, 6, 30}, {1});
  a.block = 2;
  CHECK(out_of(a) == doctest::Approx(30));
  a.indices = {0};
  CHECK(out_of(a) == doctest::Approx(4.5));
  a.causal = true, a.q_pos = {0};
  CHECK(out_of(a) == doctest::Approx(3));
  a.q_pos = {-1};
  CHECK(lse_of(a) == -inf);

  // Absolute entries count from the tensor's first row; others are not the sequence's.
  a = single({0, 0, 0}, {1, 2, 4}, {0, 1, 2});
  a.begin_k = {1}, a.end_k = {2};
  a.absolute = true;
  CHECK(out_of(a) == doctest::Approx(2));
  a.absolute = false;
  CHECK(out_of(a) == doctest::Approx(2));
  a.indices = {0, -1, -1};
  CHECK(out_of(a) == doctest::Approx(2));
  a.absolute = true;
  CHECK(lse_of(a) == -inf);

  // Rotary parts add to the score.
  a = single({0, 0}, {1, 5}, {0, 1});
  a.rope_dim = 1, a.q_rope = {2}, a.k_rope = {0, ln3 / 2};
  CHECK(out_of(a) == doctest::Approx(4));
}
