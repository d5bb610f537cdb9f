// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover atom and red: every operation from 96 threads at once, in global and in shared
// memory.
#include <algorithm>
#include <array>

#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr uint32_t kThreads = 96;

struct Result {
  std::array<uint64_t, 2> memory;  // what the threads worked on
  std::vector<uint32_t> old;       // %r9 of every thread
};

// Replaces @S by the space and @M by the address of two 64-bit words in it. %t is the thread.
Result run_atomics(std::string body, bool shared, std::array<uint64_t, 2> initial,
                   const std::string& operands = "") {
  auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at; (at = body.find(from)) != std::string::npos;) body.replace(at, 2, to);
  };
  replace("@S", shared ? "shared" : "global");
  replace("@M", shared ? "s" : "%rd1");
  const std::string in = R"(@%p0 ld.global.v2.b64 {%rd3, %rd4}, [%rd1];
    @%p0 st.shared.v2.b64 [s], {%rd3, %rd4}; bar.sync 0;)";
  const std::string out = R"(bar.sync 0; @%p0 ld.shared.v2.b64 {%rd3, %rd4}, [s];
    @%p0 st.global.v2.b64 [%rd1], {%rd3, %rd4};)";
  Device device;
  device.load(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 memory, .param .u64 out) {
  .reg .pred %p0; .reg .b16 %h<4>; .reg .b32 %r<10>; .reg .b64 %rd<12>; .reg .f32 %f<8>;
  .reg .f64 %g<4>; .reg .b32 %t; .shared .align 16 .b64 s[2];
  mov.u32 %t, %tid.x; setp.eq.u32 %p0, %t, 0; mov.u32 %r9, 0;
  ld.param.u64 %rd1, [memory]; ld.param.u64 %rd2, [out]; mad.wide.u32 %rd2, %t, 4, %rd2;
)" + operands +
              (shared ? in : "") + body + (shared ? out : "") +
              "st.global.u32 [%rd2], %r9; ret;\n}\n");
  const uint64_t memory = device.upload(std::vector<uint64_t>(initial.begin(), initial.end()));
  const uint64_t old = device.upload(std::vector<uint32_t>(kThreads, 0));
  const Outcome o = device.run("k", 1, kThreads, memory, old);
  INFO(texts(o));
  REQUIRE(o.error == 0);
  CHECK(o.findings.empty());
  const auto after = device.download<uint64_t>(memory, 2);
  return {{after[0], after[1]}, device.download<uint32_t>(old, kThreads)};
}

struct Case {
  const char* body;
  uint64_t initial, expected;  // of the first word
};
void check(const std::vector<Case>& cases, const std::string& operands) {
  for (const Case& c : cases) {
    for (const bool shared : {false, true}) {
      CAPTURE(c.body);
      CAPTURE(shared);
      CHECK(run_atomics(c.body, shared, {c.initial, 0}, operands).memory[0] == c.expected);
    }
  }
}

}  // namespace

TEST_CASE("bitwise operations, with and without a result") {
  check({{"not.b32 %r1, %r1; atom.@S.and.b32 %r9, [@M], %r1;", 0xFFFFFFFF, 0xFFF00000},
         {"atom.@S.or.b32 %r9, [@M], %r1;", 0x80000000, 0x800FFFFF},
         {"atom.@S.xor.b32 %r9, [@M], %r2;", 0x0000FFFF, 0xFFFF0000},
         {"not.b32 %r1, %r1; red.@S.and.b32 [@M], %r1;", 0xFFFFFFFF, 0xFFF00000},
         {"red.@S.or.b32 [@M], %r1;", 0x80000000, 0x800FFFFF},
         {"red.@S.xor.b32 [@M], %r2;", 0x0000FFFF, 0xFFFF0000},
         {"atom.@S.or.b64 %rd6, [@M], %rd5;", 0x5555ull << 48, 0x5555FFFFFFFFFFFF},
         {"not.b64 %rd5, %rd5; red.@S.and.b64 [@M], %rd5;", ~0ull, 0xFFFFull << 48},
         {"red.@S.xor.b64 [@M], %rd5;", 0, 0}},
        // One bit: of 20, of 32 (each three times), of 48 (each twice).
        R"(rem.u32 %r1, %t, 20; shl.b32 %r1, 1, %r1; rem.u32 %r2, %t, 32; shl.b32 %r2, 1, %r2;
  rem.u32 %r3, %t, 48; mov.u64 %rd5, 1; shl.b64 %rd5, %rd5, %r3;
)");
}

TEST_CASE("minimum and maximum, signed and not") {
  check({{"atom.@S.min.s32 %r9, [@M], %r1;", 7, 0xFFFFFFCE},  // -50
         {"atom.@S.min.u32 %r9, [@M], %r1;", 7, 0},
         {"atom.@S.max.s32 %r9, [@M], %r1;", 7, 45},
         {"red.@S.max.u32 [@M], %r1;", 7, 0xFFFFFFFF},
         {"red.@S.min.s64 [@M], %rd5;", 7, ~0ull - 49},
         {"red.@S.min.u64 [@M], %rd5;", 7, 0},
         {"atom.@S.max.s64 %rd6, [@M], %rd5;", 7, 45},
         {"atom.@S.max.u64 %rd6, [@M], %rd5;", 7, ~0ull}},
        "sub.s32 %r1, %t, 50; cvt.s64.s32 %rd5, %r1;\n");
}

TEST_CASE("counters that wrap") {
  check({{"atom.@S.inc.u32 %r9, [@M], 9;", 0, 6},  // 96 modulo 10
         {"red.@S.inc.u32 [@M], 9;", 50, 5},       // past its limit: to zero, then 95
         {"atom.@S.dec.u32 %r9, [@M], 6;", 3, 5},  // 3 - 96 modulo 7
         {"red.@S.dec.u32 [@M], 6;", 100, 2},      // past its limit: to 6, then 95
         {"atom.@S.add.u32 %r9, [@M], 3; red.@S.max.u32 [@M], %r9;", 0, 288},
         {"red.@S.add.s32 [@M], -2;", 100, 0xFFFFFFA4},
         {"atom.@S.add.u64 %rd6, [@M], 8589934592;", 1, 96ull << 33 | 1}},
        "");
  for (const bool shared : {false, true}) {
    auto old = run_atomics("atom.@S.dec.u32 %r9, [@M], 95;", shared, {95, 0}).old;
    std::sort(old.begin(), old.end());
    for (uint32_t k = 0; k < kThreads; ++k) CHECK(old[k] == k);
  }
}

TEST_CASE("exchange hands every value to one thread") {
  for (const bool shared : {false, true}) {
    Result r = run_atomics("add.u32 %r1, %t, 1; atom.@S.exch.b32 %r9, [@M], %r1;", shared, {0, 0});
    r.old.push_back(static_cast<uint32_t>(r.memory[0]));
    std::sort(r.old.begin(), r.old.end());
    for (uint32_t k = 0; k <= kThreads; ++k) CHECK(r.old[k] == k);
    r = run_atomics(
        "cvt.u64.u32 %rd5, %t; shl.b64 %rd5, %rd5, 40; atom.@S.exch.b64 %rd6, [@M+8],"
        " %rd5; shr.u64 %rd6, %rd6, 40; cvt.u32.u64 %r9, %rd6;",
        shared, {0, 96ull << 40});
    r.old.push_back(static_cast<uint32_t>(r.memory[1] >> 40));
    std::sort(r.old.begin(), r.old.end());
    for (uint32_t k = 0; k <= kThreads; ++k) CHECK(r.old[k] == k);
  }
}

TEST_CASE("compare and swap: one winner") {
  for (const bool shared : {false, true}) {
    for (const char* body :
         {"add.u32 %r1, %t, 1; atom.@S.cas.b32 %r9, [@M], 0, %r1;",
          "add.u32 %r1, %t, 1; cvt.u16.u32 %h1, %r1; atom.@S.cas.b16 %h2, [@M], 0, %h1;"
          " cvt.u32.u16 %r9, %h2;",
          "add.u32 %r1, %t, 1; cvt.u64.u32 %rd5, %r1; atom.@S.cas.b64 %rd6, [@M], 0, %rd5;"
          " cvt.u32.u64 %r9, %rd6;"}) {
      CAPTURE(body);
      const Result r = run_atomics(body, shared, {0, 0});
      CHECK(std::count(r.old.begin(), r.old.end(), 0u) == 1);
      REQUIRE(r.memory[0] >= 1);
      REQUIRE(r.memory[0] <= kThreads);
      CHECK(r.old[r.memory[0] - 1] == 0);
      CHECK(std::count(r.old.begin(), r.old.end(), r.memory[0]) == kThreads - 1);
    }
  }
}

TEST_CASE("floating-point sums") {
  check({{"red.@S.add.f32 [@M], 0f3F000000;", 0, 0x42400000},  // 96 halves
         {"atom.@S.add.f64 %g1, [@M], 0d3FE0000000000000;", 0, 0x4048000000000000},
         {"red.@S.add.noftz.f16 [@M], %h1;", 0xABCD0000, 0xABCD5600},
         {"atom.@S.add.noftz.f16x2 %r9, [@M], %r1;", 0, 0x52005600},
         {"red.@S.add.noftz.f16x2 [@M], %r1;", 0, 0x52005600},
         {"atom.@S.add.noftz.bf16 %h3, [@M+2], %h2;", 0x00001234, 0x42C01234},
         {"red.@S.add.noftz.bf16x2 [@M], %r2;", 0, 0x434042C0}},
        R"(mov.b16 %h1, 0x3C00; mov.b16 %h2, 0x3F80; mov.b32 %r1, 0x38003C00;
  mov.b32 %r2, 0x40003F80;
)");
  // Subnormal f32 count in shared memory and vanish in global memory.
  CHECK(run_atomics("red.@S.add.f32 [@M], 0f00000001;", true, {0, 0}).memory[0] == 96);
  CHECK(run_atomics("red.@S.add.f32 [@M], 0f00000001;", false, {0, 0}).memory[0] == 0);
}

TEST_CASE("vectors of floats") {
  const std::string set =
      "mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3E800000; mov.f32 %f3, 0fBF800000;\n";
  CHECK(run_atomics("atom.global.add.v2.f32 {%f4, %f5}, [%rd1], {%f1, %f2};", false, {0, 0}, set)
            .memory[0] == 0x41C0000042C00000);
  const Result r =
      run_atomics("red.global.add.v4.f32 [%rd1], {%f1, %f2, %f3, %f2};", false, {0, 0}, set);
  CHECK(r.memory[0] == 0x41C0000042C00000);
  CHECK(r.memory[1] == 0x41C00000C2C00000);
}

TEST_CASE("many blocks on several host threads") {
  Device device;
  device.settings.threads = 4;
  device.load(unit(R"(.visible .entry k(.param .u64 out) {
  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [out];
  atom.global.add.u32 %r1, [%rd1], 1;
  red.global.add.f32 [%rd1+4], 0f3F800000;
  ld.global.u32 %r2, [%rd1+8];
L: add.u32 %r3, %r2, 2; atom.global.cas.b32 %r4, [%rd1+8], %r2, %r3;
  setp.ne.u32 %p, %r4, %r2; mov.u32 %r2, %r4; @%p bra L;
  atom.global.inc.u32 %r5, [%rd1+12], 9;
  ret;
})",
                   "sm_80"));
  const uint64_t out = device.upload(std::vector<uint32_t>(4, 0));
  const Outcome o = device.run("k", 40, 64, out);
  INFO(texts(o));
  CHECK(o.error == 0);
  const auto v = device.download<uint32_t>(out, 4);
  CHECK(v[0] == 2560);
  CHECK(v[1] == 0x45200000);  // 2560.0f
  CHECK(v[2] == 5120);
  CHECK(v[3] == 0);  // 2560 steps modulo 10
}

TEST_CASE("all blocks of a full device meet at a barrier of their own making") {
  Device device;
  device.settings.check = kMemcheck;  // spinning is slow under the race check
  device.settings.instruction_limit = 200'000'000;
  device.load(unit(R"(.visible .entry k(.param .u64 count, .param .u64 out) {
  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [count]; ld.param.u64 %rd2, [out];
  mov.u32 %r1, %nctaid.x; mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd2, %rd3;
  atom.add.acq_rel.gpu.global.u32 %r3, [%rd1], 1;
WAIT: ld.acquire.gpu.global.u32 %r4, [%rd1];
  setp.lt.u32 %p, %r4, %r1; @%p bra WAIT;
  st.global.u32 [%rd3], %r4;
  ret;
})"));
  const uint32_t blocks = 2 * static_cast<uint32_t>(device.profile.multiprocessors);
  const uint64_t count = device.upload(std::vector<uint32_t>{0});
  const uint64_t out = device.upload(std::vector<uint32_t>(blocks, 0));
  const Outcome o = device.run("k", blocks, 1, count, out);
  INFO(texts(o));
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
  for (const uint32_t seen : device.download<uint32_t>(out, blocks)) CHECK(seen == blocks);
}
