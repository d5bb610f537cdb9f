// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover calls that stay calls: recursion, pointers, lanes at different depths, the
// stack and its end.
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

// Returns a kernel over [out] with %t the thread number and %r9 the result it stores.
std::string kernel(const std::string& body, const std::string& before) {
  return unit(before + R"(
.visible .entry k(.param .u64 out) {
  .reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .b32 %t; .reg .b32 %keep;
  mov.u32 %t, %tid.x; mad.lo.u32 %keep, %t, 77, 5;
)" + body +
              R"(
  mad.lo.u32 %r30, %t, 77, 5; setp.ne.u32 %p7, %r30, %keep; @%p7 trap;
  ld.param.u64 %rd1, [out]; mad.wide.u32 %rd2, %t, 4, %rd1;
  st.global.u32 [%rd2], %r9;
  ret;
}
)");
}

ThreadWords run_threads(const std::string& ptx, uint64_t seed, uint32_t stack,
                        uint32_t threads = 64) {
  Device device;
  device.settings.seed = seed;
  device.settings.threads = 1;
  device.settings.stack_bytes = stack;
  device.settings.instruction_limit = 40'000'000;
  return run_values(device, ptx, 1, threads);
}

template <class F>
void expect(const std::string& ptx, F expected, uint32_t stack = 16384) {
  for (uint64_t seed = 0; seed < 5; ++seed) check_values(run_threads(ptx, seed, stack), expected);
}

// call NAME(a) -> d, all in b32 registers.
std::string call1(const std::string& name, const std::string& d, const std::string& a,
                  const std::string& guard = "") {
  return "{ .param .b32 param0; st.param.b32 [param0+0], " + a + "; .param .b32 retval0;\n  " +
         guard + " call.uni (retval0), " + name + ", (param0);\n  " + guard + " ld.param.b32 " + d +
         ", [retval0+0]; }\n";
}

const std::string kHead = "(.param .b32 ret0) ";
const std::string kRegisters = " .reg .b32 %r<12>; .reg .pred %q<4>; .reg .b64 %rd<6>;\n";

const std::string kFactorial = ".func " + kHead + "fact(.param .b32 p0) {" + kRegisters + R"(
  ld.param.b32 %r1, [p0]; setp.lt.u32 %q1, %r1, 2; mov.u32 %r3, 1; @%q1 bra DONE;
  sub.u32 %r2, %r1, 1;
)" + call1("fact", "%r4", "%r2") +
                               R"(
  mul.lo.u32 %r3, %r1, %r4;
DONE: st.param.b32 [ret0+0], %r3; ret;
})";

uint32_t factorial(uint32_t n) { return n < 2 ? 1 : n * factorial(n - 1); }

}  // namespace

TEST_CASE("recursion with a depth per lane") {
  expect(kernel("and.b32 %r1, %t, 15;\n" + call1("fact", "%r9", "%r1"), kFactorial),
         [](uint32_t t) { return factorial(t & 15); });
}

TEST_CASE("a guarded recursive call") {
  expect(kernel("and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; mov.u32 %r9, 7;\n" +
                    call1("fact", "%r9", "%t", "@%p1"),
                kFactorial),
         [](uint32_t t) { return t % 2 ? 7 : factorial(t); });
}

TEST_CASE("deep recursion: 600 levels, or the end of the stack") {
  const std::string deep = ".func " + kHead + "deep(.param .b32 p0) {" + kRegisters + R"(
  ld.param.b32 %r1, [p0]; setp.eq.u32 %q1, %r1, 0; mov.u32 %r3, 0; @%q1 bra DONE;
  sub.u32 %r2, %r1, 1; xor.b32 %r5, %r1, 21;
)" + call1("deep", "%r4", "%r2") +
                           R"(
  add.u32 %r3, %r5, %r4;
DONE: st.param.b32 [ret0+0], %r3; ret;
})";
  const std::string ptx =
      kernel("mad.lo.u32 %r1, %t, 3, 400;\n" + call1("deep", "%r9", "%r1"), deep);
  expect(
      ptx,
      [](uint32_t t) {
        uint32_t sum = 0;
        for (uint32_t n = 3 * t + 400; n > 0; --n) sum += n ^ 21;
        return sum;
      },
      65536);
  const ThreadWords r = run_threads(ptx, 0, 1024);
  CHECK(r.outcome.error == 714);
  REQUIRE(r.outcome.findings.size() == 1);
  CHECK(r.outcome.findings[0].kind == "stack_overflow");
  CHECK(r.outcome.findings[0].text.find("1024 bytes") != std::string::npos);
}

TEST_CASE("two calls a level, with predicates and 64-bit values live across them") {
  const std::string fib = ".func " + kHead + "fib(.param .b32 p0) {" + kRegisters + R"(
  ld.param.b32 %r1, [p0]; setp.lt.u32 %q1, %r1, 2; mov.u32 %r3, %r1; @%q1 bra DONE;
  and.b32 %r7, %r1, 1; setp.eq.u32 %q2, %r7, 1; cvt.u64.u32 %rd1, %r1; shl.b64 %rd1, %rd1, 33;
  sub.u32 %r2, %r1, 1; sub.u32 %r5, %r1, 2;
)" + call1("fib", "%r4", "%r2") +
                          call1("fib", "%r6", "%r5") + R"(
  add.u32 %r3, %r4, %r6; @%q2 add.u32 %r3, %r3, 1;
  shr.u64 %rd1, %rd1, 33; cvt.u32.u64 %r8, %rd1; sub.u32 %r8, %r8, %r1; add.u32 %r3, %r3, %r8;
DONE: st.param.b32 [ret0+0], %r3; ret;
})";
  struct Plain {
    static uint32_t fib(uint32_t n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) + (n & 1); }
  };
  expect(kernel("and.b32 %r1, %t, 7; add.u32 %r1, %r1, 2;\n" + call1("fib", "%r9", "%r1"), fib),
         [](uint32_t t) { return Plain::fib((t & 7) + 2); });
}

TEST_CASE("mutual recursion with local arrays, barriers of the warp inside") {
  const std::string pair = ".func " + kHead + "odd(.param .b32 p0);\n.func " + kHead +
                           "even(.param .b32 p0) {" + kRegisters + R"(
  .local .align 8 .b8 own[16];
  ld.param.b32 %r1, [p0]; setp.eq.u32 %q1, %r1, 0; mov.u32 %r3, 1; @%q1 bra DONE;
  st.local.u32 [own+4], %r1; sub.u32 %r2, %r1, 1;
)" + call1("odd", "%r4", "%r2") +
                           R"(
  ld.local.u32 %r5, [own+4]; mad.lo.u32 %r3, %r5, 3, %r4;
DONE: st.param.b32 [ret0+0], %r3; ret;
}
.func )" + kHead + "odd(.param .b32 p0) {" +
                           kRegisters +
                           R"(
  .local .align 8 .b8 own[16];
  ld.param.b32 %r1, [p0]; setp.eq.u32 %q1, %r1, 0; mov.u32 %r3, 2; @%q1 bra DONE;
  mov.u64 %rd1, own; cvta.local.u64 %rd1, %rd1; st.u32 [%rd1+8], %r1; sub.u32 %r2, %r1, 1;
)" + call1("even", "%r4", "%r2") +
                           R"(
  ld.u32 %r5, [%rd1+8]; mad.lo.u32 %r3, %r4, 5, %r5;
DONE: st.param.b32 [ret0+0], %r3; ret;
})";
  struct Plain {
    static uint32_t even(uint32_t n) { return n == 0 ? 1 : 3 * n + odd(n - 1); }
    static uint32_t odd(uint32_t n) { return n == 0 ? 2 : 5 * even(n - 1) + n; }
  };
  expect(kernel("and.b32 %r1, %t, 31;\n" + call1("even", "%r9", "%r1") +
                    "shfl.sync.bfly.b32 %r9, %r9, 1, 31, -1;\n",
                pair),
         [](uint32_t t) { return Plain::even((t ^ 1) & 31); });
}

TEST_CASE("calls through a table: each lane its own function") {
  const std::string four = [] {
    std::string all;
    for (int k = 0; k < 4; ++k) {
      all += ".func " + kHead + "f" + std::to_string(k) + "(.param .b32 p0) {" + kRegisters +
             "ld.param.b32 %r1, [p0]; mad.lo.u32 %r1, %r1, " + std::to_string(k + 2) + ", " +
             std::to_string(100 * k) + "; st.param.b32 [ret0+0], %r1; ret; }\n";
    }
    return all + ".global .align 8 .u64 table[4] = {f0, f1, f2, f3};\n";
  }();
  const std::string indirect =
      R"({ .param .b32 param0; st.param.b32 [param0+0], %t; .param .b32 retval0;
    prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (retval0), %rd5, (param0), prototype_0;
    ld.param.b32 %r9, [retval0+0]; })";
  const std::string from_table =
      "and.b32 %r1, %t, 3; mov.u64 %rd3, table; "
      "mad.wide.u32 %rd4, %r1, 8, %rd3; ld.global.u64 %rd5, [%rd4];\n";
  expect(
      kernel(from_table + indirect + "activemask.b32 %r2; setp.ne.u32 %p1, %r2, -1; @%p1 trap;\n",
             four),
      [](uint32_t t) { return t * ((t & 3) + 2) + 100 * (t & 3); });
  expect(kernel("setp.lt.u32 %p1, %t, 9; mov.u64 %rd5, f2; mov.u64 %rd6, f3; "
                "selp.b64 %rd5, %rd5, %rd6, %p1;\n" +
                    indirect,
                four),
         [](uint32_t t) { return t < 9 ? 4 * t + 200 : 5 * t + 300; });
  const ThreadWords r = run_threads(kernel("mov.u64 %rd5, 4096;\n" + indirect, four), 0, 1024);
  CHECK(r.outcome.error == 718);
  REQUIRE(r.outcome.findings.size() == 1);
  CHECK(r.outcome.findings[0].kind == "invalid_pc");
}

TEST_CASE("returns in many places, exits and traps in functions") {
  const std::string many = ".func " + kHead + "many(.param .b32 p0) {" + kRegisters + R"(
  ld.param.b32 %r1, [p0]; st.param.b32 [ret0+0], 5; setp.eq.u32 %q1, %r1, 3; @%q1 ret;
  setp.gt.u32 %q2, %r1, 40; @%q2 exit; setp.gt.u32 %q3, %r1, 100; @%q3 trap;
  sub.u32 %r2, %r1, 1; setp.lt.u32 %q1, %r1, 3; @%q1 bra LOW;
)" + call1("many", "%r4", "%r2") +
                           R"(
  add.u32 %r4, %r4, 1; st.param.b32 [ret0+0], %r4; ret;
LOW: st.param.b32 [ret0+0], %r1; @%q1 ret; trap;
})";
  expect(kernel(call1("many", "%r9", "%t"), many), [](uint32_t t) {
    return t > 40 ? 0 : t < 3 ? t : 5 + t - 3;
  });
}

TEST_CASE("alloca grows the frame and goes with it") {
  const std::string use = ".func " + kHead + "use(.param .b32 p0) {" + kRegisters + R"(
  ld.param.b32 %r1, [p0]; shl.b32 %r2, %r1, 2; add.u32 %r2, %r2, 4; cvt.u64.u32 %rd1, %r2;
  alloca.u64 %rd2, %rd1, 16; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd3, %rd2;
  st.local.u32 [%rd3], %r1; setp.eq.u32 %q1, %r1, 0; mov.u32 %r4, 0; @%q1 bra DONE;
  sub.u32 %r5, %r1, 1;
)" + call1("use", "%r4", "%r5") +
                          R"(
DONE: ld.local.u32 %r6, [%rd3]; add.u32 %r4, %r4, %r6; st.param.b32 [ret0+0], %r4; ret;
})";
  const std::string body =
      "and.b32 %r1, %t, 7; mov.u32 %r9, 0; mov.u32 %r3, 0;\n"
      "AGAIN: stacksave.u64 %rd7; alloca.u64 %rd8, 64;\n"
      "st.local.u32 [%rd8+60], %r3;\n" +
      call1("use", "%r4", "%r1") +
      "ld.local.u32 %r5, [%rd8+60]; add.u32 %r9, %r9, %r4; add.u32 %r9, %r9, %r5;\n"
      "stackrestore.u64 %rd7; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 50;\n"
      "@%p1 bra AGAIN;\n";
  expect(
      kernel(body, use),
      [](uint32_t t) {
        const uint32_t n = t & 7;
        return 50 * (n * (n + 1) / 2) + 49 * 50 / 2;
      },
      1024);
  const ThreadWords r = run_threads(kernel("alloca.u64 %rd1, 2048; mov.u32 %r9, 0;", ""), 0, 1024);
  CHECK(r.outcome.error == 714);
}

TEST_CASE("a parameter taken by address, and one nobody wrote") {
  const std::string by_address =
      R"(.func (.param .b32 ret0) pick(.param .align 4 .b8 p0[12], .param .b32 n) {
  .reg .b64 %rd<4>; .reg .b32 %r<6>; .reg .pred %q;
  mov.b64 %rd1, p0; ld.param.b32 %r1, [n]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
  ld.param.b32 %r2, [%rd1]; setp.eq.u32 %q, %r1, 0; @%q bra DONE;
  { .param .align 4 .b8 a[12]; .param .b32 b; .param .b32 r; sub.u32 %r3, %r1, 1; ld.param.b32 %r4, [p0+4];
    st.param.b32 [a], %r4; st.param.b32 [a+4], 50; st.param.b32 [a+8], 60; st.param.b32 [b], %r3;
    call (r), pick, (a, b); ld.param.b32 %r5, [r]; add.u32 %r2, %r2, %r5; }
  DONE: st.param.b32 [ret0], %r2; ret; })";
  const std::string body = R"({ .param .align 4 .b8 a[12]; .param .b32 b; .param .b32 r;
    and.b32 %r1, %t, 1; st.param.b32 [a], 10; st.param.b32 [a+4], 20; SKIP st.param.b32 [b], %r1;
    call (r), pick, (a, b); ld.param.b32 %r9, [r]; })";
  auto with = [&](const std::string& text) {
    std::string b = body;
    return kernel(b.replace(b.find("SKIP"), 4, text), by_address);
  };
  // 10, or 20 and then pick({20, 50, 60}, 0).
  expect(with("st.param.b32 [a+8], 30;"), [](uint32_t t) { return t & 1 ? 20 + 20 : 10; });
  const std::string reads =
      ".func (.param .b32 ret0) f(.param .align 4 .b8 p0[8]) { .reg .b32 %r<3>;\n"
      "ld.param.b32 %r1, [p0+4]; st.param.b32 [ret0], %r1; ret; }";
  const ThreadWords r =
      run_threads(kernel("{ .param .align 4 .b8 a[8]; .param .b32 r; st.param.b32 [a], 1;\n"
                         "call (r), f, (a); ld.param.b32 %r9, [r]; }",
                         reads),
                  0, 1024);
  REQUIRE(r.outcome.findings.size() == 1);
  CHECK(r.outcome.findings[0].kind == "uninitialized");
}

TEST_CASE("what cannot be called is refused by name") {
  auto refused = [](const std::string& ptx) {
    std::string log;
    CHECK(Module::parse(ptx, &log) == nullptr);
    return log;
  };
  const std::string text = kernel(
      "{ .param .b64 n; .param .b64 r; st.param.b64 [n], 8;\n"
      "call (r), realloc, (n); }",
      ".extern .func (.param .b64 r) realloc(.param .b64 n);");
  CHECK(refused(text).find("'realloc'") != std::string::npos);
  CHECK(refused(kernel("call nobody;", "")).find("'nobody'") != std::string::npos);
  CHECK(
      refused(kernel(call1("fact", "%r9", "%t") + "{ .param .b32 a; call fact, (a); }", kFactorial))
          .find("number of arguments") != std::string::npos);
}

TEST_CASE("lanes at different places keep 32-bit and 64-bit values apart") {
  // Both sides sleep in the middle, so each runs between the other's write and read.
  expect(kernel(R"(
    setp.lt.u32 %p1, %t, 48; and.b32 %r1, %t, 3; setp.eq.u32 %p2, %r1, 0; @%p2 bra WIDE;
    mul.lo.u32 %r2, %t, 3; add.u32 %r3, %t, 9; nanosleep.u32 20; nanosleep.u32 20;
    xor.b32 %r9, %r2, %r3; bra DONE;
  WIDE: mul.wide.u32 %rd4, %t, 5; mul.wide.u32 %rd5, %t, 6; nanosleep.u32 20; nanosleep.u32 20;
    add.u64 %rd4, %rd4, %rd5; cvt.u32.u64 %r9, %rd4;
  DONE: )",
                ""),
         [](uint32_t t) { return t % 4 ? (3 * t) ^ (t + 9) : 11 * t; });
}
