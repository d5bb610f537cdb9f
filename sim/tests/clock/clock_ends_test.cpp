// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A replay ends like this: once a warp has done all its memory accesses, it leaves its last loop.
#include "sim/tests/clock/clock_run.h"

using namespace sim;
using namespace sim::test;

namespace {

uint64_t stores_of(const clock::KernelTime& time) {
  uint64_t count = 0;
  for (size_t k = 0; k < time.program.ops.size(); ++k) {
    if (time.program.ops[k].kind == clock::OpKind::store) count += time.replay.ops[k].issued;
  }
  return count;
}

// A loop of stores that goes around at least once.
std::string loop(const std::string& name, const std::string& rounds) {
  return " mov.u32 %r1, 0;\n" + name +
         ":\n mul.wide.u32 %d1, %r1, 4;\n add.u64 %d2, %d0, %d1;\n"
         " st.volatile.global.u32 [%d2], %r1;\n add.u32 %r1, %r1, 1;\n setp.lt.u32 %p1, %r1, " +
         rounds + ";\n .pragma \"nounroll\";\n @%p1 bra " + name + ";\n";
}

}  // namespace

TEST_CASE("the last loop that a warp goes through ends although stores stand behind it") {
  // Two more loops stand behind the first; the warps go around both.
  const std::string text = unit(
      "\n.visible .entry k(.param .u64 out, .param .u32 rounds, .param .u32 more) {\n"
      " .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<4>;\n"
      " ld.param.u64 %d0, [out];\n ld.param.u32 %r0, [rounds];\n"
      " ld.param.u32 %r2, [more];\n" +
      loop("FIRST", "%r0") + " setp.lt.u32 %p2, %r2, 1;\n @%p2 bra PAST;\n" +
      loop("SECOND", "%r2") + "PAST:\n setp.lt.u32 %p3, %r2, 2;\n @%p3 bra DONE;\n" +
      loop("THIRD", "%r2") + "DONE:\n ret;\n}\n");
  for (const bool ptx_only : {true, false}) {
    for (const uint32_t more : {0u, 1u, 3u}) {
      Device device;
      device.load(text);
      const uint64_t out = device.buffer(16 * 4);
      const Timed timed = run_timed(device, "h100", {0, ptx_only}, 1, 1, 32, out, 12u, more);
      CAPTURE(ptx_only);
      CAPTURE(more);
      if (!ptx_only && timed.time.from != "sass") {
        // Without NVIDIA's tools there is no machine code; a poor match is an error.
        REQUIRE(timed.time.made_by.find("was found in the machine code") == std::string::npos);
        MESSAGE("from PTX alone, as " << timed.time.made_by);
        continue;
      }
      CHECK(stores_of(timed.time) == 12 + more + (more > 1 ? more : 0));
    }
  }
}
