// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover printf and assert of device code, and recursion, as NVRTC emits them.
#include <cstdio>

#include "sim/tests/kernel_run.h"
#include "sim/tests/nvrtc.h"

using namespace sim;
using namespace sim::test;

namespace {

bool compiled(Device* device, const std::string& source, const char* arch,
              std::vector<std::string> options = {}) {
  Nvrtc nvrtc;
  if (!nvrtc.available()) {
    MESSAGE("NVRTC is not available");
    return false;
  }
  std::string log;
  const std::string ptx = nvrtc.compile(source, arch, &log, std::move(options));
  INFO(log);
  REQUIRE(!ptx.empty());
  device->load(ptx);
  return true;
}

// Calls vprintf with a format and 8-byte arguments stored one after the other.
std::string print_kernel(const std::string& format, const std::vector<uint64_t>& arguments) {
  std::string bytes, stores;
  for (const char c : format) bytes += std::to_string(static_cast<unsigned char>(c)) + ", ";
  for (size_t k = 0; k < arguments.size(); ++k) {
    stores += "mov.u64 %rd1, " + std::to_string(arguments[k]) + "; st.local.u64 [buffer+" +
              std::to_string(8 * k) + "], %rd1;\n";
  }
  return ".version 9.0\n.target sm_90a\n.address_size 64\n"
         ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
         ".global .align 1 .b8 format[" +
         std::to_string(format.size() + 1) + "] = {" + bytes +
         "0};\n.global .align 1 .b8 word[6] = {104, 101, 108, 108, 111, 0};\n"
         ".visible .entry k(.param .u64 out) { .reg .b64 %rd<9>; .reg .b32 %r<4>;\n"
         ".local .align 8 .b8 buffer[128];\n" +
         stores + R"(
    mov.u64 %rd2, format; cvta.global.u64 %rd3, %rd2; mov.u64 %rd4, buffer; cvta.local.u64 %rd5, %rd4;
    { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %rd3; st.param.b64 [a], %rd5;
      call.uni (r), vprintf, (f, a); ld.param.b32 %r1, [r]; }
    ld.param.u64 %rd6, [out]; st.global.u32 [%rd6], %r1; ret; })";
}

struct Printed {
  std::string text;
  Outcome outcome;
  uint32_t returned = 0;
};

Printed printed(const std::string& format, const std::vector<uint64_t>& arguments) {
  Device device;
  Printed p;
  device.settings.print = [&](std::string_view text) { p.text += text; };
  device.load(print_kernel(format, arguments));
  const uint64_t out = device.upload(std::vector<uint32_t>(1, 0));
  p.outcome = device.run("k", 1, 1, out);
  p.returned = device.download<uint32_t>(out, 1)[0];
  return p;
}

uint64_t of(double d) {
  uint64_t bits;
  std::memcpy(&bits, &d, 8);
  return bits;
}

}  // namespace

TEST_CASE("conversions of printf") {
  struct Case {
    std::string format;
    std::vector<uint64_t> arguments;
    std::string want;
  };
  const Case cases[] = {
      {"plain 100%%\n", {}, "plain 100%\n"},
      {"%lld|%llu|%llx", {uint64_t(-5), uint64_t(-5), 255}, "-5|18446744073709551611|ff"},
      {"%ld %lu", {uint64_t(-7), 7}, "-7 7"},
      {"%f|%.2f|%10.3e|%g",
       {of(1.5), of(2.345), of(12345.678), of(0.0001)},
       "1.500000|2.35|"
       " 1.235e+04|0.0001"},
      {"[%8lld] [%-8lld] [%08lld] [%+lld]",
       {42, 42, 42, 42},
       "[      42] [42      ] [00000042] [+42]"},
      {"%y and %", {}, "%y and %"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.format);
    const Printed p = printed(c.format, c.arguments);
    INFO(texts(p.outcome));
    CHECK(p.outcome.error == 0);
    CHECK(p.text == c.want);
    CHECK(p.returned == c.arguments.size());
  }
  // 32-bit arguments lie on 4 bytes: two in each word here.
  CHECK(printed("%d %u %x %X %o %c%c", {uint64_t{0xFFFFFFFE} | 7ull << 32, 0xABull | 0xCDull << 32,
                                        8ull | uint64_t{'a'} << 32, 'b'})
            .text == "-2 7 ab CD 10 ab");
  CHECK(printed("%*d|%.*f", {5 | 12ull << 32, 1, of(0.25)}).text == "   12|0.2");
  CHECK(printed("%hhd %hu", {0x1FF | 0x12345ull << 32}).text == "-1 9029");
}

TEST_CASE("printf of a wild string is a finding") {
  const Printed p = printed("%s", {64});
  CHECK(p.outcome.error == 700);
  REQUIRE(p.outcome.findings.size() == 1);
  CHECK(p.outcome.findings[0].kind == "out_of_bounds");
  CHECK(p.text.empty());
}

TEST_CASE("printf from many blocks comes out block by block, whatever the host threads") {
  std::string first;
  for (const int threads : {1, 4}) {
    Device device;
    std::string text;
    device.settings.print = [&](std::string_view t) { text += t; };
    device.settings.threads = threads;
    if (!compiled(&device, R"(
        extern "C" int printf(const char*, ...);
        extern "C" __global__ void k(float scale) {
          if (threadIdx.x % 2) printf("%s %d.%u: %5.2f %c %lld%%\n", blockIdx.x ? "later" : "first",
                                      (int)blockIdx.x, threadIdx.x, scale * threadIdx.x, 'a' + threadIdx.x,
                                      1ll << 40);
        })",
                  "sm_90a")) {
      return;
    }
    const Outcome o = device.run("k", 5, 4, 0.5f);
    INFO(texts(o));
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
    std::string want;
    for (int b = 0; b < 5; ++b) {
      for (int t = 1; t < 4; t += 2) {
        char line[100];
        std::snprintf(line, sizeof(line), "%s %d.%d: %5.2f %c 1099511627776%%\n",
                      b ? "later" : "first", b, t, 0.5 * t, 'a' + t);
        want += line;
      }
    }
    CHECK(text == want);
  }
}

TEST_CASE("a failed assertion says what failed") {
  Device device;
  if (!compiled(&device, R"cuda(
      extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
      extern "C" __global__ void k(int limit) {
        if (threadIdx.x > limit) __assertfail("x <= limit", "file.cu", 77, "void k(int)", 1);
})cuda",
                "sm_80")) {
    return;
  }
  CHECK(device.run("k", 1, 32, 40).error == 0);
  const Outcome o = device.run("k", 1, 32, 30);
  CHECK(o.error == 710);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "assertion");
  CHECK(o.findings[0].thread[0] == 31);
  CHECK(o.findings[0].text.find("file.cu:77: void k(int): Assertion `x <= limit` failed") !=
        std::string::npos);
}

TEST_CASE("recursion, pointers to functions and virtual functions from C++") {
  const char* source = R"(
    struct Shape { __device__ virtual int area(int) const = 0; };
    struct Square : Shape { __device__ int area(int x) const override { return x * x; } };
    struct Line : Shape { int k; __device__ Line(int v) : k(v) {}
                          __device__ int area(int x) const override { return k * x; } };
    __device__ __noinline__ int ackermann(int m, int n) {
      return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
    }
    typedef int (*Binary)(int, int);
    __device__ __noinline__ int plus(int a, int b) { return a + b; }
    __device__ __noinline__ int times(int a, int b) { return a * b; }
    __device__ Binary operations[2] = {plus, times};
    __device__ __noinline__ int hanoi(int n, int a, int b, int c, int* moves) {
      int local[4] = {n, a, b, c};
      if (n == 0) return 0;
      int s = hanoi(n - 1, a, c, b, moves);
      moves[threadIdx.x] += 1;
      s += hanoi(n - 1, c, b, a, moves);
      return s + local[n & 3];
    }
    extern "C" __global__ void k(int* out, int* moves) {
      int t = threadIdx.x;
      Square square; Line line(t);
      const Shape* shape = t % 3 ? (const Shape*)&square : (const Shape*)&line;
      int r = ackermann(2, t % 4) + operations[t & 1](t, 5) + shape->area(t + 1);
      r += hanoi(t % 5, 1, 2, 3, moves);
      out[t] = r;
    })";
  struct Plain {
    static int hanoi(int n, int a, int b, int c) {
      const int local[4] = {n, a, b, c};
      if (n == 0) return 0;
      const int s = hanoi(n - 1, a, c, b);
      return s + hanoi(n - 1, c, b, a) + local[n & 3];
    }
  };
  for (const char* arch : {"sm_80", "sm_90a"}) {
    Device device(arch);
    device.settings.stack_bytes = 8192;
    if (!compiled(&device, source, arch)) return;
    const uint64_t out = device.upload(std::vector<int>(64, 0));
    const uint64_t moves = device.upload(std::vector<int>(64, 0));
    const Outcome o = device.run("k", 1, 64, out, moves);
    INFO(texts(o));
    REQUIRE(o.error == 0);
    CHECK(o.findings.empty());
    const auto r = device.download<int>(out, 64), m = device.download<int>(moves, 64);
    for (int t = 0; t < 64; ++t) {
      int want = 2 * (t % 4) + 3;  // ackermann(2, n)
      want += t & 1 ? t * 5 : t + 5;
      want += t % 3 ? (t + 1) * (t + 1) : t * (t + 1);
      want += Plain::hanoi(t % 5, 1, 2, 3);
      CHECK(r[t] == want);
      CHECK(m[t] == (1 << t % 5) - 1);
    }
  }
}
