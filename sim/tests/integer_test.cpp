// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover integer and logic instructions against formulas written bit by bit or in wider
// types.
#include "sim/tests/instruction.h"

using namespace sim::test;

namespace {

const std::vector<uint64_t> k32 = {
    0,          1,          2,          3,          31,         32,         33,         255,
    0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFFFFFE, 0x12345678, 0xDEADBEEF, 0x00FF00FF};
const std::vector<uint64_t> k64 = {0,
                                   1,
                                   63,
                                   64,
                                   0x7FFFFFFFFFFFFFFF,
                                   0x8000000000000000,
                                   0xFFFFFFFFFFFFFFFF,
                                   0x123456789ABCDEF0,
                                   0xFFFFFFFF,
                                   0x100000000};
using i128 = __int128;
using u128 = unsigned __int128;

int64_t s32(uint64_t v) { return static_cast<int32_t>(v); }
int64_t s64(uint64_t v) { return static_cast<int64_t>(v); }
uint64_t low32(uint64_t v) { return v & 0xFFFFFFFF; }

}  // namespace

TEST_CASE("32-bit arithmetic") {
  const auto pairs = product(k32, k32);
  check_rows({"add.s32 %d, %a, %b;", "rrr"}, pairs, [](const Row& r) { return low32(r.a + r.b); });
  check_rows({"sub.u32 %d, %a, %b;", "rrr"}, pairs, [](const Row& r) { return low32(r.a - r.b); });
  check_rows({"mul.lo.s32 %d, %a, %b;", "rrr"}, pairs,
             [](const Row& r) { return low32(r.a * r.b); });
  check_rows({"mul.hi.u32 %d, %a, %b;", "rrr"}, pairs,
             [](const Row& r) { return r.a * r.b >> 32; });
  check_rows({"mul.hi.s32 %d, %a, %b;", "rrr"}, pairs,
             [](const Row& r) { return low32(static_cast<uint64_t>(s32(r.a) * s32(r.b)) >> 32); });
  check_rows({"mul.wide.s32 %d, %a, %b;", "drr"}, pairs,
             [](const Row& r) { return static_cast<uint64_t>(s32(r.a) * s32(r.b)); });
  check_rows({"mul.wide.u32 %d, %a, %b;", "drr"}, pairs, [](const Row& r) { return r.a * r.b; });
  check_rows({"min.s32 %d, %a, %b;", "rrr"}, pairs,
             [](const Row& r) { return s32(r.a) < s32(r.b) ? r.a : r.b; });
  check_rows({"max.u32 %d, %a, %b;", "rrr"}, pairs,
             [](const Row& r) { return r.a > r.b ? r.a : r.b; });
  check_rows({"sad.u32 %d, %a, %b, 5;", "rrr"}, pairs,
             [](const Row& r) { return low32((r.a > r.b ? r.a - r.b : r.b - r.a) + 5); });
  check_rows({"add.sat.s32 %d, %a, %b;", "rrr"}, pairs, [](const Row& r) {
    const int64_t v = s32(r.a) + s32(r.b);
    return low32(static_cast<uint64_t>(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v));
  });
  std::vector<sim::test::Row> divisors;
  for (const Row& r : pairs) {
    if (low32(r.b)) divisors.push_back(r);
  }
  check_rows({"div.u32 %d, %a, %b;", "rrr"}, divisors, [](const Row& r) { return r.a / r.b; });
  check_rows({"rem.u32 %d, %a, %b;", "rrr"}, divisors, [](const Row& r) { return r.a % r.b; });
  check_rows({"div.s32 %d, %a, %b;", "rrr"}, divisors,
             [](const Row& r) { return low32(static_cast<uint64_t>(s32(r.a) / s32(r.b))); });
  check_rows({"rem.s32 %d, %a, %b;", "rrr"}, divisors,
             [](const Row& r) { return low32(static_cast<uint64_t>(s32(r.a) % s32(r.b))); });
  check_rows({"mad.lo.s32 %d, %a, %b, %c;", "rrrr"}, product(k32, k32, {0, 1, 0x80000000}),
             [](const Row& r) { return low32(r.a * r.b + r.c); });
  check_rows({"mad.wide.s32 %d, %a, %b, %c;", "drrd"}, product(k32, k32, {0, 1, 1ull << 63}),
             [](const Row& r) { return static_cast<uint64_t>(s32(r.a) * s32(r.b)) + r.c; });
}

TEST_CASE("64-bit arithmetic and carries") {
  const auto pairs = product(k64, k64);
  check_rows({"add.s64 %d, %a, %b;", "ddd"}, pairs, [](const Row& r) { return r.a + r.b; });
  check_rows({"mul.lo.s64 %d, %a, %b;", "ddd"}, pairs, [](const Row& r) { return r.a * r.b; });
  check_rows({"mul.hi.u64 %d, %a, %b;", "ddd"}, pairs,
             [](const Row& r) { return static_cast<uint64_t>(u128(r.a) * r.b >> 64); });
  check_rows({"mul.hi.s64 %d, %a, %b;", "ddd"}, pairs, [](const Row& r) {
    return static_cast<uint64_t>(static_cast<u128>(i128(s64(r.a)) * s64(r.b)) >> 64);
  });
  // A 64-bit sum from two 32-bit ones, and 96 bits of a product.
  const char* add =
      "{ .reg .b32 %x<6>; mov.b64 {%x0, %x1}, %a; mov.b64 {%x2, %x3}, %b;"
      " add.cc.u32 %x4, %x0, %x2; addc.u32 %x5, %x1, %x3; mov.b64 %d, {%x4, %x5}; }";
  check_rows({add, "ddd"}, pairs, [](const Row& r) { return r.a + r.b; });
  const char* sub =
      "{ .reg .b32 %x<6>; mov.b64 {%x0, %x1}, %a; mov.b64 {%x2, %x3}, %b;"
      " sub.cc.u32 %x4, %x0, %x2; subc.u32 %x5, %x1, %x3; mov.b64 %d, {%x4, %x5}; }";
  check_rows({sub, "ddd"}, pairs, [](const Row& r) { return r.a - r.b; });
  const char* mad =
      "{ .reg .b32 %x<4>; mov.b64 {%x0, %x1}, %c; mad.lo.cc.u32 %x2, %a, %b, %x0;"
      " madc.hi.u32 %x3, %a, %b, %x1; mov.b64 %d, {%x2, %x3}; }";
  check_rows({mad, "drrd"}, product(k32, k32, k64), [](const Row& r) { return r.a * r.b + r.c; });
}

TEST_CASE("16-bit arithmetic keeps its register canonical") {
  const std::vector<uint64_t> k16 = {0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x1234};
  check_rows({"add.s16 %d, %a, %b;", "hhh"}, product(k16, k16),
             [](const Row& r) { return (r.a + r.b) & 0xFFFF; });
  check_rows({"mul.lo.s16 %d, %a, %b;", "hhh"}, product(k16, k16),
             [](const Row& r) { return (r.a * r.b) & 0xFFFF; });
  check_rows({"shr.s16 %d, %a, 3;", "hh"}, product(k16, {0}), [](const Row& r) {
    return static_cast<uint64_t>(static_cast<uint16_t>(static_cast<int16_t>(r.a) >> 3));
  });
  check_rows({"not.b16 %d, %a;", "hh"}, product(k16, {0}),
             [](const Row& r) { return ~r.a & 0xFFFF; });
  check_rows({"cvt.s32.s16 %d, %a;", "rh"}, product(k16, {0}),
             [](const Row& r) { return low32(static_cast<uint64_t>(int64_t(int16_t(r.a)))); });
  check_rows({"cvt.s32.s8 %d, %a;", "rh"}, product(k16, {0}),
             [](const Row& r) { return low32(static_cast<uint64_t>(int64_t(int8_t(r.a)))); });
  check_rows({"cvt.s64.s32 %d, %a;", "dr"}, product(k32, {0}),
             [](const Row& r) { return static_cast<uint64_t>(s32(r.a)); });
  check_rows({"cvt.u16.u64 %d, %a;", "hd"}, product(k64, {0}),
             [](const Row& r) { return r.a & 0xFFFF; });
}

TEST_CASE("shifts") {
  const std::vector<uint64_t> counts = {0, 1, 31, 32, 33, 63, 64, 255, 0xFFFFFFFF};
  check_rows({"shl.b32 %d, %a, %b;", "rrr"}, product(k32, counts),
             [](const Row& r) { return r.b > 31 ? 0 : low32(r.a << r.b); });
  check_rows({"shr.u32 %d, %a, %b;", "rrr"}, product(k32, counts),
             [](const Row& r) { return r.b > 31 ? 0 : r.a >> r.b; });
  check_rows({"shr.s32 %d, %a, %b;", "rrr"}, product(k32, counts), [](const Row& r) {
    return low32(static_cast<uint64_t>(s32(r.a) >> (r.b > 31 ? 31 : r.b)));
  });
  check_rows({"shl.b64 %d, %a, %b;", "ddr"}, product(k64, counts),
             [](const Row& r) { return r.b > 63 ? 0 : r.a << r.b; });
  check_rows({"shr.s64 %d, %a, %b;", "ddr"}, product(k64, counts),
             [](const Row& r) { return static_cast<uint64_t>(s64(r.a) >> (r.b > 63 ? 63 : r.b)); });
  check_rows({"shf.l.wrap.b32 %d, %a, %b, %c;", "rrrr"}, product(k32, k32, counts),
             [](const Row& r) { return low32((r.b << 32 | r.a) << (r.c & 31) >> 32); });
  check_rows({"shf.r.clamp.b32 %d, %a, %b, %c;", "rrrr"}, product(k32, k32, counts),
             [](const Row& r) { return low32((r.b << 32 | r.a) >> (r.c > 32 ? 32 : r.c)); });
}

TEST_CASE("bits and bytes") {
  check_rows({"popc.b32 %d, %a;", "rr"}, product(k32, {0}), [](const Row& r) {
    uint64_t n = 0;
    for (int k = 0; k < 32; ++k) n += r.a >> k & 1;
    return n;
  });
  check_rows({"clz.b64 %d, %a;", "rd"}, product(k64, {0}), [](const Row& r) {
    uint64_t n = 0;
    while (n < 64 && !(r.a >> (63 - n) & 1)) ++n;
    return n;
  });
  check_rows({"brev.b32 %d, %a;", "rr"}, product(k32, {0}), [](const Row& r) {
    uint64_t v = 0;
    for (int k = 0; k < 32; ++k) v |= (r.a >> k & 1) << (31 - k);
    return v;
  });
  check_rows({"bfind.s32 %d, %a;", "rr"}, product(k32, {0}), [](const Row& r) {
    const uint64_t v = s32(r.a) < 0 ? low32(~r.a) : r.a;
    for (int k = 31; k >= 0; --k) {
      if (v >> k & 1) return static_cast<uint64_t>(k);
    }
    return uint64_t(0xFFFFFFFF);
  });
  const std::vector<uint64_t> fields = {0, 1, 5, 16, 31, 32, 33, 200};
  // The definition: bit by bit, the sign past the end.
  auto extract = [](const Row& r, bool sign) {
    const unsigned pos = r.b & 255, len = r.c & 255;
    const unsigned top = std::min(pos + len - 1, 31u);
    const uint64_t fill = sign && len ? r.a >> top & 1 : 0;
    uint64_t v = 0;
    for (unsigned k = 0; k < 32; ++k) {
      v |= (k < len && pos + k < 32 ? r.a >> (pos + k) & 1 : fill) << k;
    }
    return v;
  };
  const auto rows = product(k32, fields, fields);
  check_rows({"bfe.u32 %d, %a, %b, %c;", "rrrr"}, rows,
             [&](const Row& r) { return extract(r, false); });
  check_rows({"bfe.s32 %d, %a, %b, %c;", "rrrr"}, rows,
             [&](const Row& r) { return extract(r, true); });
  check_rows({"bfi.b32 %d, %a, 0x0F0F0F0F, %b, %c;", "rrrr"}, rows, [](const Row& r) {
    uint64_t v = 0x0F0F0F0F;
    const unsigned pos = r.b & 255, len = r.c & 255;
    for (unsigned k = 0; k < len && pos + k < 32; ++k) {
      v = (v & ~(1ull << (pos + k))) | (r.a >> k & 1) << (pos + k);
    }
    return v;
  });
  check_rows({"lop3.b32 %d, %a, %b, %c, 0xE8;", "rrrr"}, product(k32, k32, k32),
             [](const Row& r) { return (r.a & r.b) | (r.a & r.c) | (r.b & r.c); });
  check_rows({"prmt.b32 %d, %a, %b, %c;", "rrrr"},
             product({0x33221100, 0x83828180}, {0x77665544, 0xF7F6F5F4},
                     {0x3210, 0x7654, 0x5410, 0x0123, 0xBA98, 0xFEDC}),
             [](const Row& r) {
               uint64_t v = 0;
               for (int k = 0; k < 4; ++k) {
                 const uint64_t pick = r.c >> (4 * k) & 15;
                 uint64_t byte = (r.b << 32 | r.a) >> (8 * (pick & 7)) & 255;
                 if (pick & 8) byte = byte >> 7 ? 255 : 0;
                 v |= byte << (8 * k);
               }
               return v;
             });
  check_rows({"dp4a.s32.s32 %d, %a, %b, %c;", "rrrr"}, product(k32, k32, {0, 7, 0x7FFFFFFF}),
             [](const Row& r) {
               int64_t v = s32(r.c);
               for (int k = 0; k < 32; k += 8) v += int8_t(r.a >> k) * int8_t(r.b >> k);
               return low32(static_cast<uint64_t>(v));
             });
}

TEST_CASE("selection and comparison") {
  check_rows({"setp.lt.s32 %p, %a, %b; selp.b32 %d, 7, 9, %p;", "rrr"}, product(k32, k32),
             [](const Row& r) { return s32(r.a) < s32(r.b) ? 7 : 9; });
  check_rows({"setp.hs.u32 %p, %a, %b; selp.b32 %d, %a, %b, !%p;", "rrr"}, product(k32, k32),
             [](const Row& r) { return r.a >= r.b ? r.b : r.a; });
  check_rows({"setp.eq.s64 %p, %a, 1; setp.gt.or.u64 %q|%p, %a, %b, %p;"
              "{ .reg .b32 %x<2>; selp.u32 %x0, 1, 0, %q; selp.u32 %x1, 2, 0, %p;"
              " or.b32 %d, %x0, %x1; }",
              "rdd"},
             product(k64, k64), [](const Row& r) {
               const bool one = r.a == 1;
               return (r.a > r.b || one ? 1 : 0) | (!(r.a > r.b) || one ? 2 : 0);
             });
  check_rows({"set.le.u32.s32 %d, %a, %b;", "rrr"}, product(k32, k32),
             [](const Row& r) { return s32(r.a) <= s32(r.b) ? 0xFFFFFFFF : 0; });
  check_rows({"slct.b32.s32 %d, %a, %b, %c;", "rrrr"}, product({5}, {6}, k32),
             [](const Row& r) { return s32(r.c) >= 0 ? 5 : 6; });
}
