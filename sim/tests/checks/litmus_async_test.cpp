// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These litmus tests cover what runs beside the warps: mbarriers, copies, clusters, the
// asynchronous proxy.
#include "sim/tests/checks/litmus.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("an mbarrier passes on what came before its arrivals") {
  const std::string init = R"(setp.ne.u32 %p1, %t, 0;
@!%p1 mbarrier.init.shared.b64 [%r8+2048], 32; // I
bar.sync 0; // ready
setp.eq.u32 %p2, %w, 1; @%p2 bra CONSUMER;
)";
  check_litmus("mbarrier", 1, 64, init + R"(st.shared.u32 [%r9], %t; // A
mbarrier.arrive.shared.b64 _, [%r8+2048]; // C
bra END;
CONSUMER:
mbarrier.try_wait.parity.shared.b64 %p3, [%r8+2048], 0; // D
@!%p3 bra CONSUMER;
ld.shared.u32 %r1, [%r9+-128]; // B
)",
               {{"mbarrier.arrive.shared", "mbarrier.arrive.relaxed.cta.shared"},
                {"mbarrier.try_wait.parity.shared", "mbarrier.try_wait.parity.relaxed.cta.shared"},
                {"st.shared.u32 [%r9], %t; // A\nmbarrier.arrive.shared.b64 _, [%r8+2048]; // C",
                 "mbarrier.arrive.shared.b64 _, [%r8+2048]; // C\nst.shared.u32 [%r9], %t; // A"},
                {"@!%p3 bra CONSUMER;", ""}});
  // A fence before a relaxed arrival, and one after a relaxed wait, do as well.
  check_litmus("mbarrier with fences", 1, 64, init + R"(st.shared.u32 [%r9], %t; // A
fence.acq_rel.cta; // before
mbarrier.arrive.relaxed.cta.shared.b64 _, [%r8+2048];
bra END;
CONSUMER:
mbarrier.try_wait.parity.relaxed.cta.shared.b64 %p3, [%r8+2048], 0;
@!%p3 bra CONSUMER;
fence.acq_rel.cta; // after
ld.shared.u32 %r1, [%r9+-128]; // B
)",
               {{"fence.acq_rel.cta; // before", ""}, {"fence.acq_rel.cta; // after", ""}});
}

TEST_CASE("a ring of one slot: full and empty") {
  check_litmus("ring", 1, 64,
               R"(setp.ne.u32 %p1, %t, 0;
@!%p1 mbarrier.init.shared.b64 [%r8+2048], 32;
@!%p1 mbarrier.init.shared.b64 [%r8+2056], 32;
bar.sync 0;
mov.u32 %r10, 0; mad.lo.u32 %r12, %l, 4, %r8;
setp.eq.u32 %p2, %w, 1; @%p2 bra CONSUMER;
PRODUCER:
and.b32 %r11, %r10, 1; xor.b32 %r11, %r11, 1;
EMPTY:
mbarrier.try_wait.parity.shared.b64 %p3, [%r8+2056], %r11;
@!%p3 bra EMPTY;
st.shared.u32 [%r12], %t; // A
mbarrier.arrive.shared.b64 _, [%r8+2048];
add.u32 %r10, %r10, 1; setp.lt.u32 %p4, %r10, 5; @%p4 bra PRODUCER;
bra END;
CONSUMER:
and.b32 %r11, %r10, 1;
FULL:
mbarrier.try_wait.parity.shared.b64 %p3, [%r8+2048], %r11;
@!%p3 bra FULL;
ld.shared.u32 %r1, [%r12]; // B
mbarrier.arrive.shared.b64 _, [%r8+2056]; // empty
add.u32 %r10, %r10, 1; setp.lt.u32 %p4, %r10, 5; @%p4 bra CONSUMER;
)",
               {{"ld.shared.u32 %r1, [%r12]; // B\nmbarrier.arrive.shared.b64 _, [%r8+2056]; // "
                 "empty",
                 "mbarrier.arrive.shared.b64 _, [%r8+2056];\nld.shared.u32 %r1, [%r12]; // B"},
                {"mbarrier.arrive.shared.b64 _, [%r8+2056]; // empty",
                 "mbarrier.arrive.relaxed.cta.shared.b64 _, [%r8+2056];"}});
}

TEST_CASE("the init of an mbarrier comes before its uses") {
  check_litmus("init", 1, 64,
               R"(setp.ne.u32 %p1, %t, 0;
@!%p1 mbarrier.init.shared.b64 [%r8+2048], 64; // A
mad.lo.u32 %r1, %w, 20000, 1;
DELAY:
sub.u32 %r1, %r1, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra DELAY;
bar.sync 0; // ready
mbarrier.arrive.shared.b64 _, [%r8+2048]; // B
)",
               {{"bar.sync 0; // ready", "bar.warp.sync -1;"}});
}

TEST_CASE("cp.async is known to the lane that waits") {
  check_litmus("copies", 1, 64,
               R"(cp.async.ca.shared.global [%r9], [%rd3], 4; // A
cp.async.wait_all;
xor.b32 %r11, %t, 33; mad.lo.u32 %r11, %r11, 4, %r8;
bar.sync 0; // here
ld.shared.u32 %r1, [%r11]; // B
)",
               {{"bar.sync 0; // here", ""}, {"bar.sync 0; // here", "bar.warp.sync -1;"}});
  check_litmus("lanes and copies", 1, 32,
               R"(cp.async.ca.shared.global [%r9], [%rd3], 4; // A
cp.async.wait_all;
xor.b32 %r11, %t, 1; mad.lo.u32 %r11, %r11, 4, %r8;
bar.warp.sync -1; // here
ld.shared.u32 %r1, [%r11]; // B
)",
               {{"bar.warp.sync -1; // here", ""}});
  // Bytes must have been read before they are overwritten.
  check_litmus("copies into what is read", 1, 64,
               R"(xor.b32 %r11, %t, 32; mad.lo.u32 %r11, %r11, 4, %r8;
st.shared.u32 [%r9], 0;
bar.sync 0;
ld.shared.u32 %r1, [%r11]; // B
bar.sync 0; // here
cp.async.ca.shared.global [%r9], [%rd3], 4; // A
cp.async.wait_all;
)",
               {{"bar.sync 0; // here", ""}});
}

TEST_CASE("a bulk load, and what the slot held before") {
  check_litmus("bulk load", 1, 64,
               R"(setp.ne.u32 %p1, %t, 0;
@!%p1 mbarrier.init.shared.b64 [%r8+2048], 1;
ld.shared.u32 %r1, [%r9]; // B
bar.sync 0; // ready
@%p1 bra WAIT;
mbarrier.arrive.expect_tx.shared.b64 _, [%r8+2048], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%rd1], 256, [%r8+2048]; // A
WAIT:
mbarrier.try_wait.parity.shared.b64 %p3, [%r8+2048], 0; // wait
@!%p3 bra WAIT;
ld.shared.u32 %r1, [%r9]; // C
bar.sync 0;
st.shared.u32 [%r9], %r1; // D
)",
               {{"ld.shared.u32 %r1, [%r9]; // B\nbar.sync 0; // ready",
                 "bar.sync 0;\nld.shared.u32 %r1, [%r9]; // B", "ABAC"},
                {"mbarrier.try_wait.parity.shared.b64 %p3, [%r8+2048], 0; // wait\n@!%p3 bra "
                 "WAIT;",
                 "mov.u32 %r2, 90000;\nSPIN:\nsub.u32 %r2, %r2, 1; setp.ne.u32 %p3, %r2, 0;\n@%p3 "
                 "bra SPIN;",
                 "ACAD"}});
}

TEST_CASE("a bulk store reads through the asynchronous proxy") {
  check_litmus(
      "bulk store", 1, 64,
      R"(setp.ne.u32 %p1, %t, 0;
st.shared.u32 [%r9], %t; // A
fence.proxy.async.shared::cta; // writers
bar.sync 0; // here
@%p1 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r8], 256; // B
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0; // wait
ld.global.u32 %r1, [%rd1]; // C
)",
      {{"fence.proxy.async.shared::cta; // writers", "", "AB", "missing_proxy_fence"},
       {"fence.proxy.async.shared::cta; // writers", "fence.proxy.async.global;", "AB",
        "missing_proxy_fence"},
       {"fence.proxy.async.shared::cta; // writers", "membar.gl;", "AB", "missing_proxy_fence"},
       {"bar.sync 0; // here", ""},
       {"wait_group 0; // wait", "wait_group.read 0;", "BC"},
       {"cp.async.bulk.wait_group 0; // wait", "", "BC"}});
  check_litmus("the issuer's fence", 1, 64,
               R"(setp.ne.u32 %p1, %t, 0;
st.shared.u32 [%r9], %t; // A
bar.sync 0;
@%p1 bra END;
fence.proxy.async; // issuer
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r8], 256; // B
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
)",
               {{"fence.proxy.async; // issuer", "", "AB", "missing_proxy_fence"}});
}

TEST_CASE("reductions do not race with each other, stores of two blocks do") {
  check_litmus("reductions", 4, 32,
               R"(setp.ne.u32 %p1, %t, 0;
st.shared.u32 [%r9], %t;
fence.proxy.async.shared::cta;
bar.sync 0;
@%p1 bra END;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r8], 128; // A
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
)",
               {{"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32",
                 "cp.async.bulk.global.shared::cta.bulk_group", "AA"}});
}

TEST_CASE("the barrier of a cluster") {
  check_litmus(
      "cluster barrier", 4, 32,
      R"(mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;
mapa.shared::cluster.u32 %r11, %r9, %r10;
st.shared.u32 [%r9], %t; // A
barrier.cluster.arrive.aligned; // arrive
barrier.cluster.wait.aligned; // wait
ld.shared::cluster.u32 %r1, [%r11]; // B
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; // last
)",
      {{"barrier.cluster.arrive.aligned; // arrive\n", "barrier.cluster.arrive.relaxed.aligned;\n"},
       {"barrier.cluster.arrive.aligned; // arrive\nbarrier.cluster.wait.aligned; // "
        "wait\n",
        "bar.sync 0;\n"}},
      2);
  check_litmus("a fence and a relaxed arrival", 2, 32,
               R"(mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;
mapa.shared::cluster.u32 %r11, %r9, %r10;
st.shared.u32 [%r9], %t; // A
fence.acq_rel.cluster; // here
barrier.cluster.arrive.relaxed.aligned;
barrier.cluster.wait.aligned;
ld.shared::cluster.u32 %r1, [%r11]; // B
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
)",
               {{"fence.acq_rel.cluster; // here", ""},
                {"fence.acq_rel.cluster; // here", "fence.acq_rel.cta;"}},
               2);
}

TEST_CASE("arrivals from another block need the scope of the cluster on both sides") {
  check_litmus(
      "remote arrival", 2, 32,
      R"(setp.ne.u32 %p1, %t, 0; mov.u32 %r10, %cluster_ctarank;
@!%p1 mbarrier.init.shared.b64 [%r8+2048], 32; // I
fence.mbarrier_init.release.cluster; // init
barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
setp.eq.u32 %p2, %r10, 0; @%p2 bra CONSUMER;
mov.u32 %r11, 0; mapa.shared::cluster.u32 %r12, %r9, %r11;
add.u32 %r14, %r8, 2048; mapa.shared::cluster.u32 %r13, %r14, %r11;
st.shared::cluster.u32 [%r12], %t; // A
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13]; // C
bra LAST;
CONSUMER:
mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p3, [%r8+2048], 0; // D
@!%p3 bra CONSUMER;
ld.shared.u32 %r1, [%r9]; // B
LAST:
barrier.cluster.arrive; barrier.cluster.wait;
)",
      {{"mbarrier.arrive.release.cluster.", "mbarrier.arrive.release.cta.", "C", "narrow_scope"},
       {"mbarrier.try_wait.parity.acquire.cluster.", "mbarrier.try_wait.parity.", "D",
        "narrow_scope"},
       {"fence.mbarrier_init.release.cluster; // init", "", "ICID"}},
      2);
}
