// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover floating point, exact instructions bit by bit.
#include <cfenv>
#include <cmath>
#include <random>

#include "sim/tests/instruction.h"

using namespace sim::test;

namespace {

const std::vector<float> kSpecial = {
    0.0f,       -0.0f,           1.0f,     -1.0f,          1.5f,     3.14159265f, 1e-40f,
    -1e-45f,    1.17549435e-38f, 1e30f,    -3.4028235e38f, INFINITY, -INFINITY,   NAN,
    16777217.f, 0.33333334f,     5.5e-20f, 2.5f,           -0.5f,    65504.0f,    65520.0f};

std::vector<uint64_t> values(int random) {
  std::vector<uint64_t> v;
  for (const float f : kSpecial) v.push_back(bits(f));
  std::mt19937 engine(7);
  for (int k = 0; k < random; ++k) v.push_back(engine());
  return v;
}

uint64_t canonical(float f) { return std::isnan(f) ? 0x7FFFFFFF : bits(f); }
float flushed(float f) { return std::fpclassify(f) == FP_SUBNORMAL ? std::copysign(0.0f, f) : f; }

// Returns the nearest of the two floats around an exact long double; directed modes by comparison.
float rounded(long double exact, int mode) {
  float near = static_cast<float>(exact);
  if (mode == FE_DOWNWARD && static_cast<long double>(near) > exact)
    near = std::nextafter(near, -INFINITY);
  if (mode == FE_UPWARD && static_cast<long double>(near) < exact)
    near = std::nextafter(near, INFINITY);
  if (mode == FE_TOWARDZERO && std::fabs(static_cast<long double>(near)) > std::fabs(exact)) {
    near = std::nextafter(near, 0.0f);
  }
  return near;
}

// A 16-bit format by search over all its values.
struct Format {
  int exponent_bits, fraction_bits;
  double value(uint32_t h) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t e = h >> fraction_bits & ((1u << exponent_bits) - 1);
    const double f = h & ((1u << fraction_bits) - 1);
    const double sign = h & 0x8000 ? -1 : 1;
    if (e == (1u << exponent_bits) - 1) return f != 0 ? NAN : sign * INFINITY;
    if (e == 0) return sign * std::ldexp(f, 1 - bias - fraction_bits);
    return sign * std::ldexp(f + (1 << fraction_bits), static_cast<int>(e) - bias - fraction_bits);
  }
  // Nearest, ties to even, by bisection over the ordered positive values.
  uint32_t nearest(double x) const {
    if (std::isnan(x)) return 0x7FFF;
    const uint32_t sign = std::signbit(x) ? 0x8000 : 0, top = 0x7FFF & ~((1u << fraction_bits) - 1);
    const double a = std::fabs(x);
    uint32_t low = 0, high = top;  // value(low) <= a < "value"(high)
    const double limit = 2 * value(top - 1) - value(top - 2);
    auto at = [&](uint32_t h) { return h == top ? limit : value(h); };
    if (a >= limit) return sign | top;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (at(middle) <= a ? low : high) = middle;
    }
    const double down = a - at(low), up = at(high) - a;
    return sign | (down < up || (down == up && low % 2 == 0) ? low : high);
  }
};
constexpr Format kF16 = {5, 10}, kBf16 = {8, 7};

}  // namespace

TEST_CASE("f32 arithmetic is exact and its NaN canonical") {
  const auto v = values(40);
  const auto pairs = product(v, v);
  check_rows({"add.f32 %d, %a, %b;", "fff"}, pairs,
             [](const Row& r) { return canonical(as_float(r.a) + as_float(r.b)); });
  check_rows({"sub.rn.f32 %d, %a, %b;", "fff"}, pairs,
             [](const Row& r) { return canonical(as_float(r.a) - as_float(r.b)); });
  check_rows({"mul.f32 %d, %a, %b;", "fff"}, pairs,
             [](const Row& r) { return canonical(as_float(r.a) * as_float(r.b)); });
  check_rows({"div.rn.f32 %d, %a, %b;", "fff"}, pairs,
             [](const Row& r) { return canonical(as_float(r.a) / as_float(r.b)); });
  check_rows({"sqrt.rn.f32 %d, %a;", "ff"}, pairs,
             [](const Row& r) { return canonical(std::sqrt(as_float(r.a))); });
  check_rows({"fma.rn.f32 %d, %a, %b, %c;", "ffff"}, product(v, v, {0, 0x3F800000, 0xBF8CCCCD}),
             [](const Row& r) {
               return canonical(std::fma(as_float(r.a), as_float(r.b), as_float(r.c)));
             });
  check_rows({"mul.ftz.f32 %d, %a, %b;", "fff"}, pairs, [](const Row& r) {
    return canonical(flushed(flushed(as_float(r.a)) * flushed(as_float(r.b))));
  });
  check_rows({"add.sat.f32 %d, %a, %b;", "fff"}, pairs, [](const Row& r) {
    const float s = as_float(r.a) + as_float(r.b);
    return bits(std::isnan(s) || s <= 0 ? 0.0f : s > 1 ? 1.0f : s);
  });
  check_rows({"add.f64 %d, %a, %b;", "ggg"},
             product({bits(1.0), bits(1e-300), bits(-2.5)}, {bits(1e16), bits(0.1), bits(-1e-310)}),
             [](const Row& r) { return bits(as_double(r.a) + as_double(r.b)); });
}

TEST_CASE("f32 directed rounding") {
  std::vector<uint64_t> v;
  std::mt19937 engine(3);
  std::uniform_real_distribution<float> near(-4.0f, 4.0f);
  for (int k = 0; k < 60; ++k) v.push_back(bits(near(engine)));
  const std::pair<const char*, int> modes[] = {
      {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}, {"rn", FE_TONEAREST}};
  for (const auto& [name, mode] : modes) {
    const int m = mode;
    check_rows({std::string("add.") + name + ".f32 %d, %a, %b;", "fff"}, product(v, v),
               [m](const Row& r) {
                 return bits(rounded(static_cast<long double>(as_float(r.a)) + as_float(r.b), m));
               });
    check_rows({std::string("mul.") + name + ".f32 %d, %a, %b;", "fff"}, product(v, v),
               [m](const Row& r) {
                 return bits(rounded(static_cast<long double>(as_float(r.a)) * as_float(r.b), m));
               });
    check_rows({std::string("cvt.") + name + ".f32.s32 %d, %a;", "fr"},
               product({1, 0x7FFFFFFF, 0x80000001, 123456789, 0xFFFFFFFF}, {0}),
               [m](const Row& r) { return bits(rounded(static_cast<int32_t>(r.a), m)); });
  }
}

TEST_CASE("f32 minimum, maximum, comparison") {
  const auto v = values(0);
  const auto pairs = product(v, v);
  check_rows({"min.f32 %d, %a, %b;", "fff"}, pairs, [](const Row& r) {
    const float a = as_float(r.a), b = as_float(r.b);
    if (a == 0 && b == 0) return bits(std::signbit(a) ? a : b);
    return canonical(std::fmin(a, b));
  });
  check_rows({"max.NaN.f32 %d, %a, %b;", "fff"}, pairs, [](const Row& r) {
    const float a = as_float(r.a), b = as_float(r.b);
    if (std::isnan(a) || std::isnan(b)) return uint64_t(0x7FFFFFFF);
    if (a == 0 && b == 0) return bits(std::signbit(a) ? b : a);
    return bits(std::fmax(a, b));
  });
  check_rows({"setp.lt.f32 %p, %a, %b; selp.b32 %d, 1, 0, %p;", "rff"}, pairs,
             [](const Row& r) { return as_float(r.a) < as_float(r.b) ? 1 : 0; });
  check_rows({"setp.neu.f32 %p, %a, %b; selp.b32 %d, 1, 0, %p;", "rff"}, pairs,
             [](const Row& r) { return as_float(r.a) != as_float(r.b) ? 1 : 0; });
  check_rows({"setp.ne.f32 %p, %a, %b; selp.b32 %d, 1, 0, %p;", "rff"}, pairs, [](const Row& r) {
    const float a = as_float(r.a), b = as_float(r.b);
    return !std::isnan(a) && !std::isnan(b) && a != b ? 1 : 0;
  });
  check_rows({"neg.f32 %d, %a;", "ff"}, pairs, [](const Row& r) { return r.a ^ 0x80000000; });
  check_rows({"abs.f32 %d, %a;", "ff"}, pairs, [](const Row& r) { return r.a & 0x7FFFFFFF; });
}

TEST_CASE("conversions between floats") {
  auto v = values(3000);
  std::mt19937 engine(11);
  std::normal_distribution<float> near(0.0f, 100.0f);
  for (int k = 0; k < 3000; ++k) v.push_back(bits(near(engine)));
  // Exact ties of both formats.
  for (uint64_t h = 0x3800; h < 0x3900; ++h) v.push_back(h << 16 | 0x8000);
  for (uint64_t h = 0x387FF; h < 0x38900; ++h) v.push_back(h << 12);
  const auto rows = product(v, {bits(1.25f)});
  check_rows({"cvt.rn.bf16.f32 %d, %a;", "hf"}, rows,
             [](const Row& r) { return uint64_t(kBf16.nearest(as_float(r.a))); });
  check_rows({"cvt.rn.f16.f32 %d, %a;", "hf"}, rows,
             [](const Row& r) { return uint64_t(kF16.nearest(as_float(r.a))); });
  check_rows({"cvt.rn.bf16x2.f32 %d, %a, %b;", "rff"}, rows, [](const Row& r) {
    return uint64_t(kBf16.nearest(as_float(r.a))) << 16 | kBf16.nearest(as_float(r.b));
  });
  check_rows({"cvt.rn.f16x2.f32 %d, %b, %a;", "rff"}, rows, [](const Row& r) {
    return uint64_t(kF16.nearest(as_float(r.b))) << 16 | kF16.nearest(as_float(r.a));
  });
  check_rows({"cvt.rz.bf16.f32 %d, %a;", "hf"}, rows,
             [](const Row& r) { return std::isnan(as_float(r.a)) ? 0x7FFF : r.a >> 16; });
  std::vector<uint64_t> halves;
  for (uint64_t h = 0; h < 0x10000; h += 7) halves.push_back(h);
  check_rows({"cvt.f32.f16 %d, %a;", "fh"}, product(halves, {0}), [](const Row& r) {
    return canonical(static_cast<float>(kF16.value(static_cast<uint32_t>(r.a))));
  });
  check_rows({"cvt.f32.bf16 %d, %a;", "fh"}, product(halves, {0}), [](const Row& r) {
    return canonical(static_cast<float>(kBf16.value(static_cast<uint32_t>(r.a))));
  });
}

TEST_CASE("f16 and bf16 arithmetic rounds once") {
  std::vector<uint64_t> halves = {0, 0x8000, 1, 0x8001, 0x7C00, 0x7E00, 0x3C00, 0x3F80, 0x7F80};
  std::mt19937 engine(5);
  for (int k = 0; k < 40; ++k) halves.push_back(engine() & 0xFFFF);
  const auto rows = product(halves, halves, {0x0001, 0x3C01, 0xBF81, 0x8400});
  const std::pair<const char*, const Format*> formats[] = {{"f16", &kF16}, {"bf16", &kBf16}};
  for (const auto& [name, format] : formats) {
    const Format& f = *format;
    auto of = [&f](uint64_t h) { return f.value(static_cast<uint32_t>(h)); };
    check_rows({std::string("add.") + name + " %d, %a, %b;", "hhh"}, rows,
               [&](const Row& r) { return uint64_t(f.nearest(of(r.a) + of(r.b))); });
    check_rows({std::string("mul.") + name + " %d, %a, %b;", "hhh"}, rows,
               [&](const Row& r) { return uint64_t(f.nearest(of(r.a) * of(r.b))); });
  }
  // In f16 the sum of a product and a half fits the 64 bits of a long double nearly always; where
  // it does not, the result is beyond a tie by far.
  check_rows({"fma.rn.f16 %d, %a, %b, %c;", "hhhh"}, rows, [](const Row& r) {
    auto of = [](uint64_t h) { return kF16.value(static_cast<uint32_t>(h)); };
    const long double exact = static_cast<long double>(of(r.a)) * of(r.b) + of(r.c);
    const auto low = static_cast<double>(exact);
    // Keep the double on the exact value's side of any tie.
    const double side = static_cast<long double>(low) < exact   ? std::nextafter(low, INFINITY)
                        : static_cast<long double>(low) > exact ? std::nextafter(low, -INFINITY)
                                                                : low;
    const uint32_t x = kF16.nearest(low), y = kF16.nearest(side);
    return uint64_t(x == y                                                                ? x
                    : std::fabs(kF16.value(x) - exact) < std::fabs(kF16.value(y) - exact) ? x
                                                                                          : y);
  });
  check_rows({"fma.rn.bf16x2 %d, %a, %b, %c;", "rrrr"},
             {{0x3F803F80, 0x40004000, 0x3F803F80}, {0x3F80BF80, 0x40404040, 0x00000000}},
             [](const Row& r) { return r.c ? 0x40404040 : 0x4040C040; });
}

TEST_CASE("float to integer clamps") {
  auto v = values(200);
  for (const float f :
       {0.5f, 1.5f, 2.5f, -2.5f, 2147483520.0f, 2147483648.0f, -2147483648.0f, 4.3e9f, 300.7f}) {
    v.push_back(bits(f));
  }
  auto clamp = [](double x, double low, double high) {
    return std::isnan(x) ? 0.0 : std::min(std::max(x, low), high);
  };
  const auto rows = product(v, {0});
  check_rows({"cvt.rzi.s32.f32 %d, %a;", "rf"}, rows, [&](const Row& r) {
    return uint64_t(
        uint32_t(int64_t(clamp(std::trunc(as_float(r.a)), -2147483648.0, 2147483647.0))));
  });
  check_rows({"cvt.rni.s32.f32 %d, %a;", "rf"}, rows, [&](const Row& r) {
    return uint64_t(
        uint32_t(int64_t(clamp(std::nearbyint(as_float(r.a)), -2147483648.0, 2147483647.0))));
  });
  check_rows({"cvt.rzi.u32.f32 %d, %a;", "rf"}, rows, [&](const Row& r) {
    return uint64_t(clamp(std::trunc(as_float(r.a)), 0.0, 4294967295.0));
  });
  check_rows({"cvt.rmi.f32.f32 %d, %a;", "ff"}, rows,
             [](const Row& r) { return canonical(std::floor(as_float(r.a))); });
  check_rows({"cvt.rn.f32.u64 %d, %a;", "fd"},
             product({1, 0xFFFFFFFFFFFFFFFF, 1ull << 40 | 1}, {0}),
             [](const Row& r) { return bits(static_cast<float>(r.a)); });
  check_rows({"cvt.rn.f32.f64 %d, %a;", "fg"},
             product({bits(0.1), bits(1e300), bits(-1e-320)}, {0}),
             [](const Row& r) { return bits(static_cast<float>(as_double(r.a))); });
}
