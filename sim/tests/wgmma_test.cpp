// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover wgmma: every shape and type, both majors, every swizzle, against products of
// plain matrices.
#include "sim/tests/wgmma_model.h"

namespace sim::test {
namespace {

const std::string kAround = kFence + "  $" + kCommit + wait(0);

std::string around(const std::string& instruction) {
  std::string s = kAround;
  s.replace(s.find('$'), 1, instruction);
  return s;
}

void check(const WgmmaCase& c, uint32_t seed = 1, const Settings& settings = {}) {
  const WgmmaProblem p = wgmma_problem(c, seed);
  const WgmmaResult r = run_wgmma(c, p, around(wgmma_text(c)), settings);
  INFO(wgmma_text(c));
  INFO(texts(r.outcome));
  CHECK(r.outcome.error == 0);
  CHECK(r.outcome.findings.empty());
  CHECK(wrong_elements(c, p, r.d) == 0);
  CHECK(r.outcome.counters.tensor_ops == 2ull * 64 * c.n * c.depth());
}

WgmmaCase make(int n, const std::string& sum, const std::string& a, const std::string& b) {
  WgmmaCase c;
  c.n = n;
  c.sum = sum;
  c.a = a;
  c.b = b;
  c.b_tile = tile(false, 128, n);
  return c;
}

TEST_CASE("wgmma: bf16 with every N") {
  for (int n = 8; n <= 256; n += 8) check(make(n, "f32", "bf16", "bf16"), n);
}

TEST_CASE("wgmma: every type, from memory and from registers") {
  std::vector<WgmmaCase> cases = {make(64, "f32", "f16", "f16"), make(40, "f16", "f16", "f16"),
                                  make(96, "f32", "tf32", "tf32")};
  for (const char* a : {"e4m3", "e5m2"}) {
    for (const char* b : {"e4m3", "e5m2"}) {
      cases.push_back(make(24, "f32", a, b));
      cases.push_back(make(72, "f16", a, b));
    }
  }
  for (const char* a : {"s8", "u8"}) {
    for (const char* b : {"s8", "u8"}) {
      cases.push_back(make(48, "s32", a, b));
      cases.push_back(make(24, "s32", a, b));
      cases.back().extra = ".satfinite";
    }
  }
  cases.push_back(make(32, "s32", "b1", "b1"));
  cases.back().extra = ".and.popc";
  for (WgmmaCase& c : cases) {
    check(c);
    c.a_registers = true;
    check(c, 2);
  }
}

TEST_CASE("wgmma: both majors and every swizzle of 16-bit tiles") {
  for (const uint32_t width : {0u, 32u, 64u, 128u}) {
    for (const bool a_mn : {false, true}) {
      for (const bool b_mn : {false, true}) {
        for (const int n : {24, 136}) {
          WgmmaCase c = make(n, "f32", n == 24 ? "f16" : "bf16", n == 24 ? "f16" : "bf16");
          c.a_tile = tile(a_mn, width, 64);
          c.b_tile = tile(b_mn, width, n);
          check(c);
          // The other operand's way of lying has no influence.
          c.a_tile = tile(a_mn, 128, 64);
          check(c, 2);
        }
      }
    }
    WgmmaCase c = make(16, "f32", "e4m3", "e5m2");
    c.a_tile = tile(false, width, 64);
    c.b_tile = tile(false, width, 16);
    check(c);
    c = make(16, "f32", "tf32", "tf32");
    c.a_tile = tile(false, width, 64);
    c.b_tile = tile(false, width, 16);
    check(c);
  }
}

TEST_CASE("wgmma: a start inside the swizzled row") {
  for (const uint32_t step : {32u, 64u, 96u}) {
    WgmmaCase c = make(64, "f32", "bf16", "bf16");
    c.a_tile = tile(false, 128, 64, step);
    c.b_tile = tile(false, 128, 64, 96 - step / 2 / 32 * 32);
    check(c);
  }
}

TEST_CASE("wgmma: worked addresses") {
  auto at = [](bool mn_major, uint32_t width, uint32_t leading, uint32_t stride, uint32_t start,
               uint32_t mn, uint32_t k) {
    return Tile{mn_major, width, leading, stride, 0}.address(start, mn, k, 2);
  };
  CHECK(at(false, 128, 16, 1024, 0x8020, 13, 4) == 0x86F8);
  CHECK(at(false, 128, 16, 1024, 0x8040, 13, 4) == 0x8698);
  CHECK(at(false, 64, 16, 512, 0x8020, 13, 4) == 0x8348);
  CHECK(at(false, 32, 16, 256, 0x8000, 13, 12) == 0x81A8);
  CHECK(at(false, 0, 1024, 128, 0x8000, 13, 12) == 0x84D8);
  CHECK(at(true, 128, 8192, 1024, 0x8000, 70, 11) == 0xA5BC);
  CHECK(at(true, 64, 4096, 512, 0x8000, 70, 11) == 0xA2DC);
  CHECK(at(true, 32, 2048, 256, 0x8000, 70, 11) == 0xA16C);
  CHECK(at(true, 0, 1024, 128, 0x8000, 70, 11) == 0x883C);
  CHECK((Tile{false, 128, 16, 1024, 0x8000}.descriptor()) == 0x4000004000010800ull);
  CHECK((Tile{true, 128, 8192, 1024, 0x8000}.descriptor()) == 0x4000004002000800ull);
  // Lane 22 of warp 2.
  CHECK(2 * 16 + wgmma_d(5, 2, 11).row == 45);
  CHECK(wgmma_d(5, 2, 11).col == 21);
  CHECK(2 * 16 + wgmma_a(16, 5, 2, 5).row == 37);
  CHECK(wgmma_a(16, 5, 2, 5).col == 13);
}

TEST_CASE("wgmma: scale-d, negation") {
  for (const bool registers : {false, true}) {
    for (const std::string scale : {"0", "1", "p"}) {
      for (const uint32_t flag : {0u, 1u}) {
        WgmmaCase c = make(32, "f32", "f16", "f16");
        c.a_registers = registers;
        c.scale = scale == "p" ? "%p" : scale;
        c.scale_a = flag ? -1 : 1;
        c.scale_b = registers ? -1 : 1;
        const WgmmaProblem p = wgmma_problem(c, 5);
        const WgmmaResult r = run_wgmma(c, p, around(wgmma_text(c)), {}, flag);
        INFO(wgmma_text(c));
        INFO(texts(r.outcome));
        CHECK(r.outcome.findings.empty());
        CHECK(wrong_elements(c, p, r.d, scale == "1" || (scale == "p" && flag == 1)) == 0);
      }
    }
  }
}

TEST_CASE("wgmma: a chain on the same accumulators") {
  WgmmaCase c = make(16, "f32", "bf16", "bf16");
  WgmmaProblem p = wgmma_problem(c, 9);
  // Few bits, so that nothing is rounded on the way.
  for (Matrix* m : {&p.a, &p.b}) {
    for (uint64_t& b : m->bits) b &= 0xFFF0;
  }
  for (uint64_t& b : p.c.bits) b &= 0xFFFFC000;
  for (const AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::lazy, AsyncPolicy::random}) {
    Settings settings;
    settings.async_policy = policy;
    for (settings.seed = 0; settings.seed < 5; ++settings.seed) {
      // Twice A * B, then minus it: once.
      WgmmaCase minus = c;
      minus.scale_b = -1;
      const std::string body = kFence + wgmma_text(c) + wgmma_text(c) + kCommit +
                               wgmma_text(minus) + kCommit + wait(1) + wait(0);
      const WgmmaResult r = run_wgmma(c, p, body, settings);
      INFO(texts(r.outcome));
      CHECK(r.outcome.findings.empty());
      CHECK(wrong_elements(c, p, r.d) == 0);
    }
  }
}

TEST_CASE("wgmma: forms that do not exist are refused") {
  auto refused = [](const WgmmaCase& c, const std::string& text) {
    std::string log;
    CAPTURE(text);
    CHECK(Module::parse(wgmma_kernel(c, around(text)), &log) == nullptr);
    CHECK(log.find("line ") != std::string::npos);
  };
  auto refused_case = [&](const WgmmaCase& c) { refused(c, wgmma_text(c)); };
  refused_case(make(40, "s32", "s8", "s8"));
  refused_case(make(12, "f32", "f16", "f16"));
  refused_case(make(264, "f32", "f16", "f16"));
  refused_case(make(16, "f16", "bf16", "bf16"));
  refused_case(make(16, "f32", "f16", "bf16"));
  WgmmaCase c = make(16, "f32", "f16", "f16");
  c.scale_a = 2;
  refused_case(c);
  c.scale_a = 1;
  std::string text = wgmma_text(c);
  text.replace(text.find("m64"), 3, "m32");
  refused(c, text);
  WgmmaCase fp8 = make(16, "f32", "e4m3", "e4m3");
  text = wgmma_text(fp8);
  text.replace(text.find(";"), 1, ", 0, 0;");
  refused(fp8, text);
  refused(c, "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16 " + braces("d", 8) +
                 ", %da, %db, %x, 0, 1, 1, 1, 0, 0;\n");
}

}  // namespace
}  // namespace sim::test
