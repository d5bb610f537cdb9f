// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks chains of small programs by hand.
#include "bench/operators/chain.h"

#include <doctest/doctest.h>

using bench::chain_cycles;
using bench::stretches;

namespace {

const std::string kLoop = R"(.version 8.0
.target sm_80
.visible .entry entry(
  .param .u64 entry_param_0
)
.maxntid 64, 1, 1
{
  .reg .b32 %r<9>;
  ld.param.u64 %rd1, [entry_param_0];
  mov.u32 %r1, 0;
$L_loop:
  // begin inline asm
  { .reg .pred p; setp.ne.b32 p, %r1, 9; @p ld.shared.f32 %f1, [%r1]; }
  // end inline asm
  add.f32 %f2, %f1, %f1;
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    {%f3, %f4, %f5, %f6}, {%r2, %r3, %r4, %r5}, {%r6, %r7},
    {%f2, %f4, %f5, %f6};
  mov.f32 %f7, %f3;
  add.f32 %f8, %f7, %f7;
  add.s32 %r1, %r1, 1;
  setp.lt.s32 %p1, %r1, 16;
  @%p1 bra $L_loop;
  bar.sync 0;
  st.global.f32 [%rd1], %f8;
  ret;
}
)";

// Two warps, each sixteen times through the loop.
const std::map<int, uint64_t> kRan = {{9, 2},   {10, 2},  {13, 32}, {15, 32}, {16, 32},
                                      {19, 32}, {20, 32}, {21, 32}, {22, 32}, {23, 32},
                                      {24, 2},  {25, 2},  {26, 2}};

}  // namespace

TEST_CASE("chain: a stretch is its longest chain, copies are free") {
  const auto code = stretches(kLoop, kRan, 2);
  REQUIRE(code.size() == 4);  // up to the loop, the loop, the barrier, the end
  CHECK(code[0].issue == 0);
  // compare 4, load 30, add 4, product 33, copy 0, add 4
  CHECK(code[1].path == 75);
  CHECK(code[1].issue == 8);
  CHECK(code[1].times == 16);
  CHECK(code[1].first_line == 13);
  CHECK(code[1].last_line == 23);
  CHECK(code[1].global == 0);
}

TEST_CASE("chain: of a loop, or what a scheduler issues for all of its warps") {
  const auto code = stretches(kLoop, kRan, 2);
  CHECK(chain_cycles(code, 1) == 16 * 75 + 4 + 4);
  CHECK(chain_cycles(code, 10) == 16 * 80 + 10 + 20);
  CHECK(bench::chain_issue(code) == 16 * 8 + 1 + 2);
  CHECK(chain_cycles(stretches(kLoop, {}, 2), 1) == 0);
}

TEST_CASE("chain: a branch that is seldom taken, and one that goes round loads") {
  const std::string text =
      "  @%p1 bra $L_1;\n"
      "  ld.global.f32 %f1, [%rd1];\n"
      "$L_1:\n"
      "  @%p2 bra $L_2;\n"
      "  ld.global.f32 %f2, [%rd2];\n"
      "$L_2:\n"
      "  @%p3 bra $L_3;\n"
      "  ex2.approx.f32 %f2, %f1;\n"
      "$L_3:\n"
      "  add.f32 %f3, %f1, %f2;\n";
  const auto code = stretches(text, {{1, 8}, {2, 8}, {4, 8}, {5, 8}, {7, 8}, {8, 1}, {10, 8}}, 8);
  REQUIRE(code.size() == 1);
  CHECK(code[0].issue == 6);
  CHECK(code[0].path == code[0].global + 4);  // both loads at the same time
  CHECK(code[0].global == 600);
}

TEST_CASE("residence: blocks at a time and one after another") {
  const bench::BlockNeeds needs = {256, 128, 100 * 1024};
  const auto of = [&](double blocks) {
    return bench::residence(needs, blocks, 132, 228 * 1024, 65536);
  };
  CHECK(of(10).resident == 1);
  CHECK(of(10).rounds == 1);
  CHECK(of(264).resident == 2);
  CHECK(of(264).rounds == 1);
  CHECK(of(265).resident == 2);
  CHECK(of(265).rounds == 2);
  const bench::BlockNeeds wide = {256, 255, 1024};
  CHECK(bench::residence(wide, 1000, 132, 228 * 1024, 65536).resident == 1);
}
