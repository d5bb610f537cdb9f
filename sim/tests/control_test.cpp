// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover divergence, barriers, calls, schedules.
#include "sim/tests/lane_kernels.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("loops with a trip count per lane, and a nested branch") {
  const std::string ptx = kernel(R"(
    mov.u32 %r9, 0; mov.u32 %r1, 0;
  LOOP:
    setp.gt.u32 %p1, %r1, %t; @%p1 bra DONE;
    and.b32 %r2, %r1, 1; setp.eq.u32 %p2, %r2, 0; @%p2 bra EVEN;
    add.u32 %r9, %r9, 100; bra.uni NEXT;
  EVEN:
    add.u32 %r9, %r9, %r1;
  NEXT:
    add.u32 %r1, %r1, 1; bra LOOP;
  DONE:
    activemask.b32 %r3; setp.eq.u32 %p3, %r3, 0xFFFFFFFF; @!%p3 mov.u32 %r9, 7777;
  )");
  expect(ptx, 64, [](uint32_t t) {
    uint32_t v = 0;
    for (uint32_t k = 0; k <= t; ++k) v += k % 2 ? 100 : k;
    return v;
  });
}

TEST_CASE("lanes that return early are not waited for") {
  const std::string ptx = kernel(R"(
    mov.u32 %r9, 5; and.b32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 1; @%p1 ret;
    vote.sync.ballot.b32 %r9, 1, 0xFFFFFFFF;
    bar.sync 0;
  )");
  expect(ptx, 96, [](uint32_t t) { return t % 4 == 1 ? 0 : 0xDDDDDDDDu; });
}

TEST_CASE("a branch table") {
  const std::string ptx = kernel(R"(
    and.b32 %r1, %t, 3;
    TABLE: .branchtargets A, B, C, B;
    brx.idx %r1, TABLE;
  A: mov.u32 %r9, 10; bra JOIN;
  B: mov.u32 %r9, 20; bra JOIN;
  C: mov.u32 %r9, 30;
  JOIN:
    add.u32 %r9, %r9, 1;
  )");
  const uint32_t want[] = {11, 21, 31, 21};
  expect(ptx, 32, [&](uint32_t t) { return want[t % 4]; });
}

TEST_CASE("lanes of one warp as producer and consumer") {
  // Lane 0 spins until lane 1 has stored: only fair strands get through.
  const std::string ptx = kernel(R"(
    mov.u32 %r1, 0; setp.ne.u32 %p1, %t, 0;
    @!%p1 st.volatile.shared.u32 [flag], %r1;
    bar.sync 0;
    @%p1 bra OTHER;
  SPIN:
    ld.volatile.shared.u32 %r2, [flag]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
    mov.u32 %r9, %r2; bra JOIN;
  OTHER:
    mov.u32 %r3, 42; setp.eq.u32 %p3, %t, 1; @%p3 st.volatile.shared.u32 [flag], %r3;
    mov.u32 %r9, 1;
  JOIN:
  )",
                                 "", ".shared .align 4 .u32 flag;");
  expect(ptx, 32, [](uint32_t t) { return t == 0 ? 42 : 1; });
}

TEST_CASE("block barriers order shared memory") {
  const std::string ptx = kernel(R"(
    mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; st.shared.u32 [%r2], %t;
    bar.sync 0;
    mov.u32 %r3, %ntid.x; sub.u32 %r4, %r3, %t; sub.u32 %r4, %r4, 1;
    mad.lo.u32 %r5, %r4, 4, %r1; ld.shared.u32 %r9, [%r5];
  )",
                                 "", ".shared .align 4 .b8 s[4096];");
  expect(ptx, 256, [](uint32_t t) { return 255 - t; });
}

TEST_CASE("reducing, named and arriving barriers") {
  expect(kernel("setp.lt.u32 %p1, %t, 40; bar.red.popc.u32 %r9, 0, %p1;"), 128,
         [](uint32_t) { return 40; });
  expect(kernel("setp.lt.u32 %p1, %t, 128; bar.red.and.pred %p2, 0, %p1;"
                "setp.eq.u32 %p3, %t, 3; bar.red.or.pred %p4, 0, %p3;"
                "selp.u32 %r1, 1, 0, %p2; selp.u32 %r2, 2, 0, %p4; add.u32 %r9, %r1, %r2;"),
         128, [](uint32_t) { return 3; });
  // The second warp produces and only arrives; the first waits.
  const std::string ptx = kernel(R"(
    setp.ge.u32 %p1, %t, 32; mov.u32 %r9, 0; mov.u32 %r1, s; and.b32 %r2, %t, 31;
    mad.lo.u32 %r3, %r2, 4, %r1; @%p1 bra PRODUCE;
    bar.sync 3, 64; ld.shared.u32 %r9, [%r3]; bra JOIN;
  PRODUCE:
    st.shared.u32 [%r3], %t; bar.arrive 3, 64;
  JOIN:
  )",
                                 "", ".shared .align 4 .b8 s[128];");
  expect(ptx, 64, [](uint32_t t) { return t < 32 ? t + 32 : 0; });
  // A warp arrives and then waits: it counts twice, so that it needs no other.
  expect(kernel("bar.arrive 4, 64; bar.sync 4, 64; mov.u32 %r9, 7;"), 32,
         [](uint32_t) { return 7; });
}

TEST_CASE("a barrier in a divergent branch is reported") {
  const ThreadWords r = run_threads(kernel(R"(
    mov.u32 %r9, 0; setp.lt.u32 %p1, %t, 7; @%p1 bra LOW;
    bar.sync 0; bra JOIN;
  LOW: bar.sync 1;
  JOIN:)"),
                                    32);
  CHECK(r.outcome.error == 719);
  REQUIRE(!r.outcome.findings.empty());
  CHECK(r.outcome.findings[0].kind == "divergent");
}

TEST_CASE("a deadlock names every warp that waits") {
  const ThreadWords r = run_threads(kernel(R"(
    mov.u32 %r9, 0; setp.lt.u32 %p1, %t, 32; @%p1 bra FIRST;
    bar.sync 1, 96; bra JOIN;
  FIRST: bar.sync 2, 96;
  JOIN:)"),
                                    64);
  CHECK(r.outcome.error == 719);
  REQUIRE(r.outcome.findings.size() == 2);
  CHECK(r.outcome.findings[0].kind == "deadlock");
  CHECK(r.outcome.findings[0].text.find("deadlock") != std::string::npos);
  CHECK(r.outcome.findings[0].text.find("barrier 1:") != std::string::npos);
  CHECK(r.outcome.findings[1].text.find("barrier 2:") != std::string::npos);
}

TEST_CASE("calls are expanded, with a guard and a local array") {
  const std::string callee = R"(
.func (.param .b32 ret0) twice(.param .b32 p0) {
  .reg .b32 %r<4>; .reg .pred %q; .local .align 4 .b8 stack[8];
  ld.param.u32 %r1, [p0]; setp.gt.u32 %q, %r1, 20; mov.u32 %r2, 0; @%q bra OUT;
  st.local.u32 [stack+4], %r1; ld.local.u32 %r2, [stack+4]; add.u32 %r2, %r2, %r1;
OUT: st.param.b32 [ret0+0], %r2; ret;
})";
  const std::string ptx = kernel(R"(
    mov.u32 %r9, 1; and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0;
    { .param .b32 param0; st.param.b32 [param0+0], %t; .param .b32 retval0;
      @%p1 call.uni (retval0), twice, (param0); @%p1 ld.param.b32 %r9, [retval0+0]; }
    { .param .b32 param0; st.param.b32 [param0+0], %r9; .param .b32 retval0;
      call (retval0), twice, (param0); ld.param.b32 %r9, [retval0+0]; }
  )",
                                 callee);
  expect(ptx, 32, [](uint32_t t) {
    auto twice = [](uint32_t x) { return x > 20 ? 0 : 2 * x; };
    return twice(t % 2 ? 1 : twice(t));
  });
}

TEST_CASE("the same seed gives the same run; host threads change no result") {
  const std::string ptx = kernel(R"(
    mov.u32 %r9, %t; mov.u32 %r1, 0;
  L: mad.lo.u32 %r9, %r9, 1664525, 1013904223; add.u32 %r1, %r1, 1;
    and.b32 %r2, %t, 15; setp.lt.u32 %p1, %r1, %r2; @%p1 bra L;
  )");
  const ThreadWords one = run_threads(ptx, 128, 3, 20, 1), again = run_threads(ptx, 128, 3, 20, 1);
  const ThreadWords many = run_threads(ptx, 128, 3, 20, 4), other = run_threads(ptx, 128, 4, 20, 1);
  CHECK(one.values == again.values);
  CHECK(one.values == many.values);
  CHECK(one.values == other.values);
  CHECK(one.outcome.counters.warp_instructions == again.outcome.counters.warp_instructions);
  CHECK(one.outcome.counters.warp_instructions == many.outcome.counters.warp_instructions);
  CHECK(one.outcome.counters.thread_instructions == other.outcome.counters.thread_instructions);
}

TEST_CASE("a launch that never ends is cut off") {
  const ThreadWords r = run_threads(kernel("L: bra L;"), 32);
  CHECK(r.outcome.error == 702);
}

TEST_CASE("blocks that wait for later blocks make progress") {
  // Block 0 spins until block 5 has stored.
  Device device;
  device.settings.threads = 1;
  device.load(unit(R"(.visible .entry k(.param .u64 out) {
  .reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x;
  setp.eq.u32 %p0, %r1, 5; @%p0 st.release.gpu.global.u32 [%rd1], %r1; @%p0 ret;
L: ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r2, 5; @%p1 bra L;
  ret;
})",
                   "sm_80"));
  const Outcome o = device.run("k", 6, 32, device.upload(std::vector<uint32_t>(1, 0)));
  CHECK(o.error == 0);
}
