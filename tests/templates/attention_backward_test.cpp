// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of the attention backward on the simulator, under every checker, against plain loops
// in double: random shapes for each of a set of configurations that covers every width, tile, type
// and flag.
#include "tests/ref/attention_plain.h"
#include "tests/templates/attention_backward_case.h"

using namespace backward;

namespace {

const std::vector<Setup> kSetups = {
    {LATHE_BF16, 64, 64, 64, 128, 2, 1, 8, ""},
    {LATHE_F16, 64, 64, 64, 128, 2, 1, 8, "local alibi dlse"},
    {LATHE_BF16, 96, 96, 64, 128, 2, 1, 8, "packed wide local sinks dlse"},
    {LATHE_BF16, 96, 96, 64, 128, 1, 1, 8, "local softcap apart"},
    {LATHE_BF16, 128, 128, 64, 128, 1, 1, 8, ""},
    {LATHE_F16, 128, 128, 64, 128, 1, 1, 8, "local sinks ordered"},
    {LATHE_BF16, 128, 128, 64, 64, 1, 1, 4, "packed local softcap alibi sinks dlse"},
    {LATHE_F16, 128, 128, 64, 128, 1, 2, 8, "packed local softcap alibi apart ordered"},
    {LATHE_F16, 128, 64, 64, 128, 1, 1, 8, "packed softcap"},
    {LATHE_BF16, 192, 192, 32, 64, 1, 2, 8, "packed local apart"},
    {LATHE_F16, 192, 128, 64, 64, 1, 2, 8, "packed wide local ordered"},
    {LATHE_BF16, 256, 256, 64, 64, 1, 2, 8, "local"},
    {LATHE_F16, 256, 256, 32, 32, 1, 2, 4, "packed sinks alibi"},
    {LATHE_BF16, 64, 256, 64, 64, 2, 2, 8, "local alibi"},
};

Call random_call(const Setup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  Call c;
  c.seed = seed;
  const bool packed = s.has("packed");
  const int sequences = packed ? one_of({1, 3, 4}) : one_of({1, 2});
  const int rows = one_of({1, 5, 64, 97, 150}), keys = one_of({0, 1, 63, 64, 97, 130, 203});
  for (int b = 0; b < sequences; ++b) {
    c.rows.push_back(packed ? one_of({0, 1, 17, 64, 130}) : rows);
    c.keys.push_back(packed ? one_of({0, 1, 40, 64, 129, 200}) : keys);
  }
  if (packed) c.padding_q = one_of({0, 3, 140}), c.padding_k = one_of({0, 3, 140});
  c.kv_heads = one_of({1, 2}), c.group = one_of({1, 2, 3});
  c.head_dim = s.width - one_of({0, 8, 24}), c.value_dim = s.value_width - one_of({0, 8, 24});
  c.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  c.softcap = one_of({1, 3, 30});
  c.slope_per_sequence = random() % 2 == 0;
  c.slices = one_of({1, 2, 3}), c.gap = one_of({0, 0, 8});
  if (s.has("local")) {
    c.left = one_of({-1, -1, 0, 1, 40, 64, 300, 0x7fffffff});
    c.right = one_of({-1, 0, 0, 0, 3, 70, 0x7fffffff});
  }
  return c;
}

void expect_near(const Setup& s, const char* name, const Array& actual, const Array& exact,
                 const Array& plain) {
  CAPTURE(name);
  REQUIRE(actual.size() == exact.size());
  const ref::Round round = s.element == LATHE_BF16
                               ? +[](double x) { return numbers::rounded(LATHE_BF16, x); }
                               : +[](double x) { return numbers::rounded(LATHE_F16, x); };
  const bool capped = s.has("softcap"), packed_sinks = s.has("sinks") && s.has("packed");
  const double bound =
      ref::max2x_bound(exact, plain, capped || packed_sinks ? 3 : 2, round, capped ? 3e-4 : 0);
  size_t not_finite = 0;
  for (const double value : actual) not_finite += !std::isfinite(value);
  CHECK(not_finite == 0);
  CHECK(ref::largest_error(actual, exact) <= bound);
  // Of gradients that are nothing but what rounding leaves, the direction says nothing.
  const auto most = std::max_element(exact.begin(), exact.end(),
                                     [](double x, double y) { return std::abs(x) < std::abs(y); });
  if (most == exact.end() || std::abs(*most) < bound) return;
  const double own = ref::cosine_difference(plain, exact);
  CHECK(ref::cosine_difference(actual, exact) < std::max(1e-5, 5 * own));
}

// Off by what the rounding of out changes in delta, and by sums in float32.
void expect_sinks(const Setup& s, const ref::Attention& a, const ref::AttentionForward& forward,
                  const Array& actual, const Array& exact) {
  Array bound(exact.size(), 1e-5);
  ref::each_row(a, [&](int64_t h, const ref::AttentionRow& row) {
    if (forward.lse[row.lse()] == -kInfinity) return;
    double products = 0;
    for (int64_t c = 0; c < a.value_dim; ++c) {
      products += std::abs(a.dout[row.out() + c] * forward.out[row.out() + c]);
    }
    const double weight = std::exp(row.sink() - forward.lse[row.lse()]);
    bound[h] += weight * products * (numbers::half_ulp(s.element) + 1e-5);
  });
  REQUIRE(actual.size() == exact.size());
  for (size_t h = 0; h < exact.size(); ++h) CHECK(std::abs(actual[h] - exact[h]) <= bound[h]);
}

}  // namespace

TEST_CASE("attention_backward: random shapes on every configuration, under every check") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const Kernels kernels = compile(**opened, s, "sm_80");
    CAPTURE(kernels.specs.main.text());
    const lathe::CompileReport& report = kernels.main.report;
    MESSAGE(kernels.specs.main.text(), ": ", report.registers, " registers, ", report.spill_stores,
            " spilt");
    for (int turn = 0; turn < 4; ++turn, ++seed) {
      const Call c = random_call(s, seed);
      CAPTURE(c.seed);
      CAPTURE(c.rows[0]);
      CAPTURE(c.keys[0]);
      CAPTURE(c.left);
      CAPTURE(c.right);
      sim::test::Device device("sm_80");
      device.settings.seed = seed;
      device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
      const ref::Attention a = make_input(s, c);
      const ref::AttentionForward forward = ref::attention_forward(a);
      const Outcome outcome = Launch(device, kernels, s, c).run(a, forward);
      CHECK(outcome.counters.shared_load.conflicts == 0);
      CHECK(outcome.counters.shared_store.conflicts == 0);
      const ref::Round round = s.element == LATHE_BF16
                                   ? +[](double x) { return numbers::rounded(LATHE_BF16, x); }
                                   : +[](double x) { return numbers::rounded(LATHE_F16, x); };
      const ref::AttentionBackward exact = ref::attention_backward(a, forward);
      const ref::AttentionBackward plain = ref::plain_backward(a, round);
      const ref::AttentionBackward actual = outcome.numbers(s.element);
      expect_near(s, "dq", actual.dq, exact.dq, plain.dq);
      expect_near(s, "dk", actual.dk, exact.dk, plain.dk);
      expect_near(s, "dv", actual.dv, exact.dv, plain.dv);
      if (s.has("sinks")) {
        expect_sinks(s, a, forward, actual.dsinks, exact.dsinks);
      }
    }
  }
}
