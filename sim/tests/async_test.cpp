// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover cp.async: right under every policy and seed, and each missing wait is found.
#include "sim/tests/async_kernel.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("cp.async arrives by its wait and not before") {
  const std::string good = kernel(R"(
  cp.async.cg.shared.global [%r4], [%rd4], 16; cp.async.commit_group;
  cp.async.wait_group 0;)" + kCopyOut);
  expect_copy(good, 128);
  expect_finding(without(good, "cp.async.wait_group 0;"), "in_flight", "ld.shared.v4.u32 {%r10");
  expect_finding(without(good, "wait_group 0", "wait_group 1"), "in_flight",
                 "ld.shared.v4.u32 {%r10");
  expect_finding(without(good, "cp.async.commit_group;"), "in_flight", "ld.shared.v4.u32 {%r10");
  expect_copy(without(without(good, "cp.async.commit_group;"), "wait_group 0", "wait_all"), 128);
}

TEST_CASE("another warp's cp.async needs a barrier after the wait") {
  // Each thread reads what its neighbour in the other warp copied.
  const std::string good = kernel(R"(
  cp.async.ca.shared.global [%r4], [%rd4], 16; cp.async.commit_group;
  cp.async.wait_group 0; bar.sync 0;
  xor.b32 %r5, %t, 32; shl.b32 %r5, %r5, 4; add.u32 %r4, %r1, %r5; cvt.u64.u32 %rd3, %r5;)" +
                                  kCopyOut);
  expect_copy(good, 256, 64);
}

TEST_CASE("groups complete in order and leave the newest pending") {
  const std::string good = kernel(R"(
  add.u64 %rd6, %rd4, 512; add.u32 %r6, %r4, 512;
  cp.async.cg.shared.global [%r4], [%rd4], 16; cp.async.commit_group;
  cp.async.cg.shared.global [%r6], [%rd6], 16; cp.async.commit_group;
  cp.async.wait_group 1;)" + kCopyOut +
                                  R"(
  cp.async.wait_group 0;
  ld.shared.v4.u32 {%r14,%r15,%r16,%r17}, [%r6];
  st.global.v4.u32 [%rd5+512], {%r14,%r15,%r16,%r17};)");
  expect_copy(good, 256);
  expect_finding(without(good, "cp.async.wait_group 0;"), "in_flight", "ld.shared.v4.u32 {%r14");
}

TEST_CASE("the source size and the ignored source fill with zeros") {
  const Trial t = run(kernel(R"(
  and.b32 %r7, %t, 15;
  cp.async.cg.shared.global [%r4], [%rd4], 16, %r7;
  cp.async.wait_all;)" + kCopyOut),
                      AsyncPolicy::lazy, 3);
  INFO(texts(t.outcome));
  REQUIRE(t.outcome.findings.empty());
  const auto in = numbers(128);
  const auto* bytes = reinterpret_cast<const uint8_t*>(t.out.data());
  const auto* source = reinterpret_cast<const uint8_t*>(in.data());
  for (size_t k = 0; k < 512; ++k) {
    const size_t lane = k / 16, at = k % 16;
    CHECK(bytes[k] == (at < (lane & 15) ? source[k] : 0));
  }
  // Nothing is read where everything is ignored: any address will do.
  const Trial ignored = run(kernel(R"(
  setp.ge.u32 %p1, %t, 0; mov.u64 %rd4, 16;
  cp.async.cg.shared.global [%r4], [%rd4], 16, %p1;
  cp.async.wait_all;)" + kCopyOut),
                            AsyncPolicy::lazy, 3);
  INFO(texts(ignored.outcome));
  CHECK(ignored.outcome.findings.empty());
  CHECK(ignored.out[5] == 0);
}

TEST_CASE("a copy nobody waits for is a leak") {
  expect_finding(kernel("cp.async.cg.shared.global [%r4], [%rd4], 16; cp.async.commit_group;"),
                 "leaked_group", "cp.async.cg");
}

TEST_CASE("cp.async can arrive on an mbarrier") {
  const std::string good = kernel(R"(
  setp.eq.u32 %p1, %t, 0;
  @%p1 mbarrier.init.shared.b64 [%r2], 32;
  bar.sync 0;
  cp.async.cg.shared.global [%r4], [%rd4], 16;
  cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  cp.async.wait_all;)" + kCopyOut);
  expect_copy(good, 128);
}

TEST_CASE("cp.async waited for by an mbarrier alone") {
  expect_copy(kernel(R"(
  setp.eq.u32 %p1, %t, 0;
  @%p1 mbarrier.init.shared.b64 [%r2], 64;
  bar.sync 0;
  cp.async.cg.shared.global [%r4], [%rd4], 16;
  cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  xor.b32 %r5, %t, 32; shl.b32 %r5, %r5, 4; add.u32 %r4, %r1, %r5; cvt.u64.u32 %rd3, %r5;)" +
                     kCopyOut),
              256, 64);
}

TEST_CASE("cp.async counts sectors and banks once for all lanes") {
  // 16 bytes a lane in a row; then rows of 128 bytes, all in the same banks.
  for (const uint32_t stride : {16u, 128u}) {
    const Trial t = run(kernel("mul.lo.u32 %r5, %t, " + std::to_string(stride) + R"(;
  add.u32 %r4, %r1, %r5;
  cp.async.cg.shared.global [%r4], [%rd4], 16; cp.async.wait_all;)"),
                        AsyncPolicy::lazy, 1);
    const Counters& c = t.outcome.counters;
    CHECK(c.global_load.bytes == 512);
    CHECK(c.global_load.sectors == 16);
    CHECK(c.global_load.minimum_sectors == 16);
    CHECK(c.shared_store.conflicts == (stride == 16 ? 0 : 4 * 7));
    CHECK(c.shared_store.wavefronts == (stride == 16 ? 4 : 4 * 8));
  }
}
