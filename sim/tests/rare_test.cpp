// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover forms that compilers hardly emit: 24-bit products, b128, comparisons with a
// predicate, vector atomics.
#include <cmath>

#include "sim/tests/instruction.h"

using namespace sim;
using namespace sim::test;

namespace {

const std::vector<uint64_t> kWords = {0,          1,          2,          0x7FFFFF,
                                      0x800000,   0xFFFFFF,   0x1000000,  0x12345678,
                                      0x7FFFFFFF, 0x80000000, 0xDEADBEEF, 0xFFFFFFFF};
const std::vector<uint64_t> kHalves = {0x0000, 0x8000, 0x0001, 0x3C00, 0xBC00, 0x7BFF,
                                       0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x4248, 0xC248};

int64_t low24(uint64_t x, bool is_signed) {
  const int64_t v = static_cast<int64_t>(x % 0x1000000);
  return is_signed && v >= 0x800000 ? v - 0x1000000 : v;
}

double f16(uint64_t h) {
  const int e = static_cast<int>(h >> 10 & 31);
  const double m = static_cast<double>(h & 1023);
  double v = e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25);
  if (e == 31) v = m > 0 ? std::nan("") : INFINITY;
  return h & 0x8000 ? -v : v;
}

}  // namespace

TEST_CASE("mul24 and mad24") {
  for (const bool is_signed : {false, true}) {
    for (const bool high : {false, true}) {
      const std::string mods = std::string(high ? ".hi" : ".lo") + (is_signed ? ".s32" : ".u32");
      auto part = [=](const Row& r) {
        const int64_t p = low24(r.a, is_signed) * low24(r.b, is_signed);
        return static_cast<uint32_t>(high ? (p < 0 ? -((-p + 65535) / 65536) : p / 65536) : p);
      };
      check_rows({"mul24" + mods + " %d, %a, %b;", "rrr"}, product(kWords, kWords), part);
      check_rows({"mad24" + mods + " %d, %a, %b, %c;", "rrrr"},
                 product(kWords, kWords, {0, 5, 0xFFFFFFF0}),
                 [=](const Row& r) { return static_cast<uint32_t>(part(r) + r.c); });
    }
  }
  check_rows({"mad24.hi.sat.s32 %d, %a, %b, %c;", "rrrr"},
             product(kWords, kWords, {0x7FFFFFFF, 0x80000000, 3}), [](const Row& r) {
               const double p =
                   std::floor(static_cast<double>(low24(r.a, true) * low24(r.b, true)) / 65536.0);
               const double s = p + static_cast<int32_t>(r.c);
               return static_cast<uint32_t>(
                   static_cast<int64_t>(std::min(2147483647.0, std::max(-2147483648.0, s))));
             });
}

TEST_CASE("lop3 with a predicate") {
  for (const uint32_t lut : {0x96u, 0xCAu, 0x01u, 0xC0u}) {
    check_rows(
        {".reg .pred %u, %v; .reg .b32 %n; setp.gt.s32 %v, %a, 5; lop3.and.b32 %n|%u, %a, %b, "
         "%c, " +
             std::to_string(lut) + ", !%v; selp.b32 %d, 1, 0, %u;",
         "rrrr"},
        product(kWords, kWords, {0, 0xF0F0F0F0, 0xFFFFFFFF}), [=](const Row& r) {
          bool some = false;
          for (int k = 0; k < 32; ++k) {
            const auto bit = [k](uint64_t x) { return static_cast<int>(x >> k & 1); };
            some |= lut >> (4 * bit(r.a) + 2 * bit(r.b) + bit(r.c)) & 1;
          }
          return uint64_t{some && static_cast<int32_t>(r.a) <= 5};
        });
  }
}

TEST_CASE("set with a predicate, setp of two halves") {
  const std::string before = ".reg .pred %v; setp.lt.u32 %v, %a, 0x1000000;\n";
  check_rows({before + "set.lt.or.u32.s32 %d, %a, %b, %v;", "rrr"}, product(kWords, kWords),
             [](const Row& r) {
               const bool less = static_cast<int32_t>(r.a) < static_cast<int32_t>(r.b);
               return less || r.a < 0x1000000 ? 0xFFFFFFFFu : 0u;
             });
  check_rows(
      {before + "set.ltu.xor.f32.f32 %d, %a, %b, !%v;", "rrr"},
      product({0x3F800000, 0x40000000, 0x7FC00000, 0, 0x80000000}, {0x3F800000, 0x7FC00000, 0}),
      [](const Row& r) {
        const bool less = !(as_float(r.a) >= as_float(r.b));
        return less != !(r.a < 0x1000000) ? 0x3F800000u : 0u;
      });
  std::vector<Row> rows;
  for (const uint64_t a : kHalves) {
    for (const uint64_t b : kHalves) rows.push_back({a | b << 16, b | 0x3C000000, 0});
  }
  check_rows(
      {".reg .pred %u, %v, %o; setp.ne.u32 %o, %a, 0x3C003C00; setp.gt.and.f16x2 %u|%v, %a, %b, %o;"
       ".reg .b32 %s, %t; selp.b32 %s, 1, 0, %u; selp.b32 %t, 2, 0, %v; or.b32 %d, %s, %t;",
       "rrr"},
      rows, [](const Row& r) {
        const bool on = r.a != 0x3C003C00;
        const bool low = f16(r.a & 0xFFFF) > f16(r.b & 0xFFFF), high = f16(r.a >> 16) > 1.0;
        return uint64_t{(on && low ? 1u : 0u) | (on && high ? 2u : 0u)};
      });
  check_rows({before + "set.eq.and.f16x2.f16x2 %d, %a, %b, %v;", "rrr"}, rows, [](const Row& r) {
    const bool on = r.a < 0x1000000;
    const bool low = f16(r.a & 0xFFFF) == f16(r.b & 0xFFFF), high = f16(r.a >> 16) == 1.0;
    return uint64_t{(on && low ? 0x3C00u : 0u) | (on && high ? 0x3C000000u : 0u)};
  });
}

TEST_CASE("xorsign of halves") {
  for (const bool max : {false, true}) {
    for (const bool nan : {false, true}) {
      check_rows(
          {std::string(max ? "max" : "min") + (nan ? ".NaN" : "") + ".xorsign.abs.f16 %d, %a, %b;",
           "hhh"},
          product(kHalves, kHalves), [=](const Row& r) -> uint64_t {
            const double a = std::fabs(f16(r.a)), b = std::fabs(f16(r.b));
            if (nan ? a != a || b != b : a != a && b != b) return 0x7FFF;
            const bool first = b != b || (a == a && (max ? a >= b : a <= b));
            return ((r.a ^ r.b) & 0x8000) | ((first ? r.a : r.b) & 0x7FFF);
          });
    }
  }
}

TEST_CASE("conversions that saturate, packs below a byte") {
  check_rows({"cvt.rn.sat.f16.f32 %d, %a;", "hr"},
             product({0, 0x80000000, 0x3F000000, 0x3F800000, 0x40000000, 0xBF800000, 0x7F800000,
                      0xFF800000, 0x7FC00000, 0x3F7FFFFF, 0x3EAAAAAB},
                     {0}),
             [](const Row& r) -> uint64_t {
               const float x = as_float(r.a);
               if (!(x > 0)) return 0;
               if (x >= 0.9998f) return 0x3C00;
               return x == 0.5f ? 0x3800 : 0x3555;  // a third
             });
  check_rows({"cvt.sat.f16.f16 %d, %a;", "hh"}, product(kHalves, {0}),
             [](const Row& r) -> uint64_t {
               const double x = f16(r.a);
               return !(x > 0) ? 0 : x >= 1 ? 0x3C00 : r.a;
             });
  check_rows(
      {"cvt.rna.satfinite.tf32.f32 %d, %a;", "rr"},
      product({0x3F800FFF, 0x3F801000, 0xBF801FFF, 0x7F7FFFFF, 0xFF800000, 0x7FC00001, 1}, {0}),
      [](const Row& r) -> uint64_t {
        const double x = as_float(r.a);
        if (x != x) return 0x7FFFFFFF;
        if (std::fabs(x) > 3.40e38) return (r.a & 0x80000000) | 0x7F7FE000;
        if (x < 1e-30 && x > 0) return 0;
        const double steps = std::round(std::fabs(x) * 1024);  // all between 1 and 2 here
        return bits(static_cast<float>(x < 0 ? -steps / 1024 : steps / 1024));
      });
  for (const int n : {2, 4}) {
    for (const bool is_signed : {false, true}) {
      check_rows({std::string("cvt.pack.sat.") + (is_signed ? "s" : "u") + std::to_string(n) +
                      ".s32.b32 %d, %a, %b, %c;",
                  "rrrr"},
                 product(kWords, kWords, {0, 0x12345678}), [=](const Row& r) {
                   auto cut = [=](uint64_t v) {
                     const int x = static_cast<int>(v),
                               top = is_signed ? (1 << n) / 2 - 1 : (1 << n) - 1;
                     const int bottom = is_signed ? -top - 1 : 0;
                     return static_cast<uint32_t>(std::min(top, std::max(bottom, x))) % (1u << n);
                   };
                   return static_cast<uint32_t>((r.c << 2 * n) + (cut(r.a) << n) + cut(r.b));
                 });
    }
  }
}

TEST_CASE("division by zero is found, and is no error") {
  Device device;
  device.load(instruction_kernel({"div.s32 %d, %a, %b;", "rrr"}));
  const uint64_t out = device.upload(std::vector<uint64_t>(3, 0));
  const uint64_t rows = device.upload(std::vector<Row>{{9, 3, 0}, {9, 0, 0}, {8, 2, 0}});
  const Outcome o = device.run("k", 1, 32, rows, out, 3u);
  CHECK(o.error == 0);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "division_by_zero");
  CHECK(o.findings[0].check == "memcheck");
  CHECK(o.findings[0].thread[0] == 1);
  const auto r = device.download<uint64_t>(out, 3);
  CHECK(r[0] == 3);
  CHECK(r[2] == 4);
}

TEST_CASE("128 bits: moves, loads, stores, exchange and compare-and-swap") {
  Device device;
  device.load(unit(R"(.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .b128 %x<6>; .reg .b64 %d<20>; .reg .b32 %r<6>; .reg .pred %p; .shared .align 16 .b8 s[16];
  mov.u32 %r1, %tid.x; ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out];
  mad.wide.u32 %d3, %r1, 16, %d1; mad.wide.u32 %d4, %r1, 16, %d2;
  ld.global.b128 %x1, [%d3]; mov.b128 {%d5, %d6}, %x1; add.u64 %d5, %d5, 1;
  mov.b128 %x2, {%d6, %d5}; mov.b128 %x3, %x2; st.global.b128 [%d4], %x3;
  setp.ne.u32 %p, %r1, 0; mov.u64 %d7, s;
  @!%p st.shared.b128 [%d7], %x1; bar.sync 0;
  // Every lane adds its pair to the shared one.
AGAIN: ld.shared.b128 %x4, [%d7]; mov.b128 {%d8, %d9}, %x4; cvt.u64.u32 %d10, %r1;
  add.cc.u64 %d8, %d8, %d10; addc.u64 %d9, %d9, %d10; mov.b128 %x5, {%d8, %d9};
  atom.shared.cas.b128 %x0, [%d7], %x4, %x5; mov.b128 {%d11, %d12}, %x0; mov.b128 {%d13, %d14}, %x4;
  xor.b64 %d11, %d11, %d13; xor.b64 %d12, %d12, %d14; or.b64 %d11, %d11, %d12;
  setp.ne.u64 %p, %d11, 0; @%p bra AGAIN;
  bar.sync 0; setp.ne.u32 %p, %r1, 5; @%p ret;
  ld.shared.b128 %x4, [%d7]; atom.global.exch.b128 %x5, [%d1], %x4; st.global.b128 [%d2+512], %x5;
  ret;
})"));
  std::vector<uint64_t> in(64);
  for (size_t k = 0; k < in.size(); ++k) in[k] = 0xFFFFFFFFFFFF0000ull + 977 * k;
  const uint64_t source = device.upload(in), out = device.upload(std::vector<uint64_t>(66, 0));
  const Outcome o = device.run("k", 1, 32, source, out);
  INFO(texts(o));
  REQUIRE(o.error == 0);
  const auto r = device.download<uint64_t>(out, 66);
  int wrong = 0;
  for (size_t t = 0; t < 32; ++t) {
    wrong += r[2 * t] != in[2 * t + 1] || r[2 * t + 1] != in[2 * t] + 1;
  }
  CHECK(wrong == 0);
  CHECK(r[64] == in[0]);
  CHECK(r[65] == in[1]);
  const auto sum = device.download<uint64_t>(source, 2);
  using Wide = unsigned __int128;
  Wide want = Wide(in[1]) << 64 | in[0];
  for (Wide t = 0; t < 32; ++t) want += t << 64 | t;
  CHECK(sum[0] == static_cast<uint64_t>(want));
  CHECK(sum[1] == static_cast<uint64_t>(want >> 64));
}

TEST_CASE("vector atomics of halves; generic f32 additions know their memory") {
  Device device;
  device.load(unit(R"(.visible .entry k(.param .u64 out) {
  .reg .b16 %h<20>; .reg .b64 %d<6>; .reg .b32 %r<12>; .reg .f32 %f<4>; .reg .pred %p;
  .shared .align 4 .f32 s[1]; ld.param.u64 %d1, [out]; mov.u32 %r9, %tid.x;
  mov.b16 %h1, 0x3C00; mov.b16 %h2, 0x4000; mov.b32 %r1, {%h1, %h2};
  red.global.add.noftz.v2.f16x2 [%d1], {%r1, %r1};
  atom.global.add.noftz.v8.f16 {%h3, %h4, %h5, %h6, %h7, %h8, %h9, %h10}, [%d1+16],
    {%h1, %h2, %h1, %h2, %h1, %h2, %h1, %h2};
  cvt.rn.f32.u32 %f1, %r9; cvt.rn.f16.f32 %h11, %f1; cvt.rn.bf16.f32 %h12, %f1;
  red.global.max.noftz.v2.f16 [%d1+32], {%h11, %h1};
  atom.global.min.noftz.v2.bf16 {%h3, %h4}, [%d1+36], {%h12, %h12};
  mov.u64 %d2, s; cvta.shared.u64 %d2, %d2; setp.eq.u32 %p, %r9, 0; mov.f32 %f2, 0f00000001;
  @%p st.shared.f32 [s], 0f00000000; bar.sync 0;
  and.b32 %r2, %r9, 1; setp.eq.u32 %p, %r2, 0; add.u64 %d3, %d1, 40; selp.b64 %d4, %d2, %d3, %p;
  atom.add.f32 %f3, [%d4], %f2; bar.sync 0; ld.shared.f32 %f3, [s]; st.global.f32 [%d1+44], %f3;
  ret;
})"));
  std::vector<uint16_t> start(24, 0);
  start[18] = start[19] = 0x4400;  // bf16 768
  const uint64_t out = device.upload(start);
  const Outcome o = device.run("k", 1, 32, out);
  INFO(texts(o));
  REQUIRE(o.error == 0);
  const auto r = device.download<uint16_t>(out, 24);
  for (int k = 0; k < 4; ++k) CHECK(r[k] == (k % 2 ? 0x5400 : 0x5000));  // 64, 32
  for (int k = 8; k < 16; ++k) CHECK(r[k] == (k % 2 ? 0x5400 : 0x5000));
  CHECK(r[16] == 0x4FC0);  // 31
  CHECK(r[17] == 0x3C00);
  CHECK(r[18] == 0);
  CHECK((r[20] | r[21] << 16) == 0);   // global: flushed
  CHECK((r[22] | r[23] << 16) == 16);  // shared: sixteen of the least
}

TEST_CASE("registers that say how large shared memory is, and where the system's part lies") {
  const std::vector<std::string> names = {"total_smem_size",          "dynamic_smem_size",
                                          "aggr_smem_size",           "reserved_smem_offset_begin",
                                          "reserved_smem_offset_0",   "reserved_smem_offset_1",
                                          "reserved_smem_offset_end", "reserved_smem_offset_cap"};
  std::string body;
  for (size_t k = 0; k < names.size(); ++k) {
    body +=
        "mov.u32 %r1, %" + names[k] + "; st.global.u32 [%d1+" + std::to_string(4 * k) + "], %r1;\n";
  }
  // The system's part may be used, and has been written; the variable lies behind it.
  body +=
      "mov.u32 %r2, %reserved_smem_offset_1; ld.shared.u32 %r3, [%r2+284];\n"
      "red.shared.and.b32 [%r2], 0; mov.u32 %r4, s; st.global.u32 [%d1+32], %r4;\n";
  for (const char* arch : {"sm_80", "sm_90a"}) {
    Device device(arch);
    device.dynamic_shared = 256;
    device.settings.check &= ~kAligncheck;
    device.load(
        unit(".visible .entry k(.param .u64 out) {\n .reg .b32 %r<6>; .reg .b64 %d1;\n"
             " .shared .b32 s[16]; ld.param.u64 %d1, [out];\n" +
                 body + " ret;\n}\n",
             "sm_80"));
    const uint64_t out = device.upload(std::vector<uint32_t>(9, 0));
    const Outcome o = device.run("k", 1, 1, out);
    INFO(texts(o));
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
    const auto r = device.download<uint32_t>(out, 9);
    CHECK(r[0] == 64 + 256);
    CHECK(r[1] == 256);
    CHECK(r[2] == r[0] + 1024);
    CHECK(r[3] <= r[4]);
    CHECK(r[4] + 288 <= r[5]);
    CHECK(r[5] + 288 <= r[6]);
    CHECK(r[6] == 1024);
    CHECK(r[7] == r[6] - r[3]);
    CHECK(r[8] == 1024);
  }
}

TEST_CASE("a launch with a cluster says so in a predicate") {
  for (const uint32_t cluster : {1u, 2u}) {
    Device device;
    device.cluster = cluster;
    device.load(
        unit(".visible .entry k(.param .u64 out) {\n .reg .b32 %r1; .reg .b64 %d1; .reg .pred "
             "%p;\n ld.param.u64 %d1, [out]; mov.pred %p, %is_explicit_cluster;\n"
             " selp.b32 %r1, 7, 9, %p; st.global.u32 [%d1], %r1;\n ret;\n}\n"));
    const uint64_t out = device.upload(std::vector<uint32_t>(1, 0));
    device.settings.check &= ~kRacecheck;  // both blocks store the same
    CHECK(device.run("k", cluster, 1, out).error == 0);
    CHECK(device.download<uint32_t>(out, 1)[0] == (cluster > 1 ? 7 : 9));
  }
}
