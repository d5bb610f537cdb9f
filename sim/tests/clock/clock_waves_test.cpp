// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From the blocks that were replayed to the grid: a last wave that is not full, and fewer recorded
// blocks than a multiprocessor has at a time.
#include "sim/tests/clock/clock_run.h"

using namespace sim;
using namespace sim::test;

namespace {

const clock::ReplayOptions kPtx{0, true};

// Each block loads the same 512 KiB, which L2 has after the first.
const char* const kLoads = R"(
.visible .entry k(.param .u64 in) {
  .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .f32 %f<9>; .reg .pred %p;
  mov.f32 %f8, 0f00000000;
  ld.param.u64 %d0, [in];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %d1, %r0, 16;
  add.u64 %d0, %d0, %d1;
  mov.u32 %r1, 0;
AGAIN:
  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%d0];
  ld.global.v4.f32 {%f4, %f5, %f6, %f7}, [%d0 + 8192];
  add.f32 %f8, %f8, %f0;
  add.f32 %f8, %f8, %f4;
  add.u64 %d0, %d0, 16384;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p, %r1, 32;
  @%p bra AGAIN;
  ret;
}
)";

// Multiply-adds that wait for each other: a warp issues in one of four cycles.
std::string sums() {
  return unit("\n.visible .entry k(.param .u64 in) {\n .reg .f32 %f;\n mov.f32 %f, 0f3F800000;\n" +
              repeated(200, " fma.rn.f32 %f, %f, %f, %f;\n") + " ret;\n}\n");
}

double cycles_of_loads(uint32_t blocks) {
  Device device("sm_80");
  device.dynamic_shared = 100 * 1024;  // one block at a time
  device.load(unit(kLoads, "sm_80"));
  const uint64_t in = device.buffer(512 * 1024);
  return run_timed(device, "a100", kPtx, 4, blocks, 512, in).time.cycles;
}

}  // namespace

TEST_CASE(
    "a last wave of few blocks, which share L2 with nobody, takes less time than a full one") {
  const double one = cycles_of_loads(108),
               few = cycles_of_loads(2 * 108 + 1) - cycles_of_loads(216),
               two = cycles_of_loads(216) - one;
  INFO("cycles of a first wave " << one << ", of a second " << two << ", of one block " << few);
  CHECK(two > 0.95 * one);
  // 3830 bytes a cycle for 108 multiprocessors against 64 for one.
  CHECK(few < 0.75 * two);
  CHECK(few > 0.5 * two);
}

TEST_CASE("one recorded block stands for all that are on a multiprocessor at a time") {
  Device device;
  device.load(sums());
  const uint64_t in = device.buffer(64);
  const Timed timed = run_timed(device, "h100", kPtx, 1, 132 * 16, 128, in);
  REQUIRE(timed.time.resident == 16);
  REQUIRE(timed.time.use[0].resource == "issue");
  CHECK(timed.time.use[0].share > 0.9);  // 0.25 if the block had the multiprocessor for itself
  CHECK(timed.time.cycles > 1.5 * 4 * 200);
}
