// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover clusters: distributed shared memory, multicast, remote arrivals, st.async and
// red.async, setmaxnreg.
#include "sim/tests/async_kernel.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("blocks of a cluster read each other's shared memory between cluster barriers") {
  // Block r copies its part, reads the next block's and writes it to that block's place.
  const std::string good = kernel(R"(
  mad.lo.u32 %r5, %rank, 512, %r3; cvt.u64.u32 %rd6, %r5; add.u64 %rd4, %rd1, %rd6;
  ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd4];
  st.shared.v4.u32 [%r4], {%r10,%r11,%r12,%r13};
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  mov.u32 %r6, %cluster_nctarank; add.u32 %r7, %rank, 1; rem.u32 %r7, %r7, %r6;
  mapa.shared::cluster.u32 %r8, %r4, %r7;
  ld.shared::cluster.v4.u32 {%r14,%r15,%r16,%r17}, [%r8];
  mad.lo.u32 %r5, %r7, 512, %r3; cvt.u64.u32 %rd6, %r5; add.u64 %rd5, %rd2, %rd6;
  st.global.v4.u32 [%rd5], {%r14,%r15,%r16,%r17};
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;)");
  expect_copy(good, 512, 32, 4, 4);
  expect_finding(without(good,
                         "barrier.cluster.arrive.release.aligned; barrier.cluster.wait"
                         ".acquire.aligned;"),
                 "uninitialized", "ld.shared::cluster.v4", 32, 4, 4);
  expect_finding(without(good, "barrier.cluster.arrive.release.aligned; "), "cluster_barrier",
                 "barrier.cluster.wait.acquire", 32, 4, 4);
  expect_finding(without(good, "add.u32 %r7, %rank, 1; rem.u32 %r7, %r7, %r6;", "mov.u32 %r7, 4;"),
                 "undefined_value", "mapa.shared", 32, 4, 4);
}

TEST_CASE("a multicast reaches every block of the mask, and remote arrivals count") {
  const std::string good = kernel(R"(
  setp.eq.u32 %p1, %t, 0; setp.eq.u32 %p3, %rank, 0; and.pred %p4, %p1, %p3;
  @%p1 mbarrier.init.shared.b64 [%r2], 1;
  @%p1 mbarrier.init.shared.b64 [%r2+8], 2;
  fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd8, [%r2], 256;
  mov.b16 %h1, 3;
  // Each block sends half of the data to both.
  mad.lo.u32 %r5, %rank, 128, 0; cvt.u64.u32 %rd6, %r5; add.u64 %rd7, %rd1, %rd6;
  add.u32 %r6, %r1, %r5;
  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r6], [%rd7], 128, [%r2], %h1;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  // Both tell block 0, which waits for them.
  bar.sync 0;
  mov.u32 %r9, 0; mapa.shared::cluster.u32 %r8, %r2, %r9;
  @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8+8];
  @!%p3 bra STORE;
AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r2+8], 0;
  @!%p2 bra AGAIN;
STORE:
  setp.lt.u32 %p5, %t, 16; @!%p5 bra DONE;
  ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r4];
  mad.lo.u32 %r5, %rank, 256, %r3; cvt.u64.u32 %rd6, %r5; add.u64 %rd5, %rd2, %rd6;
  st.global.v4.u32 [%rd5], {%r10,%r11,%r12,%r13};
DONE: barrier.cluster.arrive; barrier.cluster.wait;)");
  for (const AsyncPolicy policy : kPolicies) {
    for (uint64_t seed = 0; seed < 7; ++seed) {
      const Trial t = run(good, policy, seed, 32, 2, 2);
      INFO(texts(t.outcome));
      REQUIRE(t.outcome.findings.empty());
      const auto in = numbers(64);
      CHECK(std::equal(in.begin(), in.end(), t.out.begin()));
      CHECK(std::equal(in.begin(), in.end(), t.out.begin() + 64));
    }
  }
  expect_finding(without(good, "mov.b16 %h1, 3;", "mov.b16 %h1, 1;"), "deadlock", "WAIT: mbarrier",
                 32, 2, 2);
}

TEST_CASE("st.async delivers a value and counts it") {
  const std::string good = kernel(R"(
  setp.eq.u32 %p1, %t, 0;
  @%p1 mbarrier.init.shared.b64 [%r2], 1;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd8, [%r2], 128;
  xor.b32 %r6, %rank, 1;
  mapa.shared::cluster.u32 %r7, %r1, %r6; mapa.shared::cluster.u32 %r8, %r2, %r6;
  shl.b32 %r9, %t, 2; add.u32 %r7, %r7, %r9;
  mad.lo.u32 %r10, %rank, 128, %r9; cvt.u64.u32 %rd6, %r10; add.u64 %rd7, %rd1, %rd6;
  ld.global.u32 %r11, [%rd7];
  st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r7], %r11, [%r8];
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  add.u32 %r12, %r1, %r9; ld.shared.u32 %r13, [%r12];
  mad.lo.u32 %r10, %r6, 128, %r9; cvt.u64.u32 %rd6, %r10; add.u64 %rd7, %rd2, %rd6;
  st.global.u32 [%rd7], %r13;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;)");
  expect_copy(good, 64, 32, 2, 2);
}

TEST_CASE("setmaxnreg moves registers between warps and refuses what hardware would not do") {
  const std::string body = R"(
  setp.lt.u32 %p1, %t, 128; @%p1 bra GIVE;
  setmaxnreg.inc.sync.aligned.u32 240;
  bra DONE;
GIVE: setmaxnreg.dec.sync.aligned.u32 24;
DONE: ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd4]; add.u64 %rd5, %rd2, %rd3;
  st.global.v4.u32 [%rd5], {%r10,%r11,%r12,%r13};)";
  const std::string bounded = without(kernel(body), ".param .u64 out) {",
                                      ".param .u64 out)\n.maxntid 256, 1, 1\n"
                                      ".maxnreg 128\n{");
  expect_copy(without(bounded, "u32 240", "u32 232"), 1024, 256);
  expect_finding(bounded, "deadlock", "setmaxnreg.inc", 256);
  expect_finding(without(bounded, "inc.sync.aligned.u32 240", "inc.sync.aligned.u32 120"),
                 "registers", "setmaxnreg.inc", 256);
  expect_finding(without(bounded, "u32 240", "u32 244"), "registers", "setmaxnreg.inc", 256);
  expect_finding(kernel(body), "unbounded_registers", "setmaxnreg.inc", 256);
}

TEST_CASE("red.async adds to another block and counts its bytes") {
  // Every thread of both blocks adds its number and one to the other block's word of its lane.
  const std::string good = kernel(R"(
  setp.eq.u32 %p1, %t, 0;
  @%p1 mbarrier.init.shared.b64 [%r2], 1;
  shl.b32 %r9, %t, 2; add.u32 %r5, %r1, %r9; mov.u32 %r6, 100; st.shared.u32 [%r5], %r6;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd8, [%r2], 256;
  xor.b32 %r6, %rank, 1;
  mapa.shared::cluster.u32 %r7, %r5, %r6; mapa.shared::cluster.u32 %r8, %r2, %r6;
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r7], %t, [%r8];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r7], 1, [%r8];
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  ld.shared.u32 %r13, [%r5];
  mad.lo.u32 %r10, %rank, 128, %r9; cvt.u64.u32 %rd6, %r10; add.u64 %rd7, %rd2, %rd6;
  st.global.u32 [%rd7], %r13;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;)");
  for (const AsyncPolicy policy : kPolicies) {
    const Trial t = run(good, policy, 4, 32, 2, 2);
    INFO(texts(t.outcome));
    CHECK(t.outcome.findings.empty());
    for (uint32_t k = 0; k < 64; ++k) CHECK(t.out[k] == 101 + k % 32);
  }
}

TEST_CASE("mapa and getctarank are each other's inverse, in both address forms") {
  const Trial t = run(kernel(R"(
  mov.u32 %r5, 2; mapa.shared::cluster.u32 %r6, %r4, %r5; getctarank.shared::cluster.u32 %r7, %r6;
  cvt.u64.u32 %rd5, %r4; cvta.shared.u64 %rd5, %rd5;
  mapa.u64 %rd6, %rd5, %r5; getctarank.u64 %r8, %rd6; getctarank.u64 %r9, %rd5;
  cvta.to.shared.u64 %rd7, %rd6; cvt.u32.u64 %r10, %rd7; sub.u32 %r10, %r10, %r6;
  setp.ne.u32 %p1, %t, 0; @%p1 bra DONE;
  mul.wide.u32 %rd8, %rank, 16; add.u64 %rd8, %rd2, %rd8;
  st.global.v4.u32 [%rd8], {%r7,%r8,%r9,%r10};
DONE:)"),
                      AsyncPolicy::lazy, 0, 32, 4, 4);
  INFO(texts(t.outcome));
  CHECK(t.outcome.findings.empty());
  for (uint32_t rank = 0; rank < 4; ++rank) {
    CHECK(t.out[4 * rank] == 2);
    CHECK(t.out[4 * rank + 1] == 2);
    CHECK(t.out[4 * rank + 2] == rank);
    CHECK(t.out[4 * rank + 3] == 0);
  }
}
