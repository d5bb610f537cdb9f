// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// cp.async, bulk copies and mbarriers: right under every policy and seed, and each missing wait is
// found.
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr AsyncPolicy kPolicies[] = {AsyncPolicy::eager, AsyncPolicy::lazy, AsyncPolicy::random};

std::string kernel(const std::string& body, const std::string& shared = "4096") {
  return R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .b64 %rd<32>; .reg .b32 %t, %rank;
  .shared .align 128 .b8 buffer[)" +
         shared + R"(];
  .shared .align 8 .b8 bar[64];
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.u32 %t, %tid.x;
  mov.u32 %rank, %cluster_ctarank;
  mul.wide.u32 %rd3, %t, 16; add.u64 %rd4, %rd1, %rd3;
  mov.u32 %r1, buffer; mov.u32 %r2, bar; shl.b32 %r3, %t, 4; add.u32 %r4, %r1, %r3;
)" + body +
         "\n  ret;\n}\n";
}

struct Trial {
  Outcome outcome;
  std::vector<uint32_t> out;
};

std::vector<uint32_t> numbers(size_t n) {
  std::vector<uint32_t> v(n);
  for (size_t k = 0; k < n; ++k) v[k] = static_cast<uint32_t>(k * 2654435761u + 17);
  return v;
}

Trial run(const std::string& ptx, AsyncPolicy policy, uint64_t seed, uint32_t threads = 32,
          uint32_t blocks = 1, uint32_t cluster = 1, size_t words = 1024) {
  Device d;
  d.settings.async_policy = policy;
  d.settings.seed = seed;
  d.settings.instruction_limit = 3'000'000;
  d.cluster = cluster;
  d.load(ptx);
  const uint64_t in = d.upload(numbers(words));
  const uint64_t out = d.upload(std::vector<uint32_t>(words, 0));
  Trial t;
  t.outcome = d.run("k", blocks, threads, in, out);
  t.out = d.download<uint32_t>(out, words);
  return t;
}

// Every policy and some seeds give the first `count` words of the input, and no finding.
void expect_copy(const std::string& ptx, size_t count, uint32_t threads = 32, uint32_t blocks = 1,
                 uint32_t cluster = 1) {
  const auto in = numbers(1024);
  for (const AsyncPolicy policy : kPolicies) {
    for (uint64_t seed = 0; seed < 7; ++seed) {
      const Trial t = run(ptx, policy, seed, threads, blocks, cluster);
      CAPTURE(static_cast<int>(policy));
      CAPTURE(seed);
      INFO(texts(t.outcome));
      REQUIRE(t.outcome.error == 0);
      CHECK(t.outcome.findings.empty());
      CHECK(std::equal(in.begin(), in.begin() + static_cast<long>(count), t.out.begin()));
    }
  }
}

// Some seed shows it: what is missing may still go well by luck.
void expect_finding(const std::string& ptx, const std::string& kind, const std::string& at,
                    uint32_t threads = 32, uint32_t blocks = 1, uint32_t cluster = 1) {
  int line = 1;
  for (size_t k = 0; k < ptx.find(at); ++k) line += ptx[k] == '\n';
  std::string seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Trial t = run(ptx, AsyncPolicy::lazy, seed, threads, blocks, cluster);
    for (const Finding& f : t.outcome.findings) {
      if (f.kind == kind && f.ptx_line == line) return;
    }
    seen = texts(t.outcome);
  }
  FAIL_CHECK("expected " << kind << " at line " << line << ", found: " << seen);
}

const std::string kCopyOut = R"(
  ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r4]; add.u64 %rd5, %rd2, %rd3;
  st.global.v4.u32 [%rd5], {%r10,%r11,%r12,%r13};)";

std::string without(std::string text, const std::string& part, const std::string& instead = "") {
  const size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), instead);
}

}  // namespace

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
  expect_finding(without(good, "@%p1 cp.async.bulk.wait_group.read 0;"), "leaked_group",
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
  expect_finding(kernel(body), "registers", "setmaxnreg.inc", 256);
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
