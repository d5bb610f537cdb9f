// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of the attention backward on float32, on the simulator and under every checker: no
// error above twice that of a program that computes in float32 throughout, however the tensor cores
// add.
#include "tests/ref/attention_plain.h"
#include "tests/templates/attention_backward_case.h"

using namespace backward;

namespace {

double as_float(double value) { return numbers::rounded(LATHE_F32, value); }

// Both ways to share widths, the narrowest tile of scores, every flag.
const std::vector<Setup> kSetups = {
    {LATHE_F32, 64, 64, 32, 64, 1, 1, 4, "local alibi sinks dlse"},
    {LATHE_F32, 96, 128, 16, 32, 1, 1, 2, "packed softcap apart"},
    {LATHE_F32, 192, 192, 32, 32, 1, 2, 4, "packed local softcap ordered"},
    {LATHE_F32, 256, 256, 16, 16, 1, 2, 2, "packed local sinks"},
};

Call random_call(const Setup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  Call c;
  c.seed = seed;
  const int rows = one_of({1, 33, 50}), keys = one_of({1, 40, 70});
  for (int n = s.has("packed") ? 3 : 1; n > 0; --n) {
    c.rows.push_back(s.has("packed") ? one_of({0, 1, 17, 40}) : rows);
    c.keys.push_back(s.has("packed") ? one_of({0, 1, 30, 65}) : keys);
  }
  if (s.has("packed")) c.padding_q = 3, c.padding_k = 5;
  c.kv_heads = 1, c.group = one_of({1, 2});
  c.head_dim = s.width - one_of({0, 8, 24}), c.value_dim = s.value_width - one_of({0, 8, 24});
  c.scale = as_float(1 / std::sqrt(static_cast<double>(c.head_dim)));
  c.softcap = one_of({2, 30});
  if (s.has("local")) c.left = one_of({-1, 0, 20, 64}), c.right = one_of({-1, 0, 0, 7});
  return c;
}

double largest(const Array& values) {
  double most = 0;
  for (const double value : values) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  return most;
}

// What is left of dp - delta where both are the same: delta comes from out, which is rounded. Of
// all rows the largest.
double rounding_of_delta(const ref::Attention& a, const ref::AttentionForward& forward) {
  double most = 0;
  ref::each_row(a, [&](int64_t, const ref::AttentionRow& row) {
    double products = 0;
    for (int64_t c = 0; c < a.value_dim; ++c) {
      products += std::abs(a.dout[row.out() + c] * forward.out[row.out() + c]);
    }
    most = std::max(most, products);
  });
  return 4 * 0x1p-24 * most;
}

void expect_within(const char* name, const Array& actual, const Array& exact, const Array& plain,
                   double ratio, double extra) {
  const double bound = ref::max2x_bound(exact, plain, ratio, as_float, extra);
  INFO(std::string(name), ": error ", ref::largest_error(actual, exact), ", bound ", bound);
  CHECK(bound < 1e-4);
  REQUIRE(actual.size() == exact.size());
  size_t wrong = 0;
  for (size_t i = 0; i < exact.size(); ++i) wrong += !(std::abs(actual[i] - exact[i]) <= bound);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("attention_backward: float32 is not rounded to less, whatever the options") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const Kernels& kernels = kernels_of(**opened, s, "sm_80");
    CAPTURE(kernels.specs.main.text());
    const lathe::CompileReport& report = kernels.main.report;
    MESSAGE(kernels.specs.main.text(), ": ", report.registers, " registers");
    CHECK(report.stack_bytes == 0);
    CHECK(report.spill_stores == 0);
    for (int turn = 0; turn < 2; ++turn, ++seed) {
      CAPTURE(seed);
      const Call c = random_call(s, seed);
      sim::test::Device device("sm_80");
      device.settings.seed = seed;
      device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
      device.settings.tensor_sum = static_cast<sim::TensorSum>(seed / 3 % 3);
      const ref::Attention a = make_input(s, c);
      const ref::AttentionForward forward = ref::attention_forward(a);
      const Outcome outcome = Launch(device, kernels, s, c).run(a, forward);
      CHECK(outcome.counters.shared_load.conflicts == 0);
      CHECK(outcome.counters.shared_store.conflicts == 0);
      const ref::AttentionBackward exact = ref::attention_backward(a, forward);
      const ref::AttentionBackward plain = ref::plain_backward(a, as_float);
      const ref::AttentionBackward actual = outcome.numbers(s.element);
      const double ratio = s.has("softcap") || (s.has("sinks") && s.has("packed")) ? 3 : 2;
      const double delta = rounding_of_delta(a, forward);
      const double lse = 0x1p-23 * largest(forward.lse);  // a weight is exp(x - lse)
      expect_within("dq", actual.dq, exact.dq, plain.dq, ratio, delta * a.scale * largest(a.k));
      expect_within("dk", actual.dk, exact.dk, plain.dk, ratio, delta * a.scale * largest(a.q));
      expect_within("dv", actual.dv, exact.dv, plain.dv, ratio, lse * largest(a.dout));
      if (s.has("sinks"))
        expect_within("dsinks", actual.dsinks, exact.dsinks, plain.dsinks, ratio, delta);
    }
  }
}
