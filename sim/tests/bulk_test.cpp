// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover bulk copies and mbarriers: right under every policy and seed, each missing wait
// and wrong count found.
#include "sim/tests/async_kernel.h"

using namespace sim;
using namespace sim::test;

namespace {
const std::string kBulkLoad = R"(
  setp.eq.u32 %p1, %t, 0;
  @%p1 mbarrier.init.shared.b64 [%r2], 1;
  bar.sync 0;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd8, [%r2], 512;
  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 512, [%r2];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;)";
}

TEST_CASE("a bulk load is there once its mbarrier says so") {
  const std::string good = kernel(kBulkLoad + kCopyOut);
  expect_copy(good, 128);
  expect_finding(without(good, "@!%p2 bra WAIT;"), "in_flight", "ld.shared.v4.u32 {%r10");
  expect_finding(without(good, "[%r2], 0", "[%r2], 1"), "in_flight", "ld.shared.v4.u32 {%r10");
  expect_finding(without(good, ".expect_tx.shared.b64 %rd8, [%r2], 512", ".shared.b64 %rd8, [%r2]"),
                 "in_flight", "ld.shared.v4.u32 {%r10");
  expect_finding(without(good, "%rd8, [%r2], 512", "%rd8, [%r2], 528"), "deadlock",
                 "mbarrier.try_wait");
  expect_finding(without(good, "@%p1 mbarrier.init.shared.b64 [%r2], 1;"), "mbarrier",
                 "@%p1 mbarrier.arrive");
  expect_finding(without(good, "@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd8, [%r2], 512;"),
                 "deadlock", "mbarrier.try_wait");
}

TEST_CASE("mbarriers count arrivals and phases") {
  // Two warps, three phases; the state form in one warp, the parity form in the other.
  const std::string good = kernel(R"(
  setp.eq.u32 %p1, %t, 0; setp.lt.u32 %p3, %t, 32;
  @%p1 mbarrier.init.shared.b64 [%r2], 64;
  bar.sync 0;
  mov.u32 %r20, 0;
LOOP:
  mbarrier.arrive.shared.b64 %rd8, [%r2];
  and.b32 %r21, %r20, 1;
  @%p3 bra BY_STATE;
P: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], %r21;
  @!%p2 bra P;
  bra NEXT;
BY_STATE: mbarrier.try_wait.shared.b64 %p2, [%r2], %rd8;
  @!%p2 bra BY_STATE;
NEXT: add.u32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 3; @%p4 bra LOOP;
  ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd4]; add.u64 %rd5, %rd2, %rd3;
  st.global.v4.u32 [%rd5], {%r10,%r11,%r12,%r13};)");
  expect_copy(good, 256, 64);
  expect_finding(without(good, "[%r2], 64", "[%r2], 65"), "deadlock", "mbarrier.try_wait.shared",
                 64);
  expect_finding(without(good, "[%r2], 64", "[%r2], 0"), "mbarrier", "@%p1 mbarrier.init", 64);
  expect_finding(without(good, "@%p1 mbarrier.init.shared.b64 [%r2], 64;",
                         "@%p1 mbarrier.init.shared.b64 [%r2], 64; st.shared.u32 [%r2+4], %t;"),
                 "mbarrier_overwritten", "@%p1 mbarrier.init", 64);
}

TEST_CASE("mbarrier states hold the pending count; drops lower the expectation") {
  const Trial t = run(kernel(R"(
  mbarrier.init.shared.b64 [%r2], 5;
  mbarrier.arrive.shared.b64 %rd8, [%r2], 2;
  mbarrier.pending_count.b64 %r10, %rd8;
  mbarrier.arrive_drop.shared.b64 %rd9, [%r2];
  mbarrier.pending_count.b64 %r11, %rd9;
  mbarrier.arrive.shared.b64 _, [%r2], 2;
  mbarrier.test_wait.shared.b64 %p1, [%r2], %rd8; selp.u32 %r12, 1, 0, %p1;
  mbarrier.arrive.noComplete.shared.b64 %rd10, [%r2], 3;
  mbarrier.pending_count.b64 %r13, %rd10;
  mbarrier.test_wait.shared.b64 %p1, [%r2], %rd10; selp.u32 %r14, 1, 0, %p1;
  mbarrier.inval.shared.b64 [%r2];
  mov.u32 %r15, 0;
  st.global.v4.u32 [%rd2], {%r10,%r11,%r12,%r13}; st.global.u32 [%rd2+16], %r14;)"),
                      AsyncPolicy::lazy, 0, 1);
  INFO(texts(t.outcome));
  CHECK(t.outcome.findings.empty());
  CHECK(t.out[0] == 5);
  CHECK(t.out[1] == 3);
  CHECK(t.out[2] == 1);
  CHECK(t.out[3] == 4);
  CHECK(t.out[4] == 0);
}

TEST_CASE("a bulk store has been read after .read, and is there after its wait") {
  const std::string good = kernel(R"(
  ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd4];
  st.shared.v4.u32 [%r4], {%r10,%r11,%r12,%r13};
  fence.proxy.async.shared::cta; bar.sync 0;
  setp.eq.u32 %p1, %t, 0;
  @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 512;
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group.read 0;
  bar.sync 0;
  st.shared.v4.u32 [%r4], {%r3,%r3,%r3,%r3};)");
  expect_copy(good, 128);
  expect_finding(without(good, "@%p1 cp.async.bulk.wait_group.read 0;"), "source_overwritten",
                 "st.shared.v4.u32 [%r4], {%r3");
  expect_finding(without(good, "@%p1 cp.async.bulk.wait_group.read 0;"), "unread_source",
                 "@%p1 cp.async.bulk.global");
  expect_finding(without(good, "[%r1], 512", "[%r1], 520"), "bulk_copy",
                 "@%p1 cp.async.bulk.global");
  expect_finding(without(good, "bulk_group [%rd2], [%r1]", "bulk_group [%rd2+8], [%r1]"),
                 "misaligned", "@%p1 cp.async.bulk.global");
}

TEST_CASE("bulk reductions add element by element") {
  const Trial t = run(kernel(R"(
  mov.b32 %r10, 0f3F800000; mov.b32 %r11, 0f40000000;
  st.shared.v4.u32 [%r4], {%r10,%r11,%r10,%r11};
  fence.proxy.async; bar.sync 0;
  setp.eq.u32 %p1, %t, 0;
  @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd2], [%r1], 512;
  @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd2], [%r1], 512;
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group 0;)"),
                      AsyncPolicy::random, 5);
  INFO(texts(t.outcome));
  CHECK(t.outcome.findings.empty());
  for (size_t k = 0; k < 128; ++k) CHECK(t.out[k] == (k % 2 ? 0x40800000u : 0x40000000u));
}

TEST_CASE("a copy over bytes that another copy still reads or writes") {
  const std::string stored = kernel(R"(
  ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd4];
  st.shared.v4.u32 [%r4], {%r10,%r11,%r12,%r13};
  fence.proxy.async.shared::cta; bar.sync 0;
  setp.eq.u32 %p1, %t, 0; @!%p1 bra DONE;
  mbarrier.init.shared.b64 [%r2], 1;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 512;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 512, [%r2];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
DONE:)");
  expect_copy(stored, 128);
  expect_finding(without(stored, "cp.async.bulk.wait_group.read 0;"), "source_overwritten",
                 "cp.async.bulk.shared::cluster");
  // Two at once: neither order holds. Reading what is not there yet is no better.
  const std::string twice = R"(
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 512, [%r2];)";
  expect_finding(
      without(without(stored, "[%r2], 512;", "[%r2], 1024;"), "\nWAIT:", twice + "\nWAIT:"),
      "in_flight",
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%r1], [%rd1], 512, [%r2];\nWAIT");
  expect_finding(without(stored, "\nWAIT:", R"(
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 256;
WAIT:)"),
                 "in_flight", "cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 256");
}

TEST_CASE("bytes can be completed by hand, and expected apart from the arrival") {
  const std::string good = kernel(R"(
  setp.eq.u32 %p1, %t, 0;
  @%p1 mbarrier.init.shared.b64 [%r2], 1;
  bar.sync 0;
  @!%p1 bra WAIT;
  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 48;
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 16;
  mbarrier.arrive.shared.b64 _, [%r2];
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 32;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd4]; add.u64 %rd5, %rd2, %rd3;
  st.global.v4.u32 [%rd5], {%r10,%r11,%r12,%r13};)");
  expect_copy(good, 128);
  expect_finding(without(good, "[%r2], 32", "[%r2], 16"), "deadlock", "WAIT: mbarrier.try_wait");
  expect_finding(without(good, "[%r2], 48", "[%r2], 2000000"), "mbarrier", "mbarrier.expect_tx");
}

TEST_CASE("prefetches that nobody loads are counted apart") {
  const std::string load =
      "ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd4];";  // 32 lanes, 512 bytes
  for (const int first : {0, 256, 512}) {
    const Trial t = run(kernel("add.u64 %rd6, %rd1, " + std::to_string(first) +
                               "; cp.async.bulk.prefetch.L2.global [%rd6], 512;" + load),
                        AsyncPolicy::lazy, 1);
    REQUIRE(t.outcome.error == 0);
    CHECK(t.outcome.counters.unique_prefetch_sectors == 512 / 32);
    CHECK(t.outcome.counters.vain_prefetch_sectors == static_cast<uint64_t>(first) / 32);
    CHECK(t.outcome.counters.unique_load_sectors == 512 / 32);
  }
}

TEST_CASE("prefetches copy nothing, and name memory that exists") {
  const std::string good = kernel(R"(
  cp.async.bulk.prefetch.L2.global [%rd1], 512;
  ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd4]; add.u64 %rd5, %rd2, %rd3;
  st.global.v4.u32 [%rd5], {%r10,%r11,%r12,%r13};)");
  expect_copy(good, 128);
  expect_finding(without(good, "[%rd1], 512", "[%rd1], 500"), "bulk_copy",
                 "cp.async.bulk.prefetch");
  expect_finding(without(good, "[%rd1], 512", "[%rd1], 65536"), "out_of_bounds",
                 "cp.async.bulk.prefetch");
  expect_finding(
      without(good, "cp.async.bulk.prefetch.L2.global [%rd1], 512;",
              "mov.u32 %r5, 0; cp.async.bulk.prefetch.tensor.1d.L2.global [%rd1, {%r5}];"),
      "tensor_map", "mov.u32 %r5, 0; cp.async.bulk.prefetch.tensor");
  expect_copy(
      without(good, "cp.async.bulk.prefetch.L2.global [%rd1], 512;", "prefetch.tensormap [%rd1];"),
      128);
}
