// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kernels that only a checker forbids: with the check they end with an error at
// the marked instruction, without any check they do what the hardware does.
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

std::string kernel(const std::string& body, const std::string& bounds = "") {
  return unit(".visible .entry k(.param .u64 out)" + bounds + R"( {
  .reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %rd<8>; .reg .b32 %t;
  .shared .align 8 .b8 bar[16];
  mov.u32 %t, %tid.x; mov.u32 %r9, %t; mov.u32 %r1, bar; setp.eq.u32 %p1, %t, 0;
)" + body + R"(
  ld.param.u64 %rd1, [out]; mad.wide.u32 %rd2, %t, 4, %rd1;
  st.global.u32 [%rd2], %r9;
  ret;
}
)");
}

ThreadWords run_checked(const std::string& ptx, uint32_t check, uint64_t seed = 0,
                        uint32_t blocks = 1) {
  Device device;
  device.settings.check = check;
  device.settings.seed = seed;
  device.settings.instruction_limit = 1'000'000;
  device.cluster = blocks;  // all of them are one cluster
  return run_values(device, ptx, blocks, 32);
}

template <class F>
void only_checked(const std::string& ptx, const std::string& kind, F expected,
                  uint32_t blocks = 1) {
  for (const uint32_t check : {uint32_t{kCheckAll}, uint32_t{kMemcheck}}) {
    const Outcome o = run_checked(ptx, check, 0, blocks).outcome;
    INFO(texts(o));
    CHECK(o.error == 719);
    CHECK(kinds(o).find(kind) != std::string::npos);
  }
  check_values(run_checked(ptx, kCheckNone, 0, blocks), expected);
}

uint32_t same(uint32_t t) { return t; }

}  // namespace

TEST_CASE("masks without the lane, and masks that overlap") {
  only_checked(kernel("mov.u32 %r2, 0xFFFF; shfl.sync.bfly.b32 %r9, %t, 1, 31, %r2;"), "divergent",
               [](uint32_t t) { return t ^ 1; });
  only_checked(kernel("setp.lt.u32 %p2, %t, 16; selp.b32 %r2, 0x1FFFF, 0xFFFF0000, %p2;"
                      "shfl.sync.bfly.b32 %r9, %t, 1, 31, %r2;"),
               "divergent", [](uint32_t t) { return t ^ 1; });
}

TEST_CASE(
    "mbarriers that are initialised again within a phase, dropped to nothing, or asked with a "
    "stale state") {
  only_checked(kernel("@%p1 mbarrier.init.shared.b64 [%r1], 7;"
                      "@%p1 mbarrier.arrive.shared.b64 %rd3, [%r1];"
                      "@%p1 mbarrier.init.shared.b64 [%r1], 1;"
                      "@%p1 mbarrier.arrive.shared.b64 %rd3, [%r1];"
                      "@%p1 mbarrier.test_wait.shared.b64 %p2, [%r1], %rd3;"
                      "@%p1 selp.b32 %r9, 100, 200, %p2;"),
               "mbarrier", [](uint32_t t) { return t ? t : 100; });
  only_checked(kernel("@%p1 mbarrier.init.shared.b64 [%r1], 1;"
                      "@%p1 mbarrier.arrive_drop.shared.b64 %rd3, [%r1];"),
               "mbarrier", same);
  only_checked(kernel("@%p1 mbarrier.init.shared.b64 [%r1], 1;"
                      "@%p1 mbarrier.arrive.shared.b64 %rd3, [%r1];"
                      "@%p1 mbarrier.test_wait.shared.b64 %p2, [%r1], %rd3;"
                      "@%p1 mbarrier.arrive.shared.b64 %rd4, [%r1];"
                      "@%p1 mbarrier.test_wait.shared.b64 %p2, [%r1], %rd4;"
                      "@%p1 mbarrier.test_wait.shared.b64 %p2, [%r1], %rd3;"),
               "mbarrier", same);
}

TEST_CASE("a warp that arrives twice without waiting") {
  only_checked(kernel("bar.arrive 1, 64; bar.arrive 1, 64;"), "barrier", same);
}

TEST_CASE("setmaxnreg that gives what it should take") {
  const std::string bounds = ".maxntid 32, 1, 1\n.maxnreg 64\n";
  only_checked(kernel("setmaxnreg.dec.sync.aligned.u32 128;", bounds), "registers", same);
}

// On hardware the neighbour is still there, as both blocks take about as long.
TEST_CASE("an arrival at an mbarrier of a block that has ended") {
  only_checked(kernel("mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p2, %r3, 0; mov.u32 %r4, 0;"
                      "mad.lo.u32 %t, %r3, 32, %t; mov.u32 %r9, %t;"
                      "@%p1 mbarrier.init.shared.b64 [%r1], 1;"
                      "barrier.cluster.arrive; barrier.cluster.wait;"
                      "@!%p2 bra END;"
                      "LOOP: add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 20000; @%p3 bra LOOP;"
                      "mapa.shared::cluster.u32 %r5, %r1, 1;"
                      "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];"
                      "END:"),
               "dsmem_after_exit", same, 2);
}

TEST_CASE("shared memory begins where the hardware has it, unless aligncheck moves it") {
  const std::string ptx = kernel("mov.u32 %r9, bar;");
  bool moved = false;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    check_values(run_checked(ptx, kCheckAll & ~kAligncheck, seed), [](uint32_t) { return 1024; });
    const ThreadWords r = run_checked(ptx, kAligncheck, seed);
    moved |= r.values[0] != 1024;
    CHECK(r.values[0] >= 1024);
    CHECK(r.values[0] < 2048);
    CHECK(r.values[0] % 8 == 0);
  }
  CHECK(moved);
}
