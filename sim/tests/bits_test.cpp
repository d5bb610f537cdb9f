// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover masks, fields, dot products of bytes; testp and set.
#include <algorithm>
#include <cmath>

#include "sim/tests/instruction.h"

using namespace sim::test;

namespace {

const std::vector<uint64_t> k32 = {0,          1,          2,          0x80,       0xFFFF,
                                   0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678, 0xDEADBEEF};
const std::vector<uint64_t> kCounts = {0, 1, 5, 16, 30, 31, 32, 33, 37, 200, 0xFFFFFFFF};

const std::vector<uint64_t> kReals = {bits(0.0f),     bits(-0.0f),     bits(1.0f),  bits(-2.5f),
                                      bits(INFINITY), bits(-INFINITY), bits(NAN),   bits(1e-40f),
                                      bits(-1e-45f),  bits(3e38f),     0x00800000u, 0x007FFFFFu};

int64_t s32(uint64_t x) { return static_cast<int32_t>(static_cast<uint32_t>(x)); }

// Bit by bit: the first and last set bit.
uint64_t highest(uint64_t v, int width) {
  for (int k = width - 1; k >= 0; --k) {
    if (v >> k & 1) return static_cast<uint64_t>(k);
  }
  return 0xFFFFFFFF;
}

}  // namespace

TEST_CASE("szext") {
  for (const bool wrap : {false, true}) {
    auto extend = [wrap](const Row& r, bool sign) {
      const uint64_t n = wrap ? r.b % 32 : std::min<uint64_t>(r.b, 32);
      uint64_t v = 0;
      for (uint64_t k = 0; n != 0 && k < 32; ++k) {
        const uint64_t from = k < n ? k : n - 1;
        v |= (k < n || sign ? r.a >> from & 1 : 0) << k;
      }
      return v;
    };
    const std::string name = wrap ? "szext.wrap." : "szext.clamp.";
    check_rows({name + "u32 %d, %a, %b;", "rrr"}, product(k32, kCounts),
               [&](const Row& r) { return extend(r, false); });
    check_rows({name + "s32 %d, %a, %b;", "rrr"}, product(k32, kCounts),
               [&](const Row& r) { return extend(r, true); });
  }
}

TEST_CASE("bmsk") {
  for (const bool wrap : {false, true}) {
    check_rows({wrap ? "bmsk.wrap.b32 %d, %a, %b;" : "bmsk.clamp.b32 %d, %a, %b;", "rrr"},
               product(kCounts, kCounts), [wrap](const Row& r) {
                 const uint64_t from = wrap ? r.a % 32 : r.a, width = wrap ? r.b % 32 : r.b;
                 uint64_t v = 0;
                 for (uint64_t k = from; k < 32 && k - from < width; ++k) v |= 1ull << k;
                 return v;
               });
  }
}

TEST_CASE("bfind") {
  const auto rows = product(k32, {0});
  check_rows({"bfind.u32 %d, %a;", "rr"}, rows, [](const Row& r) { return highest(r.a, 32); });
  auto shift = [](uint64_t bit, uint64_t width) {
    return bit == 0xFFFFFFFF ? bit : width - 1 - bit;
  };
  check_rows({"bfind.shiftamt.u32 %d, %a;", "rr"}, rows,
             [&](const Row& r) { return shift(highest(r.a, 32), 32); });
  check_rows({"bfind.shiftamt.s32 %d, %a;", "rr"}, rows, [&](const Row& r) {
    return shift(highest(r.a >> 31 ? ~r.a & 0xFFFFFFFF : r.a, 32), 32);
  });
  const auto wide = product({0, 1, 1ull << 33, 1ull << 63, ~0ull, ~0ull - (1ull << 40)}, {0});
  check_rows({"bfind.u64 %d, %a;", "rd"}, wide, [](const Row& r) { return highest(r.a, 64); });
  check_rows({"bfind.s64 %d, %a;", "rd"}, wide,
             [](const Row& r) { return highest(r.a >> 63 ? ~r.a : r.a, 64); });
  check_rows({"bfind.shiftamt.s64 %d, %a;", "rd"}, wide,
             [&](const Row& r) { return shift(highest(r.a >> 63 ? ~r.a : r.a, 64), 64); });
}

TEST_CASE("dp2a and dp4a, every mixture of signs") {
  for (const bool a_signed : {false, true}) {
    for (const bool b_signed : {false, true}) {
      const std::string types =
          std::string(a_signed ? ".s32" : ".u32") + (b_signed ? ".s32" : ".u32");
      auto part = [](uint64_t x, int at, int size, bool sign) {
        const auto v = static_cast<int64_t>(x >> at & ((1ull << size) - 1));
        return sign && v >> (size - 1) ? v - (int64_t(1) << size) : v;
      };
      for (const int high : {0, 1}) {
        const std::string name = high ? "dp2a.hi" : "dp2a.lo";
        check_rows({name + types + " %d, %a, %b, %c;", "rrrr"}, product(k32, k32, {0, 0x7FFFFFFF}),
                   [=](const Row& r) {
                     auto v = static_cast<int64_t>(r.c);
                     for (int k = 0; k < 2; ++k) {
                       v += part(r.a, 16 * k, 16, a_signed) *
                            part(r.b, 16 * high + 8 * k, 8, b_signed);
                     }
                     return static_cast<uint64_t>(v) & 0xFFFFFFFF;
                   });
      }
      check_rows({"dp4a" + types + " %d, %a, %b, %c;", "rrrr"}, product(k32, k32, {0, 0x80000000}),
                 [=](const Row& r) {
                   auto v = static_cast<int64_t>(r.c);
                   for (int k = 0; k < 32; k += 8) {
                     v += part(r.a, k, 8, a_signed) * part(r.b, k, 8, b_signed);
                   }
                   return static_cast<uint64_t>(v) & 0xFFFFFFFF;
                 });
    }
  }
}

TEST_CASE("fns: the n-th set bit from a base, either way") {
  check_rows({"fns.b32 %d, %a, %b, %c;", "rrrr"},
             product(k32, {0, 3, 15, 31},
                     {0, 1, 2, 3, 32, 33, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFE0, 0x80000000}),
             [](const Row& r) {
               std::vector<uint64_t> found;  // in the order of the walk
               const int64_t n = s32(r.c);
               for (int64_t k = 0; k < 32; ++k) {
                 const int64_t at = static_cast<int64_t>(r.b) + (n < 0 ? -k : k);
                 if (at < 0 || at > 31) break;
                 if (r.a >> at & 1) found.push_back(static_cast<uint64_t>(at));
               }
               if (n == 0) return r.a >> r.b & 1 ? r.b : uint64_t(0xFFFFFFFF);
               const auto index = static_cast<size_t>(std::abs(n) - 1);
               return index < found.size() ? found[index] : uint64_t(0xFFFFFFFF);
             });
}

TEST_CASE("testp") {
  struct Case {
    const char* name;
    bool (*holds)(int kind);
  };
  const Case cases[] = {
      {"finite", [](int c) { return c != FP_NAN && c != FP_INFINITE; }},
      {"infinite", [](int c) { return c == FP_INFINITE; }},
      {"number", [](int c) { return c != FP_NAN; }},
      {"notanumber", [](int c) { return c == FP_NAN; }},
      {"normal", [](int c) { return c == FP_NORMAL; }},
      {"subnormal", [](int c) { return c == FP_SUBNORMAL; }},
  };
  std::vector<uint64_t> wide;
  for (const uint64_t x : kReals) wide.push_back(bits(static_cast<double>(as_float(x))));
  wide.insert(wide.end(), {1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 1ull << 63 | 1});
  for (const Case& c : cases) {
    const std::string name = std::string("testp.") + c.name;
    check_rows({name + ".f32 %p, %a; selp.b32 %d, 1, 0, %p;", "rf"}, product(kReals, {0}),
               [&](const Row& r) { return c.holds(std::fpclassify(as_float(r.a))) ? 1 : 0; });
    check_rows({name + ".f64 %p, %a; selp.b32 %d, 1, 0, %p;", "rg"}, product(wide, {0}),
               [&](const Row& r) { return c.holds(std::fpclassify(as_double(r.a))) ? 1 : 0; });
  }
}

TEST_CASE("set writes all ones or a one") {
  const auto reals = product(kReals, kReals);
  auto unordered = [](float a, float b) { return std::isnan(a) || std::isnan(b); };
  check_rows({"set.lt.u32.f32 %d, %a, %b;", "rff"}, reals,
             [](const Row& r) { return as_float(r.a) < as_float(r.b) ? 0xFFFFFFFF : 0; });
  check_rows({"set.geu.s32.f32 %d, %a, %b;", "rff"}, reals, [&](const Row& r) {
    const float a = as_float(r.a), b = as_float(r.b);
    return unordered(a, b) || a >= b ? 0xFFFFFFFF : 0;
  });
  check_rows({"set.num.f32.f32 %d, %a, %b;", "fff"}, reals, [&](const Row& r) {
    return unordered(as_float(r.a), as_float(r.b)) ? 0 : bits(1.0f);
  });
  check_rows({"set.nan.f32.f32 %d, %a, %b;", "fff"}, reals, [&](const Row& r) {
    return unordered(as_float(r.a), as_float(r.b)) ? bits(1.0f) : 0;
  });
  check_rows({"set.eq.ftz.f32.f32 %d, %a, %b;", "fff"}, reals, [](const Row& r) {
    auto flushed = [](float f) { return std::fpclassify(f) == FP_SUBNORMAL ? 0.0f : f; };
    return flushed(as_float(r.a)) == flushed(as_float(r.b)) ? bits(1.0f) : 0;
  });
  check_rows({"set.ne.f32.s32 %d, %a, %b;", "frr"}, product(k32, k32),
             [](const Row& r) { return r.a != r.b ? bits(1.0f) : 0; });
  check_rows({"set.hi.u32.u64 %d, %a, %b;", "rdd"}, product({0, 1ull << 40, ~0ull}, {0, 5, ~0ull}),
             [](const Row& r) { return r.a > r.b ? 0xFFFFFFFF : 0; });
  check_rows({"set.gt.u32.f64 %d, %a, %b;", "rgg"},
             product({bits(1.0), bits(2.0), bits(double(NAN))}, {bits(1.5)}),
             [](const Row& r) { return as_double(r.a) > 1.5 ? 0xFFFFFFFF : 0; });
  // 1, 2 and -1 as f16; 1 and NaN as bf16.
  const std::vector<uint64_t> halves = {0x3C00, 0x4000, 0xBC00};
  auto order = [](uint64_t h) { return h == 0x3C00 ? 1 : h == 0x4000 ? 2 : -1; };
  check_rows({"set.lt.f16.f16 %d, %a, %b;", "hhh"}, product(halves, halves),
             [&](const Row& r) { return order(r.a) < order(r.b) ? 0x3C00 : 0; });
  check_rows({"set.lt.u16.f16 %d, %a, %b;", "hhh"}, product(halves, halves),
             [&](const Row& r) { return order(r.a) < order(r.b) ? 0xFFFF : 0; });
  check_rows({"set.le.u32.f16 %d, %a, %b;", "rhh"}, product(halves, halves),
             [&](const Row& r) { return order(r.a) <= order(r.b) ? 0xFFFFFFFF : 0; });
  check_rows({"set.ge.f16x2.f16x2 %d, %a, %b;", "rrr"}, product(halves, halves),
             [&](const Row& r) { return 0x3C000000 | (order(r.a) >= order(r.b) ? 0x3C00 : 0); });
  check_rows({"set.neu.bf16x2.bf16x2 %d, %a, %b;", "rrr"},
             product({0x3F803F80, 0x7FFF3F80}, {0x3F803F80, 0x3F807FC0}), [](const Row& r) {
               return (r.a == 0x7FFF3F80 ? 0x3F800000 : 0) | (r.b == 0x3F807FC0 ? 0x3F80 : 0);
             });
}
