// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover PTX text: what is accepted, what is refused and with which line.
#include "sim/ptx/parse/parser.h"

#include "sim/exec/launch.h"
#include "sim/ptx/code.h"
#include "sim/ptx/opcodes/opcodes.h"
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

const std::string kHead = ".version 9.0\n.target sm_90a, debug\n.address_size 64\n";

std::string log_of(const std::string& ptx) {
  std::string log;
  const auto module = Module::parse(ptx, &log);
  CHECK((module == nullptr) == !log.empty());
  return log;
}
std::string body(const std::string& text) {
  return kHead +
         ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<4>; .reg .b32 %r<9>;"
         " .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .b16 %h<4>;\n" +
         text + "\nret;\n}\n";
}

}  // namespace

TEST_CASE("tokens") {
  std::vector<Token> t;
  std::string error;
  REQUIRE(tokenize("ld.global.f32 %f1, [%rd2+-8]; // c\n/* d\n */ 0x1F 017 0b101 3U 0f3F800000 1.5",
                   &t, &error));
  CHECK(t[0].text == "ld.global.f32");
  CHECK(t[1].text == "%f1");
  size_t k = 0;
  while (t[k].bits != 0x1F) ++k;
  CHECK(t[k].line == 3);
  CHECK(t[k + 1].bits == 15);
  CHECK(t[k + 2].bits == 5);
  CHECK(t[k + 3].bits == 3);
  CHECK(t[k + 4].kind == Token::Kind::real32);
  CHECK(t[k + 4].bits == 0x3F800000);
  CHECK(t[k + 5].kind == Token::Kind::real64);
  CHECK(!tokenize("a /* never closed", &t, &error));
}

TEST_CASE("a kernel's header") {
  const std::string ptx = kHead + R"(
.extern .shared .align 1024 .b8 dyn[];
.global .align 8 .u64 ptr = generic(other)+4;
.global .align 4 .b8 other[16] = {1, 2, 255};
.visible .entry k(
  .param .u8 a, .param .u64 .ptr .global .align 1 b, .param .align 16 .b8 c[20], .param .f32 d
)
.maxntid 128, 2, 1
.minnctapersm 2
{
  .reg .b32 %r<3>;
  .shared .align 16 .b8 s[40]; .shared .u16 u;
  .local .align 8 .b8 depot[24];
  .pragma "nounroll";
  mov.u32 %r1, dyn;
  ret;
}
.section .debug_str { .b8 1, 2 { .b8 3 } }
)";
  std::string log;
  const auto m = Module::parse(ptx, &log);
  INFO(log);
  REQUIRE(m != nullptr);
  CHECK(m->target() == "sm_90a");
  const Kernel* k = m->find_kernel("k");
  REQUIRE(k != nullptr);
  REQUIRE(k->params.size() == 4);
  CHECK(k->params[1].offset == 8);
  CHECK(k->params[2].offset == 16);
  CHECK(k->params[3].offset == 36);
  CHECK(k->param_bytes == 40);
  CHECK(k->static_shared_bytes == 42);
  CHECK(k->shared_align == 1024);
  CHECK(k->local_bytes == 32);
  CHECK(k->max_threads == 256);
  CHECK(k->required_block[0] == 0);
  CHECK(k->registers > 0);
  REQUIRE(m->variables().size() == 2);
  CHECK(m->variables()[0].relocations[0].symbol == "other");
  CHECK(m->variables()[0].relocations[0].addend == 4);
  CHECK(m->variables()[1].image[2] == 255);
  CHECK(m->variables()[1].image.size() == 16);
  Device device;
  device.load(ptx);
  CHECK(device.download<uint64_t>(device.image->symbols.at("ptr"), 1)[0] ==
        device.image->symbols.at("other") + 4);
}

TEST_CASE("scopes: the same names and labels many times") {
  std::string text;
  for (int k = 0; k < 3; ++k) {
    text += "{ .reg .pred P1; .reg .b32 x; mov.u32 x, " + std::to_string(k) +
            "; L: setp.eq.u32 P1, x, x; @P1 bra DONE; bra L; DONE: }\n";
  }
  CHECK(log_of(body(text)).empty());
}

TEST_CASE("modifiers are a set") {
  const char* const same[] = {"atom.global.add.u32 %r1, [%rd1], %r2;",
                              "atom.add.relaxed.gpu.global.u32 %r1, [%rd1], %r2;",
                              "atom.global.gpu.relaxed.add.u32 %r1, [%rd1], %r2;",
                              "ld.global.nc.L1::no_allocate.L2::256B.u32 %r1, [%rd1];",
                              "ld.relaxed.gpu.global.u32 %r1, [%rd1];",
                              "add.ftz.rn.f32 %f1, %f2, %f3;",
                              "mov.b64 {%r1, _}, %rd1;",
                              "setp.lt.and.f32 %p1|%p2, %f1, %f2, !%p3;",
                              "ld.global.L1::evict_last.L2::cache_hint.b32 %r1, [%rd1], %rd2;",
                              "mov.u32 %r1, WARP_SZ;",
                              "mov.u32 %r1, %tid.x;",
                              "add.u32 %r1, %laneid, 1;"};
  for (const char* text : same) {
    CAPTURE(text);
    CHECK(log_of(body(text)).empty());
  }
}

TEST_CASE("directives without a blank between them, and modifiers behind one") {
  const std::string text =
      ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param.u64 out)\n{\n"
      " .reg.b32 %r<4>; .reg.pred %p; .reg.b64 %d;\n .shared.align 8 .b8 s[8];\n"
      " mov .u32 %r1, %tid.x;\n add .u32\n %r1, %r1, 1;\n ld.param .u64 %d, [out];\n"
      " setp .lt .u32 %p, %r1, 3;\n @%p st.global .u32 [%d], %r1;\n ret;\n}\n";
  Device device;
  device.load(text);
  const uint64_t out = device.upload(std::vector<uint32_t>(1, 0));
  CHECK(device.run("k", 1, 1, out).error == 0);
  CHECK(device.download<uint32_t>(out, 1)[0] == 1);
}

TEST_CASE("refused with the line") {
  const std::pair<const char*, const char*> cases[] = {
      {"multimem.ld_reduce.global.add.f32 %f1, [%rd1];", "multimem"},
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};", "mma.sync"},
      {"mbarrier.init.global.b64 [%rd1], 1;", "mbarrier"},
      {"cp.async.bulk.tensor.2d.tile::gather4 [%rd1];", "cp.async.bulk"},
      {"add.u32 %r1, %r2, %rd3;", "'%rd3' has 64 bits"},
      {"add.f32 %f1, %f2, %nope;", "undefined register '%nope'"},
      {"bra NOWHERE;", "undefined label 'NOWHERE'"},
      {"frobnicate.u32 %r1;", "frobnicate"},
      {"add.wibble.u32 %r1, %r2, %r3;", "wibble"},
      {"mul.u32 %r1, %r2, %r3;", "unsupported form"},
      {"ld.param.u32 %r1, [p+8];", "past the end"},
      {"call nothing;", "undefined function"},
      {"@%r1 bra X; X:", "not a predicate"},
      {"cvt.rn.u32.f32 %r1, %f1;", "unsupported form"},
  };
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    const std::string log = log_of(body(text));
    CAPTURE(log);
    CHECK(log.find(expected) != std::string::npos);
    CHECK(log.find("line 7") != std::string::npos);
  }
  CHECK(!log_of(".version 9.0\n").empty());
  CHECK(!log_of("").empty());
  CHECK(!log_of(kHead + ".visible .entry k() {").empty());
  CHECK(!log_of(kHead + "garbage").empty());
}

TEST_CASE("truncated text never crashes") {
  const std::string whole = body(
      "{ .reg .b32 y; mov.u32 y, 1; }\nld.global.v2.f32 {%f1, %f2}, [%rd1+4];\nL: @%p1 bra L;");
  for (size_t n = 0; n + 2 < whole.size(); ++n) {
    std::string log;
    const bool parsed = Module::parse(whole.substr(0, n), &log) != nullptr;
    CHECK(!(parsed && n > kHead.size()));
  }
}
