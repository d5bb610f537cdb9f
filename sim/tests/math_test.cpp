// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover approximate instructions within their documented bounds.
#include <cmath>
#include <random>

#include "sim/tests/instruction.h"

using namespace sim::test;

namespace {

double ulp(float f) { return std::fabs(static_cast<double>(std::nextafter(f, INFINITY)) - f); }

}  // namespace

TEST_CASE("approximate instructions stay within their bounds") {
  std::vector<uint64_t> v;
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> wide(-120.0f, 120.0f), unit(0.5f, 2.0f);
  for (int k = 0; k < 4000; ++k) v.push_back(bits(wide(engine)));
  for (int k = 0; k < 2000; ++k) v.push_back(bits(unit(engine)));
  const auto rows = product(v, {0});
  struct Case {
    const char* text;
    double (*exact)(double);
    double ulps;  // 0: an absolute bound instead
    double absolute;
  };
  const Case cases[] = {
      {"ex2.approx.f32", [](double x) { return std::exp2(x); }, 1.01, 0},
      {"ex2.approx.ftz.f32", [](double x) { return std::exp2(x); }, 1.01, 0},
      {"lg2.approx.f32", [](double x) { return std::log2(x); }, 1.01, 0},
      {"rcp.approx.ftz.f32", [](double x) { return 1 / x; }, 1.0, 0},
      {"sqrt.approx.f32", [](double x) { return std::sqrt(x); }, 1.0, 0},
      {"rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); }, 1.0, 0},
      {"sin.approx.f32", [](double x) { return std::sin(x); }, 0, 1.0 / (1 << 20)},
      {"cos.approx.f32", [](double x) { return std::cos(x); }, 0, 1.0 / (1 << 20)},
      {"tanh.approx.f32", [](double x) { return std::tanh(x); }, 2, 0},
  };
  for (const Case& c : cases) {
    const std::string text = std::string(c.text) + " %d, %a;";
    CAPTURE(text);
    const auto result = evaluate({text, "ff"}, rows);
    int bad = 0;
    for (size_t k = 0; k < rows.size(); ++k) {
      const double exact = c.exact(as_float(rows[k].a));
      const float got = as_float(result[k]);
      if (std::isnan(exact)) {
        bad += !std::isnan(got);
        continue;
      }
      const bool tiny = std::fabs(exact) < 1.2e-38;
      const double bound = c.ulps != 0 ? c.ulps * ulp(static_cast<float>(exact)) : c.absolute;
      bad += !tiny && std::fabs(got - exact) > bound;
    }
    CHECK(bad == 0);
  }
  check_rows({"ex2.approx.f32 %d, %a;", "ff"},
             product({bits(-INFINITY), bits(INFINITY), bits(200.f), bits(3.f)}, {0}),
             [](const Row& r) {
               const float x = as_float(r.a);
               return bits(x == 3 ? 8.0f : x < 0 ? 0.0f : INFINITY);
             });
  check_rows({"lg2.approx.f32 %d, %a;", "ff"}, product({bits(0.0f), bits(-1.0f), bits(8.0f)}, {0}),
             [](const Row& r) {
               const float x = as_float(r.a);
               return x == 0 ? bits(-INFINITY) : x < 0 ? 0x7FFFFFFF : bits(3.0f);
             });
}
