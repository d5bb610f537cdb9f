// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These litmus tests stay within a block: barriers, named barriers, lanes of one warp, pieces of a
// word.
#include "sim/tests/checks/litmus.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("a barrier between writers and readers, and before the next writers") {
  check_litmus("barrier", 1, 128,
               R"(mov.u32 %r10, 0;
xor.b32 %r11, %t, 32; mad.lo.u32 %r11, %r11, 4, %r8;
NEXT:
st.shared.u32 [%r9], %t; // A
bar.sync 0; // first
ld.shared.u32 %r1, [%r11]; // B
bar.sync 0; // second
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 3; @%p1 bra NEXT;
)",
               {{"bar.sync 0; // first", ""},
                {"bar.sync 0; // second", ""},
                {"bar.sync 0; // first", "bar.warp.sync -1;"},
                {"bar.sync 0; // first", "membar.cta;"}});
}

TEST_CASE("a barrier orders global memory within its block") {
  check_litmus("global barrier", 1, 128,
               R"(xor.b32 %r11, %t, 64; mad.wide.u32 %rd4, %r11, 4, %rd1;
st.global.u32 [%rd3], %t; // A
barrier.red.popc.u32 %r1, 0, %p1; // here
ld.global.u32 %r1, [%rd4]; // B
)",
               {{"barrier.red.popc.u32 %r1, 0, %p1; // here", ""}});
}

TEST_CASE("named barriers: a producer that arrives, a consumer that waits") {
  check_litmus("producer and consumer", 1, 64,
               R"(mad.lo.u32 %r11, %l, 4, %r8;
mov.u32 %r10, 0;
setp.eq.u32 %p1, %w, 1; @%p1 bra CONSUMER;
PRODUCER:
bar.sync 2, 64; // empty
st.shared.u32 [%r11], %t; // A
bar.arrive 1, 64; // full
add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 4; @%p2 bra PRODUCER;
bra END;
CONSUMER:
bar.arrive 2, 64;
FULL:
bar.sync 1, 64;
ld.shared.u32 %r1, [%r11]; // B
add.u32 %r10, %r10, 1; setp.ge.u32 %p2, %r10, 4; @%p2 bra END;
bar.arrive 2, 64; // hand over
bra FULL;
)",
               {{"st.shared.u32 [%r11], %t; // A\nbar.arrive 1, 64; // full",
                 "bar.arrive 1, 64;\nst.shared.u32 [%r11], %t; // A"},
                {"bar.arrive 2, 64; // hand over\n",
                 "bar.arrive 2, 64;\nld.shared.u32 %r1, [%r11+4]; // D\n", "AD"}});
}

TEST_CASE("who arrives acquires nothing") {
  check_litmus("arrive", 1, 64,
               R"(setp.eq.u32 %p1, %w, 1; @%p1 bra OTHER;
bar.sync 1, 64;
ld.shared.u32 %r1, [%r8]; // B
bra END;
OTHER:
setp.ne.u32 %p2, %l, 0;
@!%p2 st.shared.u32 [%r8], 7; // A
bar.sync 1, 64;
)",
               {{"bar.sync 1, 64;\nld.shared.u32 %r1, [%r8]; // B",
                 "bar.arrive 1, 64;\nld.shared.u32 %r1, [%r8]; // B"}});
}

TEST_CASE("two barriers are two: one orders nothing for the other's warps") {
  check_litmus("ids", 1, 128,
               R"(shr.u32 %r10, %w, 1; add.u32 %r10, %r10, 1;
xor.b32 %r11, %t, 32; mad.lo.u32 %r11, %r11, 4, %r8; // partner
st.shared.u32 [%r9], %t; // A
barrier.sync %r10, 64;
ld.shared.u32 %r1, [%r11]; // B
)",
               {{"xor.b32 %r11, %t, 32; mad.lo.u32 %r11, %r11, 4, %r8; // partner",
                 "xor.b32 %r11, %t, 64; mad.lo.u32 %r11, %r11, 4, %r8;"}});
}

TEST_CASE("lanes of a warp meet at bar.warp.sync and nowhere else") {
  check_litmus("lanes", 1, 32,
               R"(xor.b32 %r11, %l, 1; mad.lo.u32 %r11, %r11, 4, %r8;
st.shared.u32 [%r9], %t; // A
bar.warp.sync -1; // here
ld.shared.u32 %r1, [%r11]; // B
bar.warp.sync -1; // and here
st.shared.u32 [%r9], %r1; // C
)",
               {{"bar.warp.sync -1; // here", "", "AB"},
                {"bar.warp.sync -1; // and here", "", "BC"},
                {"bar.warp.sync -1; // here", "shfl.sync.idx.b32 %r2, %t, 0, 31, -1;", "AB"},
                {"bar.warp.sync -1; // here", "vote.sync.ballot.b32 %r2, %p1, -1;", "AB"}});
}

TEST_CASE("parts of a warp meet") {
  check_litmus("halves", 1, 32,
               R"(xor.b32 %r11, %l, 8; mad.lo.u32 %r11, %r11, 4, %r8; // partner
setp.gt.u32 %p1, %l, 15; selp.b32 %r12, 0xFFFF0000, 0xFFFF, %p1;
st.shared.u32 [%r9], %t; // A
bar.warp.sync %r12; // here
ld.shared.u32 %r1, [%r11]; // B
)",
               {{"xor.b32 %r11, %l, 8; mad.lo.u32 %r11, %r11, 4, %r8; // partner",
                 "xor.b32 %r11, %l, 16; mad.lo.u32 %r11, %r11, 4, %r8;"},
                {"bar.warp.sync %r12; // here", ""}});
  // Quarters to halves to all: order passes on from meeting to meeting.
  check_litmus("tree", 1, 32,
               R"(st.shared.u32 [%r9], %t; // A
and.b32 %r10, %l, 30; mov.u32 %r12, 3; shl.b32 %r12, %r12, %r10;
bar.warp.sync %r12; // pairs
and.b32 %r10, %l, 28; mov.u32 %r12, 15; shl.b32 %r12, %r12, %r10;
bar.warp.sync %r12; // fours
xor.b32 %r11, %l, 3; mad.lo.u32 %r11, %r11, 4, %r8;
ld.shared.u32 %r1, [%r11]; // B
)",
               {{"bar.warp.sync %r12; // fours", ""}});
}

TEST_CASE("sides of a branch are not ordered, whichever runs first") {
  check_litmus("branches", 1, 32,
               R"(st.shared.u32 [%r9], 0;
bar.warp.sync -1;
setp.lt.u32 %p1, %l, 16; @%p1 bra LOW;
ld.shared.u32 %r1, [%r9]; // B
bra END;
LOW:
st.shared.u32 [%r9], %t; // A
)",
               {{"ld.shared.u32 %r1, [%r9]", "ld.shared.u32 %r1, [%r9+-64]"}});
}

TEST_CASE("bytes of one word belong to whom they belong") {
  check_litmus("bytes", 1, 64,
               R"(shl.b32 %r10, %l, 2; add.u32 %r10, %r10, %r8; add.u32 %r10, %r10, %w;
st.shared.u8 [%r10], %t; // A
ld.shared.u8 %r1, [%r10]; // B
)",
               {{"ld.shared.u8 %r1, [%r10]", "ld.shared.u8 %r1, [%r10+1]"},
                {"add.u32 %r10, %r10, %w;", "", "AAAB"}});
  check_litmus("adjacent lanes", 1, 32,
               R"(add.u32 %r10, %r8, %l;
st.shared.u8 [%r10], %t; // A
ld.shared.u8 %r1, [%r10]; // B
bar.warp.sync -1; // here
and.b32 %r11, %l, 30; add.u32 %r11, %r11, %r8;
ld.shared.u16 %r1, [%r11]; // C
)",
               {{"bar.warp.sync -1; // here", "", "AC"}});
  check_litmus("halves of a word", 1, 64,
               R"(mad.lo.u32 %r10, %l, 4, %r8; mad.lo.u32 %r10, %w, 2, %r10;
st.shared.b16 [%r10], %h1; // A
ld.shared.b16 %h2, [%r10]; // B
)",
               {{"mad.lo.u32 %r10, %w, 2, %r10;", "", "AAAB"}});
}

TEST_CASE("vectors of sixteen bytes") {
  check_litmus("vectors", 1, 64,
               R"(mad.lo.u32 %r10, %t, 16, %r8;
xor.b32 %r11, %t, 33; mad.lo.u32 %r11, %r11, 16, %r8;
st.shared.v4.u32 [%r10], {%t, %t, %t, %t}; // A
ld.shared.v2.u32 {%r1, %r2}, [%r10+8];
bar.sync 0; // here
ld.shared.u32 %r3, [%r11+12]; // B
ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r11]; // C
)",
               {{"bar.sync 0; // here", "", "ABAC"}});
  // Words written one by one, read as one vector.
  check_litmus(
      "gathered", 1, 32,
      R"(st.shared.u32 [%r9], %t; // A
bar.warp.sync -1; // here
and.b32 %r10, %l, 28; mad.lo.u32 %r10, %r10, 4, %r8;
ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r10]; // B
bar.warp.sync -1; // and here
st.shared.u32 [%r9], %r1; // C
)",
      {{"bar.warp.sync -1; // here", "", "ABBC"}, {"bar.warp.sync -1; // and here", "", "BC"}});
}

TEST_CASE("several lanes store to one place") {
  check_litmus("one place", 1, 32,
               R"(shr.u32 %r10, %l, 3; mad.lo.u32 %r11, %r10, 4, %r8;
st.shared.u32 [%r11], %r10; // A
ld.shared.u32 %r1, [%r11]; // B
)",
               {{"st.shared.u32 [%r11], %r10", "st.shared.u32 [%r11], %t", "AAAB"}});
}

TEST_CASE("atomics, and plain accesses to what they change") {
  check_litmus("histogram", 1, 128,
               R"(setp.gt.u32 %p1, %t, 3; @!%p1 st.shared.u32 [%r9], 0; // C
bar.sync 0; // first
and.b32 %r10, %t, 3; mad.lo.u32 %r10, %r10, 4, %r8;
red.shared.add.u32 [%r10], 1; // A
bar.sync 0; // second
ld.shared.u32 %r1, [%r10]; // B
)",
               {{"bar.sync 0; // first", "", "CA"},
                {"bar.sync 0; // second", "", "AB"},
                {"red.shared.add.u32 [%r10], 1;", "st.shared.u32 [%r10], %t;", "AA"}});
}

namespace {

// Warp 0 stores and sets a flag in shared memory; warp 1 waits for the flag and loads.
std::string message(const std::string& set, const std::string& get, const std::string& got = "") {
  return "setp.ne.u32 %p1, %t, 0; @!%p1 st.shared.u32 [%r8+1024], 0;\n"
         "bar.sync 0;\n"
         "setp.ne.u32 %p1, %l, 0; @%p1 bra END;\n"
         "setp.eq.u32 %p2, %w, 1; @%p2 bra CONSUMER;\n"
         "st.shared.u32 [%r8], 42; // A\n" +
         set + "bra END;\nCONSUMER:\n" + get + "setp.eq.u32 %p3, %r1, 0; @%p3 bra CONSUMER;\n" +
         got + "ld.shared.u32 %r2, [%r8]; // B\n";
}

}  // namespace

TEST_CASE("flags in shared memory") {
  check_litmus("shared flag", 1, 64,
               message("fence.acq_rel.cta; // before\n"
                       "st.volatile.shared.u32 [%r8+1024], 1; // C\n",
                       "ld.volatile.shared.u32 %r1, [%r8+1024]; // D\n", "membar.cta; // after\n"),
               {{"fence.acq_rel.cta; // before", ""},
                {"membar.cta; // after", ""},
                {"st.volatile", "st", "ABCD"},
                {"ld.volatile", "ld", "ABCD"}});
  check_litmus("shared release", 1, 64,
               message("atom.release.cta.shared.add.u32 %r1, [%r8+1024], 1;\n",
                       "ld.acquire.cta.shared.u32 %r1, [%r8+1024];\n"),
               {{"atom.release", "atom.relaxed"}, {"ld.acquire", "ld.relaxed"}});
}

TEST_CASE("generic addresses are the memory they point to") {
  check_litmus("generic", 1, 64,
               R"(cvt.u64.u32 %rd4, %r9; cvta.shared.u64 %rd4, %rd4;
st.u32 [%rd4], %t; // A
xor.b32 %r11, %t, 32; mad.lo.u32 %r11, %r11, 4, %r8;
bar.sync 0; // here
ld.shared.u32 %r1, [%r11]; // B
)",
               {{"bar.sync 0; // here", ""}});
}
