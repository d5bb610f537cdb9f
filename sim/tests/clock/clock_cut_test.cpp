// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The clock replays the beginning of a long block: it takes as long as the whole would, within what
// the beginning can know, and no warp waits for what was cut off.
#include "sim/tests/clock/clock_run.h"
#include "sim/tests/gemm/gemm.h"

using namespace sim;
using namespace sim::test;

namespace {

// A product with rings of mbarriers, copies that reach both blocks of a cluster, and three roles.
Timed run_product(const std::string& ptx, uint64_t most_instructions, bool ptx_only) {
  constexpr uint32_t kM = 256, kN = 128, kK = 64 * 64;
  Device device("sm_90a");
  device.settings.check = kMemcheck;
  device.cluster = 2;
  device.dynamic_shared = 4 * 32768 + 2 * 16384 + 64;
  device.load(ptx);
  const uint64_t a = device.upload(std::vector<uint16_t>(kM * kK)),
                 b = device.upload(std::vector<uint16_t>(kN * kK)), d = device.buffer(kM * kN * 2);
  Traces traces;
  traces.most = 2;
  if (most_instructions > 0) traces.most_instructions = most_instructions;
  return run_traced(device, traces, "gemm", "h100", {0, ptx_only}, 2, 384, map_of(a, kM, kK, 128),
                    map_of(b, kN, kK, 64), map_of(d, kM, kN, 64), 1u, kK / 64, 1u);
}

// Four warps that meet after every load of a long walk.
std::string walk() {
  return unit(
      "\n.visible .entry k(.param .u64 in, .param .u32 rounds) {\n"
      " .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .pred %p<4>;\n"
      " ld.param.u64 %d0, [in];\n ld.param.u32 %r0, [rounds];\n mov.u32 %r1, %tid.x;\n"
      " mul.wide.u32 %d1, %r1, 4;\n add.u64 %d0, %d0, %d1;\n mov.f32 %f0, 0f00000000;\n"
      "ROUND:\n ld.global.f32 %f1, [%d0];\n add.f32 %f0, %f0, %f1;\n bar.sync 0;\n"
      " add.u64 %d0, %d0, 512;\n sub.u32 %r0, %r0, 1;\n setp.ne.u32 %p0, %r0, 0;\n"
      " @%p0 bra ROUND;\n st.global.f32 [%d0+-512], %f0;\n ret;\n}\n");
}

}  // namespace

TEST_CASE("a block that is cut takes as long as the whole one") {
  const uint32_t rounds = 600;
  for (const bool ptx_only : {true, false}) {
    double whole = 0;
    for (const uint64_t most : {0ull, 6000ull}) {
      Device device;
      device.settings.check = kMemcheck;
      device.load(walk());
      const uint64_t in = device.upload(std::vector<float>(rounds * 128));
      Traces traces;
      traces.most = 1;
      if (most > 0) traces.most_instructions = most;
      const Timed timed =
          run_traced(device, traces, "k", "h100", {0, ptx_only}, 1, 128, in, rounds);
      CAPTURE(ptx_only);
      CHECK(!timed.time.replay.stuck);
      if (most == 0) {
        CHECK(timed.time.recorded == 1);
        whole = timed.time.cycles;
      } else {
        CHECK(timed.time.recorded < 0.7);
        CHECK(timed.time.cycles == doctest::Approx(whole).epsilon(0.1));
      }
    }
  }
}

TEST_CASE("a cut through rings of mbarriers in a cluster leaves nobody waiting") {
  const std::string ptx = compile_gemm("hopper_gemm.cuh", "sm_90a");
  if (ptx.empty()) return;
  for (const bool ptx_only : {true, false}) {
    const Timed whole = run_product(ptx, 0, ptx_only), part = run_product(ptx, 20'000, ptx_only);
    CAPTURE(ptx_only);
    CAPTURE(part.time.recorded);
    CHECK(whole.time.recorded == 1);
    CHECK(part.time.recorded < 0.7);
    CHECK(!part.time.replay.stuck);
    CHECK(part.time.cycles == doctest::Approx(whole.time.cycles).epsilon(0.15));
  }
}
