// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These cases find the path of a warp through machine code that is in another order than its PTX,
// and the measure of how well a walk agrees with the PTX.
#include "sim/tests/clock/made_code.h"

using namespace sim;
using namespace sim::test;

namespace {

std::string kernel(const std::string& body, const std::string& parameters) {
  return unit("\n.visible .entry k(.param .u64 out" + parameters +
              ") {\n .reg .b64 %d<8>; .reg .b32 %r<16>; .reg .pred %p<8>; .reg .f32 %f<8>;\n"
              " ld.param.u64 %d0, [out];\n mov.u32 %r9, %tid.x;\n" +
              body + "}\n");
}

// Goes around as often as the argument says; each round loads and stores a word.
std::string copying_loop() {
  return kernel(
      " ld.param.u32 %r0, [rounds];\n mov.u32 %r1, 0;\n"
      "ROUND:\n mul.wide.u32 %d1, %r1, 4;\n add.u64 %d2, %d0, %d1;\n"
      " ld.volatile.global.u32 %r2, [%d2+4096];\n st.volatile.global.u32 [%d2], %r2;\n"
      " add.u32 %r1, %r1, 1;\n setp.lt.u32 %p0, %r1, %r0;\n @%p0 bra ROUND;\n"
      " st.volatile.global.u32 [%d0+8192], %r1;\n ret;\n",
      ", .param .u32 rounds");
}

// Four rounds at once, then single ones. Every branch that ptxas makes of a loop has the line of
// the one in PTX.
MadeCode unrolled(const std::string& ptx) {
  MadeCode code(ptx);
  code.arithmetic("mov.u32 %r1, 0");
  code.jump("@%p0 bra ROUND", "rest");
  code.label("four");
  for (int k = 0; k < 4; ++k) code.load("ld.volatile");
  for (int k = 0; k < 4; ++k) code.store("st.volatile.global.u32 [%d2]");
  code.jump("@%p0 bra ROUND", "four");
  code.label("rest");
  code.jump("@%p0 bra ROUND", "end");
  code.label("one");
  code.load("ld.volatile");
  code.store("st.volatile.global.u32 [%d2]");
  code.jump("@%p0 bra ROUND", "one");
  code.label("end");
  code.store("[%d0+8192]");
  code.exit();
  code.finish();
  return code;
}

}  // namespace

TEST_CASE("a loop that ptxas unrolled is walked in fours and then one by one") {
  const std::string ptx = copying_loop();
  const MadeCode code = unrolled(ptx);
  for (const uint32_t rounds : {1u, 3u, 4u, 11u, 12u, 40u}) {
    CAPTURE(rounds);
    const Warp0 warp(ptx, code, 32, rounds);
    const Walked walked = warp.walk();
    CHECK(walked.agreement.share() == 1.0);
    CHECK(walked.count(2) == rounds / 4);   // the first load of four
    CHECK(walked.count(12) == rounds % 4);  // the load of a single round
  }
}

TEST_CASE("a loop whose condition was moved behind it is walked as often as it ran") {
  const std::string ptx = kernel(
      " ld.param.u32 %r0, [rounds];\n mov.u32 %r1, 0;\n"
      "ROUND:\n setp.ge.u32 %p0, %r1, %r0;\n @%p0 bra DONE;\n"
      " mul.wide.u32 %d1, %r1, 4;\n add.u64 %d2, %d0, %d1;\n st.volatile.global.u32 [%d2], %r1;\n"
      " add.u32 %r1, %r1, 1;\n bra.uni ROUND;\n"
      "DONE:\n st.volatile.global.u32 [%d0+8192], %r1;\n ret;\n",
      ", .param .u32 rounds");
  MadeCode code(ptx);
  code.jump("@%p0 bra DONE", "done");
  code.label("round");
  code.store("st.volatile.global.u32 [%d2]");
  code.jump("@%p0 bra DONE", "round");  // the other way around: it jumps if PTX does not
  code.label("done");
  code.store("[%d0+8192]");
  code.exit();
  code.finish();
  for (const uint32_t rounds : {0u, 1u, 9u}) {
    CAPTURE(rounds);
    const Warp0 warp(ptx, code, 32, rounds);
    const Walked walked = warp.walk();
    CHECK(walked.agreement.share() == 1.0);
    CHECK(walked.count(1) == rounds);
  }
}

TEST_CASE("a guard that stands for a branch holds back what that branch skipped, in its rounds") {
  // Every third of twelve rounds stores, the first of them in round 2.
  const std::string ptx = kernel(
      " mov.u32 %r1, 0;\nROUND:\n mul.wide.u32 %d1, %r1, 4;\n add.u64 %d2, %d0, %d1;\n"
      " rem.u32 %r2, %r1, 3;\n setp.ne.u32 %p1, %r2, 2;\n @%p1 bra NEXT;\n"
      " st.volatile.global.u32 [%d2], %r1;\n"
      "NEXT:\n ld.volatile.global.u32 %r3, [%d2+4096];\n add.u32 %r1, %r1, 1;\n"
      " setp.lt.u32 %p0, %r1, 12;\n @%p0 bra ROUND;\n ret;\n",
      "");
  MadeCode code(ptx);
  code.arithmetic("mov.u32 %r1, 0");
  code.label("round");
  code.guarded_store("st.volatile");
  code.load("ld.volatile");
  code.jump("@%p0 bra ROUND", "round");
  code.exit();
  code.finish();
  const Warp0 warp(ptx, code, 32);
  const Walked walked = warp.walk();
  CHECK(walked.agreement.share() == 1.0);
  CHECK(walked.count(1) == 12);
  std::vector<bool> stored;
  for (size_t k = 0; k < walked.ops.size(); ++k) {
    if (walked.ops[k] == 1) stored.push_back(walked.effects[k] && walked.effects[k]->lanes != 0);
  }
  for (size_t round = 0; round < stored.size(); ++round) {
    CAPTURE(round);
    CHECK(stored[round] == (round % 3 == 2));
  }
}

TEST_CASE("where lanes part a walk goes both ways") {
  const std::string ptx = kernel(
      " mul.wide.u32 %d1, %r9, 4;\n add.u64 %d2, %d0, %d1;\n setp.lt.u32 %p0, %r9, 5;\n"
      " @%p0 bra FEW;\n st.volatile.global.u32 [%d2], %r9;\n bra.uni ALL;\n"
      "FEW:\n st.volatile.global.u32 [%d2+512], %r9;\n"
      "ALL:\n st.volatile.global.u32 [%d2+1024], %r9;\n ret;\n",
      "");
  MadeCode code(ptx);
  code.jump("@%p0 bra FEW", "few");
  code.store("st.volatile.global.u32 [%d2], %r9");
  code.jump("", "all", true);
  code.label("few");
  code.store("[%d2+512]");
  code.label("all");
  code.meet();
  code.store("[%d2+1024]");
  code.exit();
  code.finish();
  const Warp0 warp(ptx, code, 32);
  const Walked walked = warp.walk();
  CHECK(walked.agreement.share() == 1.0);
  CHECK(walked.count(1) == 1);
  CHECK(walked.count(3) == 1);
  CHECK(walked.count(5) == 1);
  // Six lanes of another warp all go one way.
  const Warp0 few(ptx, code, 5);
  const Walked same = few.walk();
  CHECK(same.agreement.share() == 1.0);
  CHECK(same.count(1) == 0);
  CHECK(same.count(3) == 1);
}

TEST_CASE("of two paths without memory accesses a walk goes the one of the PTX") {
  // Rounds 0, 5, 10 ... take the square root, the others do not.
  const std::string ptx = kernel(
      " ld.param.u32 %r0, [rounds];\n mov.u32 %r1, 0;\n mov.f32 %f0, 0f41000000;\n"
      "ROUND:\n rem.u32 %r2, %r1, 5;\n setp.ne.u32 %p1, %r2, 0;\n @%p1 bra PLAIN;\n"
      " sqrt.approx.f32 %f1, %f0;\n add.f32 %f0, %f1, %f1;\n bra.uni NEXT;\n"
      "PLAIN:\n mul.f32 %f2, %f0, %f0;\n sub.f32 %f0, %f2, %f0;\n"
      "NEXT:\n add.u32 %r1, %r1, 1;\n setp.lt.u32 %p0, %r1, %r0;\n @%p0 bra ROUND;\n"
      " st.volatile.global.f32 [%d0], %f0;\n ret;\n",
      ", .param .u32 rounds");
  MadeCode code(ptx);
  code.arithmetic("mov.u32 %r1, 0");
  code.label("round");
  code.jump("@%p1 bra PLAIN", "root");  // ptxas put the ways in the other order
  code.arithmetic("mul.f32 %f2");
  code.arithmetic("sub.f32 %f0, %f2");
  code.jump("", "next", true);
  code.label("root");
  code.arithmetic("sqrt.approx");
  code.arithmetic("add.f32 %f0, %f1");
  code.label("next");
  code.jump("@%p0 bra ROUND", "round");
  code.store("st.volatile");
  code.exit();
  code.finish();
  const Warp0 warp(ptx, code, 32, 23u);
  const Walked walked = warp.walk();
  CHECK(walked.agreement.share() == 1.0);
  CHECK(walked.count(5) == 5);   // the root
  CHECK(walked.count(2) == 18);  // without
  CHECK(walked.count(7) == 23);
}

TEST_CASE("a store that ptxas moved behind a branch belongs to its own round") {
  const std::string ptx = copying_loop();
  MadeCode code(ptx);
  code.load("ld.volatile");
  code.label("round");
  code.store("st.volatile.global.u32 [%d2]");
  code.jump("@%p0 bra ROUND", "more");
  code.store("[%d0+8192]");
  code.exit();
  code.label("more");  // the load of the next round, far from its store
  code.load("ld.volatile");
  code.jump("", "round", true);
  code.finish();
  const Warp0 warp(ptx, code, 32, 17u);
  const Walked walked = warp.walk();
  CHECK(walked.agreement.share() == 1.0);
  CHECK(walked.count(1) == 17);
  CHECK(walked.count(5) == 16);
}

TEST_CASE("what a branch may skip is done in its round, where machine code loops over it") {
  // ptxas makes a loop around each copy by the engine. To skip one and do two in the next round is
  // as many, in fewer blocks.
  const std::string ptx = kernel(
      " mov.u32 %r1, 0;\nROUND:\n mul.wide.u32 %d1, %r1, 4;\n add.u64 %d2, %d0, %d1;\n"
      " ld.volatile.global.u32 %r3, [%d2+4096];\n setp.ge.u32 %p1, %r9, 64;\n @%p1 bra NEXT;\n"
      " st.volatile.global.u32 [%d2], %r3;\nNEXT:\n add.u32 %r1, %r1, 1;\n"
      " setp.lt.u32 %p0, %r1, 6;\n @%p0 bra ROUND;\n ret;\n",
      "");
  for (const char* branch : {"@%p1 bra NEXT", ""}) {
    CAPTURE(branch);
    MadeCode code(ptx);
    code.label("round");
    code.load("ld.volatile");
    code.jump(branch, "next");
    code.arithmetic("");
    code.label("again");
    code.store("st.volatile");
    code.jump("", "again");
    code.label("next");
    code.jump("@%p0 bra ROUND", "round");
    code.exit();
    code.finish();
    const Warp0 warp(ptx, code, 32);
    const Walked walked = warp.walk();
    CHECK(walked.agreement.share() == 1.0);
    std::string accesses;
    for (const uint32_t op : walked.ops) accesses += op == 0 ? "l" : op == 3 ? "s" : "";
    CHECK(accesses == "lslslslslsls");
  }
}

TEST_CASE("a walk that goes another way than the PTX agrees less") {
  const std::string ptx = copying_loop();
  const MadeCode code = unrolled(ptx);
  const Warp0 warp(ptx, code, 32, 22u);  // five times four, then two
  const Walked right = warp.walk();
  REQUIRE(right.agreement.share() == 1.0);
  const auto block_at = [&](size_t k) { return warp.map().sass_block_of[right.ops[k]]; };
  const uint32_t four = warp.map().sass_block_of[2], one = warp.map().sass_block_of[12];
  // The steps of the `number`th time that the walk comes to a block.
  const auto pass = [&](uint32_t block, int number) {
    size_t first = 0;
    for (size_t k = 0; k < right.ops.size(); ++k) {
      if (right.ops[k] == warp.map().sass_blocks[block].first && number-- == 0) first = k;
    }
    size_t end = first;
    while (end < right.ops.size() && block_at(end) == block) ++end;
    end = std::min(end,
                   first + warp.map().sass_blocks[block].end - warp.map().sass_blocks[block].first);
    return std::pair(first, end);
  };
  const auto changed = [&](auto change) {
    Walked other = right;
    change(other);
    return warp.compare_steps(other);
  };
  const auto erase = [](Walked& w, size_t first, size_t end) {
    w.ops.erase(w.ops.begin() + static_cast<long>(first), w.ops.begin() + static_cast<long>(end));
    w.effects.erase(w.effects.begin() + static_cast<long>(first),
                    w.effects.begin() + static_cast<long>(end));
  };
  const auto leaves_early = changed([&](Walked& w) {
    const auto [first, end] = pass(one, 1);
    erase(w, first, end);
  });
  CHECK(leaves_early.missing == 2);
  CHECK(leaves_early.share() < 1.0);
  const auto once_more = changed([&](Walked& w) {
    const auto [first, end] = pass(one, 1);
    for (size_t k = first; k < end; ++k) {
      w.ops.insert(w.ops.begin() + static_cast<long>(end + k - first), right.ops[k]);
      w.effects.insert(w.effects.begin() + static_cast<long>(end + k - first), nullptr);
    }
  });
  CHECK(once_more.extra == 2);
  CHECK(once_more.share() < 1.0);
  const auto in_another_order = changed([&](Walked& w) {
    const auto [first, end] = pass(four, 2);
    std::rotate(w.ops.begin() + static_cast<long>(pass(four, 0).first),
                w.ops.begin() + static_cast<long>(first), w.ops.begin() + static_cast<long>(end));
    std::rotate(w.effects.begin() + static_cast<long>(pass(four, 0).first),
                w.effects.begin() + static_cast<long>(first),
                w.effects.begin() + static_cast<long>(end));
  });
  CHECK(in_another_order.missing == 0);
  CHECK(in_another_order.extra == 0);
  CHECK(in_another_order.misplaced == 8);
  CHECK(in_another_order.share() < 1.0);
}
