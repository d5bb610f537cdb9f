// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover warp-wide instructions, of whole warps and of groups of their lanes.
#include "sim/tests/lane_kernels.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("shuffles") {
  expect(kernel("shfl.sync.bfly.b32 %r9, %t, 5, 31, -1;"), 32, [](uint32_t t) { return t ^ 5; });
  expect(kernel("shfl.sync.up.b32 %r9|%p1, %t, 3, 0, -1; @!%p1 mov.u32 %r9, 99;"), 32,
         [](uint32_t t) { return t < 3 ? 99 : t - 3; });
  expect(kernel("shfl.sync.down.b32 %r9, %t, 3, 31, -1;"), 32,
         [](uint32_t t) { return t > 28 ? t : t + 3; });
  // Segments of 8: clamp 31, mask 24.
  expect(kernel("shfl.sync.idx.b32 %r9, %t, 2, 6175, -1;"), 32,
         [](uint32_t t) { return (t & 24) + 2; });
  // In a branch, with the mask of its lanes.
  expect(kernel(R"(
    setp.lt.u32 %p1, %t, 16; mov.u32 %r9, 0; @%p1 bra LOW; bra JOIN;
  LOW: shfl.sync.bfly.b32 %r9, %t, 1, 31, 0xFFFF;
  JOIN:)"),
         32, [](uint32_t t) { return t < 16 ? t ^ 1 : 0; });
}

TEST_CASE("a shuffle reading a lane outside is reported") {
  const ThreadWords r = run_threads(kernel(R"(
    setp.lt.u32 %p1, %t, 16; mov.u32 %r9, 0; @!%p1 bra JOIN;
    shfl.sync.bfly.b32 %r9, %t, 16, 31, 0xFFFF;
  JOIN:)"),
                                    32);
  REQUIRE(r.outcome.findings.size() == 1);
  CHECK(r.outcome.findings[0].kind == "inactive_source");
}

TEST_CASE("lanes that stand together and name different groups are collectives of their own") {
  // cg::tiled_partition<8>: %r2 is the mask of the tile, %r1 its first lane.
  const std::string tile = "and.b32 %r1, %t, 24; mov.u32 %r2, 255; shl.b32 %r2, %r2, %r1;";
  expect(kernel(tile + "shfl.sync.idx.b32 %r9, %t, 0, 6175, %r2;"), 32,
         [](uint32_t t) { return t & 24; });
  expect(kernel(tile + "setp.gt.u32 %p1, %t, 10; vote.sync.ballot.b32 %r9, %p1, %r2;"), 32,
         [](uint32_t t) { return 0xFFFFF800u & 0xFFu << (t & 24); });
  expect(kernel(tile + "setp.gt.u32 %p1, %t, 7; vote.sync.all.pred %p2, %p1, %r2;"
                       "selp.u32 %r9, 1, 0, %p2;"),
         32, [](uint32_t t) { return t > 7 ? 1 : 0; });
  expect(kernel(tile + "redux.sync.add.u32 %r9, %t, %r2;"), 32,
         [](uint32_t t) { return 8 * (t & 24) + 28; });
  expect(kernel(tile + "and.b32 %r3, %t, 1; match.any.sync.b32 %r9, %r3, %r2;"), 32,
         [](uint32_t t) { return (t & 1 ? 0xAAu : 0x55u) << (t & 24); });
  expect(kernel(tile + "elect.sync %r9|%p1, %r2;"), 32, [](uint32_t t) { return t & 24; });
  expect(kernel(tile + "mov.u32 %r9, %t; bar.warp.sync %r2;"), 32, [](uint32_t t) { return t; });
}

TEST_CASE("groups by value: match, then shuffles, votes and reductions of each group") {
  const std::string label =
      "mul.lo.u32 %r1, %t, 7; shr.u32 %r1, %r1, 2; and.b32 %r1, %r1, 3;"
      "match.any.sync.b32 %r2, %r1, -1;";
  auto group = [](uint32_t t) {
    uint32_t mask = 0;
    for (uint32_t l = 0; l < 32; ++l) mask |= (l * 7 / 4 % 4 == t * 7 / 4 % 4 ? 1u : 0u) << l;
    return mask;
  };
  expect(kernel(label + "redux.sync.max.u32 %r9, %t, %r2;"), 32,
         [&](uint32_t t) { return 31 - static_cast<uint32_t>(__builtin_clz(group(t))); });
  expect(kernel(label + "brev.b32 %r3, %r2; bfind.shiftamt.u32 %r3, %r3;"
                        "shfl.sync.idx.b32 %r9, %t, %r3, 31, %r2;"),
         32, [&](uint32_t t) { return static_cast<uint32_t>(__builtin_ctz(group(t))); });
  // The groups of one label come from both sides of a branch: each waits for its lanes alone.
  expect(kernel(label + R"(
    setp.lt.u32 %p1, %r1, 2; @%p1 bra LOW; mov.u32 %r4, 100; bra.uni BOTH;
  LOW: mov.u32 %r4, 1;
  BOTH: redux.sync.add.u32 %r9, %r4, %r2;)"),
         32, [&](uint32_t t) {
           return static_cast<uint32_t>(__builtin_popcount(group(t))) *
                  (t * 7 / 4 % 4 < 2 ? 1 : 100);
         });
}

TEST_CASE("a group whose lanes are elsewhere waits for them, and the others go on") {
  // Odd lanes come late to the shuffle of pairs in the lower half; the upper half needs nobody.
  expect(kernel(R"(
    and.b32 %r1, %t, 30; mov.u32 %r2, 3; shl.b32 %r2, %r2, %r1;
    setp.ge.u32 %p1, %t, 16; @%p1 mov.u32 %r2, 0xFFFF0000;
    and.b32 %r3, %t, 1; setp.eq.u32 %p2, %r3, 1; setp.lt.and.u32 %p2, %t, 16, %p2;
    mov.u32 %r5, 0;
    @%p2 bra LATE;
  SHUFFLE:
    shfl.sync.bfly.b32 %r9, %t, 1, 31, %r2;
    bra.uni END;
  LATE:
    add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 3000; @%p3 bra LATE;
    bra.uni SHUFFLE;
  END:
  )"),
         32, [](uint32_t t) { return t ^ 1; });
}

TEST_CASE("votes, matches, reductions over lanes") {
  expect(kernel("and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 1;"
                "vote.sync.ballot.b32 %r9, %p1, -1;"),
         32, [](uint32_t) { return 0xAAAAAAAAu; });
  expect(kernel("setp.lt.u32 %p1, %t, 31; vote.sync.all.pred %p2, %p1, -1;"
                "vote.sync.any.pred %p3, !%p1, -1; vote.sync.uni.pred %p4, %p1, -1;"
                "selp.u32 %r1, 1, 0, %p2; selp.u32 %r2, 2, 0, %p3; selp.u32 %r3, 4, 0, %p4;"
                "add.u32 %r9, %r1, %r2; add.u32 %r9, %r9, %r3;"),
         32, [](uint32_t) { return 2; });
  expect(kernel("shr.u32 %r1, %t, 3; match.any.sync.b32 %r9, %r1, -1;"), 32,
         [](uint32_t t) { return 0xFFu << (t & 24); });
  expect(kernel("redux.sync.add.s32 %r9, %t, -1;"), 32, [](uint32_t) { return 496; });
  expect(kernel("sub.u32 %r1, %t, 10; redux.sync.min.s32 %r9, %r1, -1;"), 32,
         [](uint32_t) { return static_cast<uint32_t>(-10); });
  expect(kernel("elect.sync %r1|%p1, -1; selp.u32 %r9, 1, 0, %p1;"), 32,
         [](uint32_t t) { return t == 0; });
}
