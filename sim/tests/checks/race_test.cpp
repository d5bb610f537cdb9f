// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The findings of the race checker name both parties; and the cases that litmus tests do not cover.
#include "sim/check/race_state.h"
#include "sim/tests/checks/litmus.h"

using namespace sim;
using namespace sim::test;

namespace {

Outcome once(const std::string& body, uint32_t blocks, uint32_t threads, uint32_t check = kCheckAll,
             int host_threads = 0) {
  Device device;
  device.settings.check = check;
  device.settings.threads = host_threads;
  device.load(litmus_kernel(body));
  const uint64_t a = device.upload(std::vector<uint32_t>(1024, 0));
  const uint64_t b = device.upload(std::vector<uint32_t>(64, 0));
  return device.run("k", blocks, threads, a, b);
}

}  // namespace

TEST_CASE("a finding names both parties") {
  const std::string body = R"(.file 1 "some/file.cu"
setp.ne.u32 %p1, %c, 1;
.loc 1 7 1
@!%p1 st.global.u32 [%rd3+512], %t; // A
setp.ne.u32 %p1, %c, 2;
.loc 1 9 1
@!%p1 ld.global.u32 %r1, [%rd3+384]; // B
)";
  const std::string text = litmus_kernel(body);
  const Outcome o = once(body, 3, 64);
  REQUIRE(o.findings.size() == 1);
  const Finding& f = o.findings[0];
  CHECK(f.check == "racecheck");
  CHECK(f.kind == "race");
  CHECK(f.ptx_line == tagged(text, "B"));
  CHECK(f.other_ptx_line == tagged(text, "A"));
  CHECK(f.block[0] == 2);
  CHECK(f.other_block[0] == 1);
  CHECK(f.thread[0] == 32);
  CHECK(f.other_thread[0] == 0);
  CHECK(f.source == "some/file.cu:9");
  CHECK(f.other_source == "some/file.cu:7");
  CHECK(f.other_access == "store");
  CHECK(f.bytes >= 4);
}

TEST_CASE("lanes of one warp: the two threads") {
  const Outcome o = once("st.shared.u32 [%r9], %t;\nld.shared.u32 %r1, [%r9+4];\n", 1, 32);
  bool found = false;
  for (const Finding& f : o.findings) {
    if (f.kind != "race") continue;
    found = true;
    CHECK(f.thread[0] + 1 == f.other_thread[0]);
  }
  CHECK(found);
}

TEST_CASE("one finding for a pair of instructions") {
  const Outcome o = once(R"(mov.u32 %r10, 0;
AGAIN:
st.global.u32 [%rd3], %t;
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 9; @%p1 bra AGAIN;
)",
                         9, 64);
  CHECK(o.findings.size() == 1);
}

TEST_CASE("without the check nothing is found, and nothing is kept") {
  const std::string body = "st.global.u32 [%rd1], %t;\n";
  CHECK(once(body, 2, 64, kCheckAll & ~kRacecheck).findings.empty());
  CHECK(!once(body, 2, 64, kRacecheck).findings.empty());
}

TEST_CASE("the read-only cache") {
  const std::string right = "ld.global.nc.u32 %r1, [%rd3];\nst.global.u32 [%rd3+2048], %r1;\n";
  const std::string own = "st.global.u32 [%rd3], %t;\nld.global.nc.u32 %r1, [%rd3];\n";
  const std::string later =
      "ld.global.nc.u32 %r1, [%rd3];\nbar.sync 0;\nst.global.u32 [%rd3], %t;\n";
  CHECK(once(right, 1, 64).findings.empty());
  for (const std::string& body : {own, later}) {
    const Outcome o = once(body, 1, 64);
    REQUIRE(o.findings.size() == 1);
    CHECK(o.findings[0].kind == "nc_written");
    CHECK(o.findings[0].check == "racecheck");
  }
}

TEST_CASE("many readers, then a writer who knows them or does not") {
  const std::string readers = R"(ld.shared.u32 %r1, [%r8+64]; // A
setp.ne.u32 %p2, %w, 7;
bar.sync 0;
@%p2 bra END;
setp.ne.u32 %p1, %l, 0; @!%p1 st.shared.u32 [%r8+64], 1; // B
)";
  const Litmus test{"readers",
                    1,
                    256,
                    "setp.ne.u32 %p1, %t, 0; @!%p1 st.shared.u32 [%r8+64], 0;\n"
                    "bar.sync 0;\n" +
                        readers,
                    {}};
  check_right(test);
  check_broken(test, {"bar.sync 0;\n@%p2", "@%p2", "AB"});
}

TEST_CASE("blocks that use one shared memory after the other") {
  const Outcome o = once(R"(st.shared.u32 [%r9], %t;
bar.sync 0;
xor.b32 %r11, %t, 63; mad.lo.u32 %r11, %r11, 4, %r8;
ld.shared.u32 %r1, [%r11];
ld.shared.u8 %r1, [%r11+1];
)",
                         50, 64);
  CHECK(texts(o) == "");
}

TEST_CASE("findings and results do not depend on host threads") {
  const std::string body = R"(ld.global.u32 %r1, [%rd1];
add.u32 %r1, %r1, %t; st.global.u32 [%rd3], %r1;
atom.global.add.u32 %r2, [%rd2], 1;
)";
  const Outcome one = once(body, 20, 64, kCheckAll, 1), four = once(body, 20, 64, kCheckAll, 4);
  CHECK(!one.findings.empty());
  CHECK(texts(one) == texts(four));
}

TEST_CASE("which functions depend on the order of blocks") {
  auto depends = [](const std::string& body) {
    Device device;
    device.load(litmus_kernel(body + "\n"));
    return device.module->find_kernel("k")->code->ordered_across_blocks;
  };
  CHECK(depends("atom.global.add.u32 %r1, [%rd1], 1;"));
  CHECK(depends("red.global.add.f32 [%rd1], 0f3F800000;"));
  CHECK(depends("ld.acquire.gpu.global.u32 %r1, [%rd1];"));
  CHECK(depends("ld.volatile.u32 %r1, [%rd1];"));
  CHECK(!depends("red.global.add.u32 [%rd1], 1;"));
  CHECK(!depends("atom.shared.add.u32 %r1, [%r8], 1;"));
  CHECK(!depends("ld.global.u32 %r1, [%rd1]; st.release.gpu.global.u32 [%rd1], 1;"));
}

TEST_CASE("in which functions blocks may wait for one another") {
  auto sees = [](const std::string& body) {
    Device device;
    device.load(litmus_kernel(body + "\n"));
    return device.module->find_kernel("k")->code->sees_blocks;
  };
  CHECK(sees("atom.global.add.u32 %r1, [%rd1], 1; st.global.u32 [%rd3], %r1;"));
  CHECK(sees("atom.global.add.u32 %r1, [%rd1], 1; setp.eq.u32 %p1, %r1, 3; @%p1 trap;"));
  CHECK(sees("ld.acquire.gpu.global.u32 %r1, [%rd1];"));
  CHECK(!sees("atom.global.add.u32 %r1, [%rd1], 1;"));
  CHECK(!sees("atom.global.add.f32 %r1, [%rd1], 0f3F800000;"));
  CHECK(!sees("red.global.add.f32 [%rd1], 0f3F800000;"));
  CHECK(!sees("atom.shared.add.u32 %r1, [%r8], 1; st.global.u32 [%rd3], %r1;"));
}

TEST_CASE("clocks: joins within a cluster and beyond") {
  Knowledge a, b, c;
  a.clear(100, 50);
  b.clear(100, 50);
  c.clear(200, 50);
  a.raise(kGenericClock, 103, 7);
  a.raise(kGenericClock, 205, 2);  // of another cluster
  b.raise(kGenericClock, 103, 9);
  b.raise(kSharedProxyClock, 149, 4);
  b.join(a);
  CHECK(b.of(kGenericClock, 103) == 9);
  CHECK(b.of(kGenericClock, 205) == 2);
  CHECK(b.of(kSharedProxyClock, 149) == 4);
  CHECK(b.of(kGenericClock, 149) == 0);
  c.raise(kGenericClock, 205, 1);
  c.join(b);
  CHECK(c.of(kGenericClock, 205) == 2);
  CHECK(c.of(kGenericClock, 103) == 9);
  CHECK(c.of(kSharedProxyClock, 149) == 4);
  c.show(kGlobalProxyClock);
  CHECK(c.of(kGlobalProxyClock, 103) == 9);
  CHECK(c.of(kGlobalProxyClock, 205) == 2);
  CHECK(c.of(kSharedProxyClock, 205) == 0);
}
