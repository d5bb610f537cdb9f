// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what the checkers report, and where.
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

std::string kernel(const std::string& body) {
  return R"(.version 9.0
.target sm_90a
.address_size 64
.file 1 "some/file.cu"
.const .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
.global .align 4 .u32 counter;
.visible .entry k(.param .u64 a, .param .u64 b) {
  .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .b32 %t; .reg .f32 %f<4>;
  .shared .align 4 .b8 s[256]; .local .align 4 .b8 depot[16];
  mov.u32 %t, %tid.x; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
  mad.wide.u32 %rd3, %t, 4, %rd1; mad.wide.u32 %rd4, %t, 4, %rd2;
  mov.u32 %r8, s; mad.lo.u32 %r9, %t, 4, %r8;
  .loc 1 77 3
)" + body +
         "\n  ret;\n}\n";
}

struct Fixture {
  Device device;
  uint64_t a = 0, b = 0;
  Outcome run(const std::string& body, uint32_t threads = 32) {
    device.settings.threads = 1;
    device.load(kernel(body));
    a = device.upload(std::vector<uint32_t>(40, 1));  // 160 bytes
    b = device.buffer(1024);                          // undefined
    return device.run("k", 1, threads, a, b);
  }
};

}  // namespace

TEST_CASE("out of bounds: the first bad lane, its address, the nearest allocation, the source") {
  Fixture f;
  const Outcome o = f.run("ld.global.u32 %r1, [%rd3+36];");
  CHECK(o.error == 700);
  REQUIRE(o.findings.size() == 1);
  const Finding& x = o.findings[0];
  CHECK(x.kind == "out_of_bounds");
  CHECK(x.thread[0] == 31);
  CHECK(x.address == f.a + 160);
  CHECK(x.bytes == 4);
  CHECK(x.kernel == "k");
  CHECK(x.ptx_line == 14);
  CHECK(x.source == "some/file.cu:77");
  CHECK(x.text.find("0 bytes past the end of a device allocation of 160 bytes") !=
        std::string::npos);
}

TEST_CASE("a lane that is switched off is not checked") {
  Fixture f;
  const Outcome o = f.run("setp.lt.u32 %p1, %t, 31; @%p1 ld.global.u32 %r1, [%rd3+36];");
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
}

TEST_CASE("memory that was freed") {
  Fixture f;
  f.device.settings.threads = 1;
  f.device.load(kernel("ld.global.u32 %r1, [%rd3];"));
  const uint64_t a = f.device.upload(std::vector<uint32_t>(40, 1));
  CHECK(f.device.memory.release(a));
  CHECK(!f.device.memory.release(a));
  const Outcome o = f.device.run("k", 1, 32, a, a);
  CHECK(o.error == 700);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].text.find("freed device allocation") != std::string::npos);
}

TEST_CASE("misaligned") {
  Fixture f;
  const Outcome o = f.run("ld.global.v2.u32 {%r1, %r2}, [%rd3];");
  CHECK(o.error == 716);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "misaligned");
  CHECK(o.findings[0].thread[0] == 1);
  CHECK(o.findings[0].address == f.a + 4);
}

TEST_CASE("uninitialised reads are reported and do not stop the grid") {
  Fixture f;
  const Outcome o = f.run(
      "setp.lt.u32 %p1, %t, 9; @%p1 st.global.u32 [%rd4], %t;"
      "ld.global.u32 %r1, [%rd4]; st.global.u32 [%rd3], %r1;");
  CHECK(o.error == 0);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "uninitialized");
  CHECK(o.findings[0].thread[0] == 9);
  CHECK(o.findings[0].address == f.b + 36);
  CHECK(f.device.download<uint32_t>(f.a, 9)[8] == 8);
  CHECK(f.device.memory.first_undefined(f.b, 1024) == f.b + 36);
}

TEST_CASE("uninitialised shared and local memory") {
  Fixture f;
  Outcome o = f.run("ld.shared.u32 %r1, [%r9];");
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "uninitialized");
  Fixture g;
  o = g.run("st.local.u8 [depot], %t; ld.local.u32 %r1, [depot];");
  CHECK(o.error == 0);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].text.find("local") != std::string::npos);
}

TEST_CASE("shared memory past its end, local memory past its depot") {
  Fixture f;
  Outcome o = f.run("st.shared.u32 [%r9+252], %t;");
  CHECK(o.error == 700);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].thread[0] == 1);
  Fixture g;
  o = g.run("st.local.u32 [depot+16], %t;");
  CHECK(o.error == 700);
}

TEST_CASE("a store to a constant") {
  Fixture f;
  const Outcome o = f.run("mov.u64 %rd5, table; st.global.u32 [%rd5], %t;");
  CHECK(o.error == 700);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "read_only");
}

TEST_CASE("constants, variables and generic addresses of every window") {
  Fixture f;
  const Outcome o = f.run(R"(
    ld.const.u8 %r1, [table+2];
    red.global.add.u32 [counter], 1;
    cvta.shared.u64 %rd5, 0; mov.u64 %rd5, s; cvta.shared.u64 %rd5, %rd5;
    mad.wide.u32 %rd6, %t, 4, %rd5; st.u32 [%rd6], %r1;
    mov.u64 %rd7, depot; cvta.local.u64 %rd7, %rd7; st.u32 [%rd7+4], %t; ld.u32 %r2, [%rd7+4];
    ld.u32 %r3, [%rd6]; add.u32 %r4, %r2, %r3;
    isspacep.shared %p1, %rd6; @!%p1 mov.u32 %r4, 0;
    isspacep.global %p2, %rd3; @!%p2 mov.u32 %r4, 0;
    and.b32 %r5, %t, 1; setp.eq.u32 %p3, %r5, 0; selp.b64 %rd8, %rd6, %rd3, %p3;
    ld.u32 %r6, [%rd8]; add.u32 %r4, %r4, %r6;
    mov.b64 %rd9, a; cvta.param.u64 %rd9, %rd9; ld.u64 %rd9, [%rd9]; sub.u64 %rd9, %rd9, %rd1;
    cvt.u32.u64 %r7, %rd9; add.u32 %r4, %r4, %r7;
    st.u32 [%rd3], %r4;)");
  INFO(texts(o));
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
  const auto v = f.device.download<uint32_t>(f.a, 32);
  for (uint32_t t = 0; t < 32; ++t) CHECK(v[t] == t + 3 + (t % 2 ? 1 : 3));
  const uint64_t counter = f.device.image->symbols.at("counter");
  CHECK(f.device.download<uint32_t>(counter, 1)[0] == 32);
}

TEST_CASE("a race between warps without a barrier") {
  const char* racy =
      "st.shared.u32 [%r9], %t; xor.b32 %r1, %r9, 0;"
      "sub.u32 %r2, 63, %t; mad.lo.u32 %r3, %r2, 4, %r8; ld.shared.u32 %r4, [%r3];";
  const char* right =
      "st.shared.u32 [%r9], %t; bar.sync 0;"
      "sub.u32 %r2, 63, %t; mad.lo.u32 %r3, %r2, 4, %r8; ld.shared.u32 %r4, [%r3];";
  Fixture f, g;
  Outcome o = f.run(racy, 64);
  bool found = false;
  for (const Finding& x : o.findings) found |= x.kind == "race";
  CHECK(found);
  o = g.run(right, 64);
  INFO(texts(o));
  CHECK(o.findings.empty());
}

TEST_CASE("checks can be turned off") {
  Fixture f;
  f.device.settings.check = kMemcheck;
  const Outcome o = f.run("ld.global.u32 %r1, [%rd4];");
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
}

TEST_CASE("traps and assertions") {
  Fixture f;
  const Outcome o = f.run("setp.eq.u32 %p1, %t, 5; @%p1 trap;");
  CHECK(o.error == 719);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].thread[0] == 5);
}

TEST_CASE("counters of coalescing and bank conflicts") {
  Fixture f;
  const Outcome o = f.run(
      "ld.global.u32 %r1, [%rd3]; shl.b32 %r2, %t, 7; and.b32 %r2, %r2, 128;"
      "add.u32 %r3, %r8, %r2; st.shared.u32 [%r3], %r1; ld.global.u32 %r4, [%rd1];");
  INFO(texts(o));
  CHECK(o.counters.global_load.requests == 2);
  CHECK(o.counters.global_load.bytes == 256);
  // a is 512-byte aligned within its page: 128 bytes in 4 sectors, then one for a broadcast.
  CHECK(o.counters.global_load.sectors == 5);
  CHECK(o.counters.global_load.minimum_sectors == 5);
  CHECK(o.counters.unique_load_sectors == 4);
  CHECK(o.counters.shared_store.conflicts == 1);
  CHECK(o.counters.by_class.at("memory") == 5);  // two of them read parameters
}

TEST_CASE("counters of asynchronous copies: a sector once for a request") {
  Fixture f;
  const Outcome o = f.run(R"(
    mad.wide.u32 %rd5, %t, 4, %rd1; mad.lo.u32 %r7, %t, 4, %r8;
    cp.async.ca.shared.global [%r7], [%rd5], 4; cp.async.wait_all;)");
  INFO(texts(o));
  CHECK(o.counters.global_load.requests == 1);
  CHECK(o.counters.global_load.bytes == 128);
  CHECK(o.counters.global_load.sectors == 4);
  CHECK(o.counters.global_load.minimum_sectors == 4);
  CHECK(o.counters.shared_store.wavefronts == 1);
}

TEST_CASE("counters by PTX line") {
  Fixture f;
  f.device.settings.profile = true;
  const Outcome o = f.run(
      "ld.global.u32 %r1, [%rd1];\n mad.lo.u32 %r2, %t, 8, %r8;\n"
      "setp.lt.u32 %p1, %t, 5;\n@%p1 st.shared.u32 [%r2], %r1;\n bar.sync 0;\n");
  INFO(texts(o));
  CHECK(o.error == 0);
  const sim::LineCounters *load = nullptr, *store = nullptr, *barrier = nullptr;
  uint64_t executions = 0, threads = 0;
  for (const sim::LineCounters& line : o.counters.lines) {
    executions += line.executions;
    threads += line.thread_instructions;
    if (line.text.find("ld.global") == 0) load = &line;
    if (line.text.find("st.shared") == 0) store = &line;
    if (line.text.find("bar.sync") == 0) barrier = &line;
  }
  CHECK(executions == o.counters.warp_instructions);
  CHECK(threads == o.counters.thread_instructions);
  REQUIRE((load && store && barrier));
  CHECK(load->cls == "memory");
  CHECK(load->global_requests == 1);
  CHECK(load->global_sectors == 1);  // one word for all
  CHECK(load->thread_instructions == 32);
  CHECK(load->shared_requests == 0);
  CHECK(store->ptx_line == load->ptx_line + 3);
  CHECK(store->thread_instructions == 5);
  CHECK(store->shared_bytes == 20);
  CHECK(store->shared_wavefronts == 1);
  CHECK(barrier->barrier_waits == 1);
  CHECK(o.counters.barrier_waits == 1);
  f.device.settings.profile = false;
  CHECK(f.run("bar.sync 0;").counters.lines.empty());
}

TEST_CASE("asynchronous copies with groups, a source size and a predicate") {
  Fixture f;
  const Outcome o = f.run(R"(
    setp.lt.u32 %p1, %t, 8; @!%p1 bra OUT;
    mad.wide.u32 %rd5, %t, 16, %rd1; mad.lo.u32 %r7, %t, 16, %r8;
    cp.async.cg.shared.global [%r7], [%rd5], 16; cp.async.commit_group;
    mad.wide.u32 %rd6, %t, 4, %rd2; mad.lo.u32 %r6, %t, 4, %r8;
    cp.async.ca.shared.global [%r6+128], [%rd6], 4, 0;
    cp.async.wait_all;
    ld.shared.u32 %r1, [%r7+12]; ld.shared.u32 %r2, [%r6+128]; add.u32 %r1, %r1, %r2;
    add.u32 %r1, %r1, %t; bar.warp.sync 255; st.global.u32 [%rd3], %r1;
  OUT:)");
  INFO(texts(o));
  CHECK(o.error == 0);
  CHECK(o.findings.empty());  // a source of 0 bytes is not read, undefined as it is
  const auto v = f.device.download<uint32_t>(f.a, 8);
  for (uint32_t t = 0; t < 8; ++t) CHECK(v[t] == t + 1);
}

TEST_CASE("vectors of every width, narrow elements, stores that cut") {
  Fixture f;
  const Outcome o = f.run(R"(
    mad.wide.u32 %rd5, %t, 16, %rd2; mul.lo.u32 %r1, %t, 0x01010101;
    st.global.v4.u8 [%rd5], {%r1, %r1, %r1, %r1};
    add.u32 %r2, %t, 0xFFFFFFF0; st.global.v2.u16 [%rd5+4], {%r1, %r2};
    cvt.u64.u32 %rd6, %t; st.global.u32 [%rd5+8], %rd6; st.global.b32 [%rd5+12], %t;
    ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd5];
    ld.global.s16 %rd7, [%rd5+6]; cvt.u32.u64 %r7, %rd7; add.u32 %r7, %r7, 16;
    ld.global.s8 %r6, [%rd5+12]; sub.u32 %r5, %r5, %r6; add.u32 %r7, %r7, %r5;
    st.global.u32 [%rd3], %r7;)");
  INFO(texts(o));
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
  const auto v = f.device.download<uint32_t>(f.a, 32);
  const auto b = f.device.download<uint32_t>(f.b, 128);
  for (uint32_t t = 0; t < 32; ++t) {
    CHECK(v[t] == t);  // the sign came back, and the two copies of t cancel
    CHECK(b[4 * t] == t * 0x01010101);
    CHECK(b[4 * t + 1] == ((t - 16) << 16 | t * 0x0101));
  }
}
