// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover cvt to fp8, tf32 and packed integers, directed rounding of f64, and conversions
// that are rare.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "sim/tests/instruction.h"

using namespace sim::test;

namespace {

__extension__ using i128 = __int128;
__extension__ using u128 = unsigned __int128;

enum class Mode { rn, rz, rm, rp };
const std::pair<const char*, Mode> kModes[] = {
    {"rn", Mode::rn}, {"rz", Mode::rz}, {"rm", Mode::rm}, {"rp", Mode::rp}};

// v * 2^e, not zero, to `bits` significant bits.
double rounded(i128 v, int e, Mode mode, int bits = 53) {
  const bool negative = v < 0;
  const u128 u = negative ? -static_cast<u128>(v) : static_cast<u128>(v);
  int length = 0;
  while (length < 128 && u >> length != 0) ++length;
  const int drop = length > bits ? length - bits : 0;
  u128 kept = u >> drop;
  const u128 rest = u - (kept << drop), half = drop ? u128(1) << (drop - 1) : 1;
  bool up = rest != 0 && ((mode == Mode::rp && !negative) || (mode == Mode::rm && negative));
  if (mode == Mode::rn) up = rest > half || (rest == half && (kept & 1));
  kept += up ? 1 : 0;
  const double magnitude = std::ldexp(static_cast<double>(static_cast<uint64_t>(kept)), e + drop);
  return negative ? -magnitude : magnitude;
}

// Whole numbers of 53 bits with a sign.
std::vector<int64_t> whole_numbers(int count) {
  std::mt19937_64 engine(17);
  std::vector<int64_t> v;
  for (int k = 0; k < count; ++k) {
    const auto m = static_cast<int64_t>((engine() >> 12) | 1ull << 52);
    v.push_back(engine() & 1 ? m : -m);
  }
  return v;
}
std::vector<Row> pairs(int count) {
  std::vector<uint64_t> v;
  for (const int64_t x : whole_numbers(count)) v.push_back(bits(static_cast<double>(x)));
  return product(v, v);
}
int64_t whole(uint64_t b) { return static_cast<int64_t>(as_double(b)); }

// An 8-bit float by its definition.
struct Fp8 {
  const char* name;
  int fraction, bias;
  uint32_t largest;
  double value(uint32_t code) const {
    const int e = static_cast<int>(code >> fraction);
    const double f = code & ((1u << fraction) - 1);
    return e == 0 ? std::ldexp(f, 1 - bias - fraction)
                  : std::ldexp(f + (1 << fraction), e - bias - fraction);
  }
  // Returns the nearest of all magnitudes, the even one of two.
  uint64_t nearest(double x, bool relu) const {
    if (std::isnan(x)) return 0x7F;
    if (relu && std::signbit(x)) return 0;
    const double a = std::fabs(x);
    uint32_t best = 0;
    for (uint32_t code = 1; code <= largest; ++code) {
      const double now = std::fabs(value(code) - a), before = std::fabs(value(best) - a);
      if (now < before || (now == before && code % 2 == 0)) best = code;
    }
    if (a > value(largest)) best = largest;
    return best | (std::signbit(x) ? 0x80u : 0u);
  }
  uint64_t half(uint32_t code) const {  // as f16 bits; every magnitude is one
    const uint32_t m = code & 0x7F;
    const bool infinite = fraction == 2 && m == 0x7C;
    if (m > largest && !infinite) return 0x7FFF;
    const uint64_t sign = (code & 0x80) << 8;
    if (infinite) return sign | 0x7C00;
    const double v = value(m);
    for (uint32_t h = 0; h < 0x7C00; ++h) {
      const uint32_t e = h >> 10;
      const double at =
          e ? std::ldexp((h & 1023) + 1024.0, static_cast<int>(e) - 25) : std::ldexp(h & 1023, -24);
      if (at == v) return sign | h;
    }
    return ~0ull;
  }
};
constexpr Fp8 kFormats[] = {{"e4m3x2", 3, 7, 0x7E}, {"e5m2x2", 2, 15, 0x7B}};

std::vector<uint64_t> floats() {
  std::vector<uint64_t> v;
  for (const float f : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 448.0f, 464.0f, 465.0f, 57344.0f,
                        61440.0f, 1e30f, -1e30f, 1e-30f, 0.0009765625f, 0.0029296875f}) {
    v.push_back(bits(f));
  }
  std::mt19937 engine(23);
  std::uniform_real_distribution<float> exponent(-19.0f, 17.0f);
  for (int k = 0; k < 1500; ++k) {
    const float f = std::exp2(exponent(engine));
    v.push_back(bits(k % 2 ? f : -f));
  }
  // Ties of both formats.
  for (uint32_t k = 0; k < 512; ++k) v.push_back((0x38000000u + (k << 19)) & 0xFFFFFFFFu);
  return v;
}

}  // namespace

TEST_CASE("f64 directed rounding") {
  const auto rows = pairs(30);
  for (const auto& [name, mode_] : kModes) {
    const Mode mode = mode_;
    const std::string n = name;
    // b is brought 30 binary places lower.
    check_rows({"mul.f64 %b, %b, 0d3E10000000000000; add." + n + ".f64 %d, %a, %b;", "ggg"}, rows,
               [mode](const Row& r) {
                 return bits(rounded(i128(whole(r.a)) * (1 << 30) + whole(r.b), -30, mode));
               });
    check_rows({"mul." + n + ".f64 %d, %a, %b;", "ggg"}, rows, [mode](const Row& r) {
      return bits(rounded(i128(whole(r.a)) * whole(r.b), 0, mode));
    });
    check_rows({"fma." + n + ".f64 %d, %a, %b, %a;", "ggg"}, rows, [mode](const Row& r) {
      return bits(rounded(i128(whole(r.a)) * whole(r.b) + whole(r.a), 0, mode));
    });
    // 64 binary places and one that tells whether more would follow.
    check_rows({"div." + n + ".f64 %d, %a, %b;", "ggg"}, rows, [mode](const Row& r) {
      const i128 a = i128(std::llabs(whole(r.a))) << 64, b = std::llabs(whole(r.b));
      const i128 q = a / b * 2 + (a % b != 0 ? 1 : 0);
      return bits(rounded((whole(r.a) < 0) != (whole(r.b) < 0) ? -q : q, -65, mode));
    });
    check_rows({"cvt." + n + ".f32.f64 %d, %a;", "fg"}, rows, [mode](const Row& r) {
      return bits(static_cast<float>(rounded(whole(r.a), 0, mode, 24)));
    });
    const auto wide = product({1, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x8000000000000401,
                               0x123456789ABCDEF1, 0xFEDCBA9876543210},
                              {0});
    check_rows({"cvt." + n + ".f64.u64 %d, %a;", "gd"}, wide,
               [mode](const Row& r) { return bits(rounded(static_cast<i128>(r.a), 0, mode)); });
    check_rows({"cvt." + n + ".f64.s64 %d, %a;", "gd"}, wide,
               [mode](const Row& r) { return bits(rounded(static_cast<int64_t>(r.a), 0, mode)); });
    check_rows({"cvt." + n + ".f32.s64 %d, %a;", "fd"}, wide, [mode](const Row& r) {
      return bits(static_cast<float>(rounded(static_cast<int64_t>(r.a), 0, mode, 24)));
    });
    check_rows({"cvt." + n + ".f64.s32 %d, %a;", "gr"}, wide, [](const Row& r) {
      return bits(static_cast<double>(static_cast<int32_t>(static_cast<uint32_t>(r.a))));
    });
  }
}

TEST_CASE("fp8 pairs") {
  const auto rows = product(floats(), {bits(1.0f), bits(-3.3f)});
  for (const Fp8& f : kFormats) {
    const std::string name = f.name;
    for (const bool relu : {false, true}) {
      const std::string mods = relu ? "cvt.rn.satfinite.relu." : "cvt.rn.satfinite.";
      check_rows({mods + name + ".f32 %d, %a, %b;", "hff"}, rows, [&](const Row& r) {
        return f.nearest(as_float(r.a), relu) << 8 | f.nearest(as_float(r.b), relu);
      });
      check_rows(
          {"{ .reg .b32 %x; cvt.rn.f16x2.f32 %x, %a, %b; " + mods + name + ".f16x2 %d, %x; }",
           "hff"},
          product({bits(0.75f), bits(-1.0f), bits(500.0f), bits(2.125f)},
                  {bits(0.0f), bits(-0.03125f), bits(1e-7f), bits(65504.0f)}),
          [&](const Row& r) {
            // 1e-7 is 2 * 2^-24 in f16; the others are what they are.
            const float b = as_float(r.b) == 1e-7f ? 0x1p-23f : as_float(r.b);
            return f.nearest(as_float(r.a), relu) << 8 | f.nearest(b, relu);
          });
    }
    std::vector<uint64_t> codes;
    for (uint64_t k = 0; k < 256; ++k) codes.push_back(k << 8 | (255 - k));
    check_rows({"cvt.rn.f16x2." + name + " %d, %a;", "rh"}, product(codes, {0}), [&](const Row& r) {
      return f.half(static_cast<uint32_t>(r.a >> 8)) << 16 |
             f.half(static_cast<uint32_t>(r.a & 255));
    });
  }
}

TEST_CASE("tf32 keeps ten fraction bits") {
  std::vector<uint64_t> v = {0,          0x80000000, 0x7F800000, 0xFF800000,
                             0x7FC00000, 0x7F7FFFFF, 0x3F801000, 0x3F803000,
                             0x3F800FFF, 0xBF801000, 0xBF803000, 0x00001000};
  std::mt19937 engine(29);
  for (int k = 0; k < 200; ++k) v.push_back(engine());
  auto place = [](uint64_t b) {  // of the last bit kept
    const int e = static_cast<int>(b >> 23 & 255);
    return std::ldexp(1.0, (e ? e : 1) - 127 - 10);
  };
  auto special = [](uint64_t b) { return std::isnan(as_float(b)) ? uint64_t(0x7FFFFFFF) : b; };
  check_rows({"cvt.rna.tf32.f32 %d, %a;", "rf"}, product(v, {0}), [&](const Row& r) {
    if (!std::isfinite(as_float(r.a))) return special(r.a);
    return bits(static_cast<float>(std::round(as_float(r.a) / place(r.a)) * place(r.a)));
  });
  check_rows({"cvt.rn.tf32.f32 %d, %a;", "rf"}, product(v, {0}), [&](const Row& r) {
    if (!std::isfinite(as_float(r.a))) return special(r.a);
    return bits(static_cast<float>(std::nearbyint(as_float(r.a) / place(r.a)) * place(r.a)));
  });
  check_rows({"cvt.rz.tf32.f32 %d, %a;", "rf"}, product(v, {0}), [&](const Row& r) {
    if (!std::isfinite(as_float(r.a))) return special(r.a);
    return bits(static_cast<float>(std::trunc(as_float(r.a) / place(r.a)) * place(r.a)));
  });
  check_rows({"cvt.rn.relu.tf32.f32 %d, %a;", "rf"}, product({bits(-2.0f), bits(1.5f)}, {0}),
             [](const Row& r) { return as_float(r.a) < 0 ? 0 : r.a; });
}

TEST_CASE("cvt.pack saturates and shifts what was there") {
  const std::vector<uint64_t> v = {0,          1,          127,        128,        255,
                                   256,        32767,      32768,      65535,      65536,
                                   0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFF80, 0xFFFFFF7F,
                                   0xFFFF8000, 0xFFFF7FFF};
  struct Pack {
    const char* name;
    int64_t low, high;
    int size;
  };
  for (const Pack p : {Pack{"s8", -128, 127, 8}, Pack{"u8", 0, 255, 8},
                       Pack{"s16", -32768, 32767, 16}, Pack{"u16", 0, 65535, 16}}) {
    auto one = [p](uint64_t x) {
      const int64_t s = static_cast<int32_t>(static_cast<uint32_t>(x));
      return static_cast<uint64_t>(std::min(std::max(s, p.low), p.high)) & ((1ull << p.size) - 1);
    };
    const std::string name = std::string("cvt.pack.sat.") + p.name + ".s32";
    if (p.size == 16) {
      check_rows({name + " %d, %a, %b;", "rrr"}, product(v, v),
                 [&](const Row& r) { return one(r.a) << 16 | one(r.b); });
    } else {
      check_rows({name + ".b32 %d, %a, %b, %c;", "rrrr"}, product(v, v, {0, 0xABCD1234}),
                 [&](const Row& r) { return (r.c & 0xFFFF) << 16 | one(r.a) << 8 | one(r.b); });
    }
  }
}

TEST_CASE("conversions that clamp") {
  const std::vector<uint64_t> v = {0,          1,          127,        128,          255,
                                   256,        0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,   0xFFFFFF80,
                                   0xFFFF7FFF, 0x8000,     1ull << 40, ~0ull - 1000, 1ull << 63};
  auto clamp = [](i128 x, i128 low, i128 high) {
    return static_cast<uint64_t>(x < low ? low : x > high ? high : x);
  };
  const auto rows = product(v, {0});
  auto s32 = [](const Row& r) { return i128(static_cast<int32_t>(static_cast<uint32_t>(r.a))); };
  check_rows({"cvt.sat.u8.s32 %d, %a;", "rr"}, rows,
             [&](const Row& r) { return clamp(s32(r), 0, 255); });
  check_rows({"cvt.sat.s8.s32 %d, %a;", "rr"}, rows,
             [&](const Row& r) { return clamp(s32(r), -128, 127) & 0xFFFFFFFF; });
  check_rows({"cvt.sat.u64.s32 %d, %a;", "dr"}, rows,
             [&](const Row& r) { return clamp(s32(r), 0, i128(1) << 100); });
  check_rows({"cvt.sat.s32.u64 %d, %a;", "rd"}, rows,
             [&](const Row& r) { return clamp(r.a, 0, 0x7FFFFFFF); });
  check_rows({"cvt.sat.u64.s64 %d, %a;", "dd"}, rows,
             [&](const Row& r) { return clamp(static_cast<int64_t>(r.a), 0, i128(1) << 100); });
  check_rows({"cvt.sat.s64.u64 %d, %a;", "dd"}, rows,
             [&](const Row& r) { return clamp(r.a, 0, (i128(1) << 63) - 1); });
  check_rows({"cvt.rzi.u8.f32 %d, %a;", "rf"},
             product({bits(-1.0f), bits(3.9f), bits(255.5f), bits(300.0f), bits(NAN)}, {0}),
             [](const Row& r) {
               const float x = as_float(r.a);
               return uint64_t(std::isnan(x) || x < 0 ? 0 : x > 255 ? 255 : x);
             });
  check_rows({"cvt.rni.s16.f64 %d, %a;", "hg"},
             product({bits(-40000.0), bits(2.5), bits(-3.5), bits(32767.4), bits(1e9)}, {0}),
             [](const Row& r) {
               const double x = as_double(r.a);
               const double near = x == 2.5 ? 2 : x == -3.5 ? -4 : x < 0 ? -32768 : 32767;
               return static_cast<uint64_t>(static_cast<int64_t>(near)) & 0xFFFF;
             });
  // 2049 lies between two halves, 2048 and 2050.
  check_rows({"cvt.rn.f16.s32 %d, %a;", "hr"}, {{2049}, {3}, {0xFFFFFFFF}, {70000}},
             [](const Row& r) {
               return r.a == 2049 ? 0x6800 : r.a == 3 ? 0x4200 : r.a == 70000 ? 0x7C00 : 0xBC00;
             });
  check_rows({"cvt.rp.f16.f64 %d, %a;", "hg"}, {{bits(2049.0)}, {bits(-2049.0)}, {bits(1.5)}},
             [](const Row& r) {
               return as_double(r.a) == 1.5 ? 0x3E00 : as_double(r.a) > 0 ? 0x6801 : 0xE800;
             });
}
