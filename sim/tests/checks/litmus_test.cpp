// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These litmus tests cover order through global memory: between blocks, by releases, acquires and
// fences.
#include "sim/tests/checks/litmus.h"

using namespace sim;
using namespace sim::test;

namespace {

// Lane 0 of block 0 stores and sets a flag; lane 0 of block 1 waits for the flag and loads.
std::string message(const std::string& set, const std::string& get, const std::string& got = "") {
  return "setp.ne.u32 %p1, %l, 0; @%p1 bra END;\n"
         "setp.ne.u32 %p2, %c, 0; @%p2 bra CONSUMER;\n"
         "st.global.u32 [%rd1], 42; // A\n" +
         set + "bra END;\nCONSUMER:\n" + get + "setp.eq.u32 %p3, %r1, 0; @%p3 bra CONSUMER;\n" +
         got + "ld.global.u32 %r2, [%rd1]; // B\n";
}

}  // namespace

TEST_CASE("message passing by release and acquire") {
  check_litmus("mp", 2, 32,
               message("st.release.gpu.global.u32 [%rd2], 1; // C\n",
                       "ld.acquire.gpu.global.u32 %r1, [%rd2]; // D\n"),
               {{"st.release.gpu", "st.relaxed.gpu"},
                {"ld.acquire.gpu", "ld.relaxed.gpu"},
                {"st.release.gpu", "st.release.cta", "ABCD"},
                {"ld.acquire.gpu", "ld.acquire.cta", "ABCD"},
                {"st.release.gpu", "st.release.cluster", "ABCD"},
                {"st.release.gpu.global.u32 [%rd2], 1;", "st.global.u32 [%rd2], 1;", "ABCD"},
                {"ld.acquire.gpu", "ld", "ABCD"}});
}

TEST_CASE("message passing by fences around relaxed accesses") {
  check_litmus("fences", 2, 32,
               message("fence.acq_rel.gpu;\n"
                       "st.relaxed.gpu.global.u32 [%rd2], 1; // C\n",
                       "ld.relaxed.gpu.global.u32 %r1, [%rd2]; // D\n", "fence.sc.gpu;\n"),
               {{"fence.acq_rel.gpu;", ""},
                {"fence.sc.gpu;", ""},
                {"fence.acq_rel.gpu;", "fence.acq_rel.cta;"},
                {"fence.sc.gpu;", "fence.sc.cta;"},
                {"st.relaxed.gpu", "st.relaxed.cta", "ABCD"},
                {"st.relaxed.gpu.global", "st.global", "ABCD"}});
}

TEST_CASE("a fence meets an acquire, a release meets a fence") {
  check_litmus("mixed", 2, 32,
               message("membar.gl;\n"
                       "red.relaxed.gpu.global.add.u32 [%rd2], 1;\n",
                       "ld.acquire.gpu.global.u32 %r1, [%rd2];\n"),
               {{"membar.gl;", ""}, {"membar.gl;", "membar.cta;"}, {"ld.acquire", "ld.relaxed"}});
  check_litmus("mixed back", 2, 32,
               message("atom.release.gpu.global.exch.b32 %r5, [%rd2], 1;\n",
                       "atom.relaxed.gpu.global.or.b32 %r1, [%rd2], 0;\n", "fence.acq_rel.gpu;\n"),
               {{"fence.acq_rel.gpu;", ""}, {"atom.release", "atom.relaxed"}});
}

TEST_CASE("volatile flags are relaxed: they need fences") {
  check_litmus("volatile", 2, 32,
               message("membar.gl;\n"
                       "st.volatile.global.u32 [%rd2], 1; // C\n",
                       "ld.volatile.global.u32 %r1, [%rd2]; // D\n", "membar.sys;\n"),
               {{"membar.gl;", ""},
                {"membar.sys;", ""},
                {"membar.sys;", "membar.cta;"},
                {"ld.volatile", "ld", "ABCD"}});
}

TEST_CASE("partial sums of several blocks, counted by atomics: a release sequence") {
  check_litmus("stream-k", 4, 64,
               R"(setp.eq.u32 %p2, %c, 3; @%p2 bra LAST;
mad.lo.u32 %r1, %c, 64, %t; mad.wide.u32 %rd4, %r1, 4, %rd1;
st.global.u32 [%rd4], %t; // A
bar.sync 0;
setp.ne.u32 %p1, %t, 0; @%p1 bra END;
red.release.gpu.global.add.u32 [%rd2], 1;
bra END;
LAST:
setp.ne.u32 %p1, %t, 0; @%p1 bra SKIP;
SPIN:
ld.acquire.gpu.global.u32 %r1, [%rd2];
setp.lt.u32 %p3, %r1, 3; @%p3 bra SPIN;
SKIP:
barrier.sync 0;
ld.global.u32 %r2, [%rd3]; // B
ld.global.u32 %r2, [%rd3+256]; // C
ld.global.u32 %r2, [%rd3+512]; // D
)",
               {{"red.release", "red.relaxed", "ABACAD"},
                {"ld.acquire", "ld.relaxed", "ABACAD"},
                {"bar.sync 0;", "", "ABACAD"},
                {"barrier.sync 0;", "", "ABACAD"}});
}

TEST_CASE("locks") {
  check_litmus("lock", 4, 32,
               R"(setp.ne.u32 %p1, %l, 0; @%p1 bra END;
LOCK:
atom.acquire.gpu.global.cas.b32 %r1, [%rd2], 0, 1; // C
setp.ne.u32 %p3, %r1, 0; @%p3 bra LOCK;
ld.global.u32 %r2, [%rd1]; // A
add.u32 %r2, %r2, 1;
st.global.u32 [%rd1], %r2; // B
atom.release.gpu.global.exch.b32 %r1, [%rd2], 0; // D
)",
               {{"atom.acquire", "atom.relaxed", "ABBB"},
                {"atom.release", "atom.relaxed", "ABBB"},
                {"atom.release.gpu", "atom.release.cta", "ABBBCD"}});
  check_litmus(
      "lock with fences", 4, 32,
      R"(setp.ne.u32 %p1, %l, 0; @%p1 bra END;
LOCK:
atom.global.cas.b32 %r1, [%rd2], 0, 1;
setp.ne.u32 %p3, %r1, 0; @%p3 bra LOCK;
fence.acq_rel.gpu; // after
ld.global.u32 %r2, [%rd1]; // A
add.u32 %r2, %r2, 1;
st.global.u32 [%rd1], %r2; // B
fence.acq_rel.gpu; // before
st.relaxed.gpu.global.u32 [%rd2], 0;
)",
      {{"fence.acq_rel.gpu; // after", "", "ABBB"}, {"fence.acq_rel.gpu; // before", "", "ABBB"}});
}

TEST_CASE("strong accesses do not race: store buffering and independent reads") {
  check_litmus("sb", 2, 32,
               R"(setp.ne.u32 %p1, %l, 0; @%p1 bra END;
setp.ne.u32 %p2, %c, 0; @%p2 bra OTHER;
st.relaxed.gpu.global.u32 [%rd1], 1; // A
ld.relaxed.gpu.global.u32 %r1, [%rd2]; // C
bra END;
OTHER:
st.relaxed.gpu.global.u32 [%rd2], 1; // D
ld.relaxed.gpu.global.u32 %r1, [%rd1]; // B
)",
               {{"ld.relaxed.gpu.global.u32 %r1, [%rd1]", "ld.global.u32 %r1, [%rd1]"},
                {"st.relaxed.gpu.global.u32 [%rd1]", "st.relaxed.cta.global.u32 [%rd1]"}});
  check_litmus("iriw", 4, 32,
               R"(setp.ne.u32 %p1, %l, 0; @%p1 bra END;
setp.eq.u32 %p2, %c, 0; @%p2 st.relaxed.gpu.global.u32 [%rd1], 1; // A
setp.eq.u32 %p2, %c, 1; @%p2 st.volatile.global.u32 [%rd2], 1;
setp.lt.u32 %p2, %c, 2; @%p2 bra END;
ld.relaxed.sys.global.u32 %r1, [%rd1]; // B
ld.acquire.gpu.global.u32 %r1, [%rd2];
)",
               {{"ld.relaxed.sys.global.u32 %r1, [%rd1]", "ld.global.u32 %r1, [%rd1]"},
                {"st.relaxed.gpu.global.u32 [%rd1]", "st.global.u32 [%rd1]"}});
}

TEST_CASE("order is transitive through a third block") {
  check_litmus("isa2", 3, 32,
               R"(setp.ne.u32 %p1, %l, 0; @%p1 bra END;
setp.eq.u32 %p2, %c, 1; @%p2 bra SECOND;
setp.eq.u32 %p2, %c, 2; @%p2 bra THIRD;
st.global.u32 [%rd1], 42; // A
st.release.gpu.global.u32 [%rd2], 1;
bra END;
SECOND:
ld.acquire.gpu.global.u32 %r1, [%rd2];
setp.eq.u32 %p3, %r1, 0; @%p3 bra SECOND;
st.release.sys.global.u32 [%rd2+64], 1;
bra END;
THIRD:
ld.acquire.sys.global.u32 %r1, [%rd2+64];
setp.eq.u32 %p3, %r1, 0; @%p3 bra THIRD;
ld.global.u32 %r2, [%rd1]; // B
)",
               {{"ld.acquire.gpu", "ld.relaxed.gpu"},
                {"st.release.sys", "st.relaxed.sys"},
                {"ld.acquire.sys", "ld.relaxed.sys"}});
}

TEST_CASE("blocks that never meet") {
  check_litmus("neighbours", 8, 64,
               R"(mad.lo.u32 %r1, %c, 64, %t; mad.wide.u32 %rd4, %r1, 4, %rd1;
st.global.u32 [%rd4], %t; // A
ld.global.u32 %r2, [%rd4]; // B
)",
               {{"ld.global.u32 %r2, [%rd4]", "ld.global.u32 %r2, [%rd1]"},
                {"mad.lo.u32 %r1, %c, 64, %t", "mad.lo.u32 %r1, %c, 32, %t", "AAAB"}});
  check_litmus("sums", 8, 64,
               R"(red.global.add.u32 [%rd1], 1; // A
atom.global.add.u32 %r1, [%rd1], 1; // B
)",
               {{"red.global.add.u32", "st.global.u32", "ABAA"},
                {"red.global", "red.relaxed.cta.global", "ABAA"}});
}
