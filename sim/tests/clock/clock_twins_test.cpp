// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Accesses that are alike, of which ptxas gives two the line of one: the replay does both.
#include "sim/tests/clock/clock_run.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("two alike accesses are both found where ptxas names one line for them") {
  // Rows of 16-bit numbers, of which one half of a pair is used here and the other half there.
  const std::string text = unit(
      "\n.shared .align 16 .b8 room[2048];\n"
      ".visible .entry k(.param .u64 out) {\n"
      " .reg .b64 %d<8>; .reg .b32 %r<32>; .reg .b16 %h<32>;\n"
      " ld.param.u64 %d0, [out];\n mov.u32 %r0, %tid.x;\n mul.wide.u32 %d1, %r0, 16;\n"
      " mov.u64 %d2, room;\n add.u64 %d3, %d2, %d1;\n add.u64 %d4, %d0, %d1;\n"
      " mov.u32 %r1, 0;\n st.shared.v4.u32 [%d3], {%r0, %r1, %r0, %r1};\n bar.sync 0;\n"
      " ld.shared.u16 %h0, [%d3+2];\n ld.shared.v2.u16 {%h1, %h2}, [%d3+4];\n"
      " ld.shared.u16 %h3, [%d3+10];\n ld.shared.v2.u16 {%h4, %h5}, [%d3+12];\n"
      " ld.global.u32 %r2, [%d4];\n cvt.u16.u32 %h6, %r2;\n shr.u32 %r3, %r2, 16;\n"
      " cvt.u16.u32 %h7, %r3;\n mov.b32 %r4, {%h5, %h7};\n mov.b32 %r5, {%h3, %h4};\n"
      " mov.b32 %r6, {%h2, %h6};\n mov.b32 %r7, {%h0, %h1};\n"
      " st.shared.v4.u32 [%d3], {%r7, %r6, %r5, %r4};\n bar.sync 0;\n"
      " ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%d3];\n"
      " st.global.v4.u32 [%d4], {%r8, %r9, %r10, %r11};\n ret;\n}\n");
  Device device;
  device.load(text);
  const uint64_t out = device.buffer(32 * 16);
  const Timed timed = run_timed(device, "h100", {0, false}, 1, 1, 32, out);
  if (timed.time.from != "sass") {
    // Without NVIDIA's tools there is no machine code; a poor match is an error.
    REQUIRE(timed.time.made_by.find("was found in the machine code") == std::string::npos);
    MESSAGE("from PTX alone, as " << timed.time.made_by);
    return;
  }
  CHECK(timed.time.mapped == 1.0);
}
