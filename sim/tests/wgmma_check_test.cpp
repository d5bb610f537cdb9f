// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The checkers judge wgmma: fences, groups, waits, operands in use, descriptors, warpgroups.
#include "sim/tests/wgmma_model.h"

namespace sim::test {
namespace {

WgmmaCase plain(int n = 16) {
  WgmmaCase c;
  c.n = n;
  c.b_tile = tile(false, 128, n);
  return c;
}

Outcome outcome(const WgmmaCase& c, const std::string& body, const Settings& settings = {},
                uint32_t threads = 128) {
  return run_wgmma(c, wgmma_problem(c, 4), body, settings, 1, kImage, threads).outcome;
}

// Hands `judge` the outcome under each policy.
template <class F>
void each_outcome(const WgmmaCase& c, const std::string& body, F judge) {
  for (const AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::lazy, AsyncPolicy::random}) {
    Settings settings;
    settings.async_policy = policy;
    const Outcome o = outcome(c, body, settings);
    CAPTURE(body);
    INFO(texts(o));
    judge(o);
  }
}

void finds(const std::string& body, const std::string& kind,
           const std::string& check = "asynccheck", int error = 0, const WgmmaCase& c = plain()) {
  each_outcome(c, body, [&](const Outcome& o) {
    CHECK(o.error == error);
    REQUIRE(!o.findings.empty());
    CHECK(o.findings[0].kind == kind);
    CHECK(o.findings[0].check == check);
    for (const Finding& f : o.findings) CHECK(f.kind == kind);
  });
}

void clean(const std::string& body, const WgmmaCase& c = plain()) {
  each_outcome(c, body, [](const Outcome& o) {
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
  });
}

const std::string kAdd = "  add.f32 %d3, %d3, %d3;\n";
const std::string kStore = "  @%l st.shared.u32 [%s+32772], %t;\n";  // in B's tile

TEST_CASE("wgmma: a missing fence") {
  const std::string mma = wgmma_text(plain());
  finds(mma + kCommit + wait(0), "missing_fence");
  finds(kFence + kAdd + mma + kCommit + wait(0), "missing_fence");
  finds(kFence + mma + kCommit + wait(0) + kAdd + mma + kCommit + wait(0), "missing_fence");
  // Reading them counts as well.
  finds(kFence + mma + kCommit + wait(0) + "  mov.b32 %v2, %d0;\n" + mma + kCommit + wait(0),
        "missing_fence");
  clean(kAdd + kFence + mma + kCommit + wait(0) + kAdd + kFence + mma + kCommit + wait(0));
  // The same shape on the same accumulators needs none, another shape does.
  clean(kFence + mma + kCommit + wait(0) + mma + kCommit + wait(0));
  const std::string narrow = wgmma_text(plain(8));
  finds(kFence + narrow + mma + kCommit + wait(0), "missing_fence");
  // A value that is not read may be put there at any time.
  WgmmaCase fresh = plain();
  fresh.scale = "0";
  clean(kFence + "  mov.f32 %d0, 0f00000000;\n" + wgmma_text(fresh) + kCommit + wait(0), fresh);
  WgmmaCase registers = plain();
  registers.a_registers = true;
  const std::string write_a = "  mov.b32 %a1, %t;\n";
  finds(kFence + write_a + wgmma_text(registers) + kCommit + wait(0), "missing_fence", "asynccheck",
        0, registers);
}

TEST_CASE("wgmma: registers in flight") {
  const std::string mma = wgmma_text(plain());
  finds(kFence + mma + kCommit + kAdd + wait(0), "register_in_flight");
  finds(kFence + mma + kCommit + "  mov.b32 %v2, %d0;\n" + wait(0), "register_in_flight");
  // Waiting for all but the newest does not cover the newest.
  const std::string other = wgmma_text(plain(), "e");
  const std::string add_e = "  add.f32 %e3, %e3, %e3;\n";
  finds(kFence + mma + kCommit + other + kCommit + wait(1) + add_e + wait(0), "register_in_flight");
  clean(kFence + mma + kCommit + other + kCommit + wait(1) + kAdd + wait(0) + add_e);
  // A wait covers committed groups alone.
  WgmmaCase registers = plain();
  registers.a_registers = true;
  const std::string from = wgmma_text(registers);
  finds(kFence + from + kCommit + "  mov.b32 %a1, %t;\n" + wait(0), "register_in_flight",
        "asynccheck", 0, registers);
  clean(kFence + from + kCommit + "  mov.b32 %v1, %a1;\n" + wait(0), registers);
}

TEST_CASE("wgmma: groups without an end") {
  const std::string mma = wgmma_text(plain(), "e");  // nobody looks at these accumulators
  finds(kFence + mma, "leaked_group");
  finds(kFence + mma + kCommit, "leaked_group");
  finds(kFence + mma + wait(0) + kCommit, "leaked_group");
  finds(kFence + mma + kCommit + mma + kCommit + wait(1), "leaked_group");
  clean(kFence + mma + kCommit + kCommit + wait(1) + wait(0));
  // The empty group is the newest.
  clean(kFence + wgmma_text(plain()) + kCommit + kCommit + wait(1) + kAdd);
}

TEST_CASE("wgmma: results do not come before the wait") {
  const WgmmaCase c = plain();
  const WgmmaProblem p = wgmma_problem(c, 4);
  Settings lazy, eager;
  lazy.check = eager.check = kMemcheck;
  eager.async_policy = AsyncPolicy::eager;
  const std::string body = kFence + wgmma_text(c) + kCommit;
  CHECK(wrong_elements(c, p, run_wgmma(c, p, body, eager).d) == 0);
  const WgmmaResult late = run_wgmma(c, p, body, lazy);
  CHECK(late.outcome.findings.empty());
  CHECK(late.d.bits == p.c.bits);
}

TEST_CASE("wgmma: sources in use") {
  const std::string mma = wgmma_text(plain());
  const std::string sync = "  bar.sync 0;\n";
  finds(kFence + mma + kCommit + sync + kStore + wait(0), "source_overwritten");
  clean(kFence + mma + kCommit + wait(0) + sync + kStore);
  clean(kFence + mma + kCommit + "  @%l ld.shared.u32 %v0, [%s+32772];\n" + wait(0));
  // Its own bytes alone: row 1 of the tile, past the 32 bytes of this step.
  clean(kFence + mma + kCommit + "  @%l st.shared.u32 [%s+32932], %t;\n" + wait(0));
}

TEST_CASE("wgmma: descriptors") {
  const WgmmaCase c = plain();
  auto with = [&](const std::string& change) {
    return change + kFence + wgmma_text(c) + kCommit + wait(0);
  };
  // A base offset, a reserved bit, a tile past the end.
  finds(with("  or.b64 %db, %db, 0x2000000000000;\n"), "descriptor", "asynccheck", 719);
  finds(with("  or.b64 %db, %db, 0x8000;\n"), "descriptor", "asynccheck", 719);
  finds(with("  add.u64 %db, %db, 1984;\n"), "descriptor", "asynccheck", 719);
  finds(with("  and.b64 %da, %da, 0x4000004000010000;\n"), "descriptor", "asynccheck", 719);
  clean(with("  add.u64 %db, %db, 64;\n"));
  const Outcome o = run_wgmma(c, wgmma_problem(c, 1), with(""), {}, 1, kTileB + 1024).outcome;
  CHECK(o.error == 0);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "uninitialized");
  CHECK(o.findings[0].address == 1024 + kTileB + 1024);
}

TEST_CASE("wgmma: the warps of a warpgroup agree") {
  const std::string mma = wgmma_text(plain());
  const std::string second = "  setp.ge.u32 %q, %t, 96; @%q add.u64 %da, %da, 2;\n";
  finds(second + kFence + mma + kCommit + wait(0), "warpgroup", "synccheck");
  // Another instruction in one warp.
  finds(kFence + "  setp.ge.u32 %q, %t, 96; @%q bra OTHER;\n" + mma + "  bra JOIN;\nOTHER:\n" +
            mma + "JOIN:\n" + kCommit + wait(0),
        "warpgroup", "synccheck");
  // Lanes of one warp have different descriptors.
  finds("  setp.eq.u32 %q, %t, 37; @%q add.u64 %db, %db, 2;\n" + kFence + mma + kCommit + wait(0),
        "warpgroup", "synccheck");
  // One warp stays away: the others wait for it.
  const Outcome alone =
      outcome(plain(), "  setp.ge.u32 %q, %t, 96; @%q ret;\n" + kFence + mma + kCommit + wait(0));
  INFO(texts(alone));
  CHECK(alone.error == 719);
  CHECK(texts(alone).find("waits for the rest of its warpgroup") != std::string::npos);
  // Three warps are no warpgroup.
  const Outcome three = outcome(plain(), kFence + mma + kCommit + wait(0), {}, 96);
  CHECK(three.error == 719);
  CHECK(three.findings.at(0).kind == "partial_warpgroup");
  const Outcome half = outcome(plain(), "  setp.ge.u32 %q, %t, 112; @%q ret;\n" + kFence);
  CHECK(half.findings.at(0).kind == "partial_warp");
}

// A warp that passes the wait gives the tile away at once; the other warps' rows were read.
TEST_CASE("wgmma: a wait covers the whole warpgroup") {
  const WgmmaCase c = plain(64);
  const WgmmaProblem p = wgmma_problem(c, 6);
  // Warp 0 alone overwrites B after its wait, without any barrier.
  const std::string give = R"(  setp.lt.u32 %q, %t, 32;
  mov.u32 %x, 0;
OVER:
  mad.lo.u32 %y, %t, 128, %s; add.u32 %y, %y, %x;
  @%q st.shared.u32 [%y+32768], %t;
  @%q st.shared.u32 [%y+36864], %t;
  add.u32 %x, %x, 4;
  setp.lt.u32 %l, %x, 128;
  @%l bra OVER;
)";
  for (const AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::lazy, AsyncPolicy::random}) {
    Settings settings;
    settings.check = kMemcheck;
    settings.async_policy = policy;
    for (settings.seed = 0; settings.seed < 8; ++settings.seed) {
      const std::string body = kFence + wgmma_text(c) + kCommit + wait(0) + give;
      const WgmmaResult r = run_wgmma(c, p, body, settings);
      CHECK(r.outcome.error == 0);
      CHECK(wrong_elements(c, p, r.d) == 0);
    }
  }
}

TEST_CASE("wgmma: findings off") {
  Settings none;
  none.check = kMemcheck;
  const std::string body = wgmma_text(plain()) + kCommit + wait(0) + kAdd;
  CHECK(outcome(plain(), body, none).findings.empty());
}

}  // namespace
}  // namespace sim::test
