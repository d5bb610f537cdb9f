// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A replay issues what the simulator ran: as often, and on the same ways, from machine code too.
#include <fstream>
#include <map>
#include <sstream>

#include "sim/clock/roles.h"
#include "sim/tests/clock/clock_run.h"
#include "sim/tests/nvrtc.h"

using namespace sim;
using namespace sim::test;

namespace {

// Counts how often a replay issued instructions that a text names.
uint64_t issued(const clock::KernelTime& time, const std::string& word) {
  uint64_t count = 0;
  for (size_t k = 0; k < time.program.ops.size(); ++k) {
    const bool named = time.program.ops[k].text.find(word) != std::string::npos;
    if (named) count += time.replay.ops[k].issued;
  }
  return count;
}

bool from_machine_code(const clock::KernelTime& time) {
  if (time.from == "sass") return true;
  MESSAGE("from PTX alone, as " << time.made_by);
  return false;
}

}  // namespace

TEST_CASE("rounds of a loop that skip its work are walked as often as they ran") {
  // Every fourth of 40 rounds stores; the others go straight to the next one.
  const std::string text = unit(
      "\n.visible .entry k(.param .u64 out, .param .u32 rounds) {\n"
      " .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<4>;\n"
      " ld.param.u64 %d0, [out];\n ld.param.u32 %r0, [rounds];\n mov.u32 %r1, 0;\n"
      "ROUND:\n and.b32 %r2, %r1, 3;\n setp.ne.u32 %p0, %r2, 0;\n @%p0 bra NEXT;\n"
      " mul.wide.u32 %d1, %r1, 4;\n add.u64 %d2, %d0, %d1;\n st.volatile.global.u32 [%d2], %r1;\n"
      "NEXT:\n add.u32 %r1, %r1, 1;\n setp.lt.u32 %p1, %r1, %r0;\n .pragma \"nounroll\";\n"
      " @%p1 bra ROUND;\n ret;\n}\n");
  for (const bool ptx_only : {true, false}) {
    Device device;
    device.load(text);
    const uint64_t out = device.buffer(40 * 4);
    const Timed timed = run_timed(device, "h100", {0, ptx_only}, 1, 1, 32, out, 40u);
    if (!ptx_only && !from_machine_code(timed.time)) continue;
    CAPTURE(ptx_only);
    if (!ptx_only) {
      // ptxas does four rounds at once and guards the stores. Nothing that the trace has tells how
      // many stores a guard held back; those that were done are in it.
      CHECK(issued(timed.time, "STG") >= 40);
      CHECK(timed.time.mapped == 1);
      continue;
    }
    CHECK(issued(timed.time, "st.") == 10);
    // The loop's own branch, forty times; skips and exits are other branches.
    CHECK(issued(timed.time, "bra") >= 40);
    CHECK(issued(timed.time, "bra") <= 80);
  }
}

TEST_CASE("lanes at a join wait for the one that waits for another warp") {
  // Lane 0 of warp 0 waits for warp 1, which is late; then both warps meet at a named barrier.
  const std::string text = unit(
      "\n.visible .entry k(.param .u64 out) {\n"
      " .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<4>; .shared .align 8 .b8 bar[8];\n"
      " ld.param.u64 %d0, [out];\n mov.u32 %r0, %tid.x;\n mov.u32 %r1, bar;\n"
      " setp.eq.u32 %p0, %r0, 0;\n @%p0 mbarrier.init.shared.b64 [%r1], 1;\n bar.sync 0;\n"
      " setp.ge.u32 %p1, %r0, 32;\n @%p1 bra LATE;\n @!%p0 bra MEET;\n"
      "WAIT:\n mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;\n @!%p2 bra WAIT;\n"
      "MEET:\n mov.u32 %r2, 2;\n mov.u32 %r3, 64;\n bar.sync %r2, %r3;\n bra DONE;\n"
      "LATE:\n mov.u32 %r4, 0;\n"
      "ROUND:\n add.u32 %r4, %r4, 1;\n setp.lt.u32 %p3, %r4, 9000;\n @%p3 bra ROUND;\n"
      " setp.eq.u32 %p3, %r0, 32;\n @%p3 mbarrier.arrive.shared.b64 %d1, [%r1];\n"
      " mov.u32 %r2, 2;\n mov.u32 %r3, 64;\n bar.sync %r2, %r3;\n"
      "DONE:\n mul.wide.u32 %d2, %r0, 4;\n add.u64 %d2, %d0, %d2;\n"
      " st.global.u32 [%d2], %r0;\n ret;\n}\n");
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Device device;
    device.load(text);
    device.settings.seed = seed;
    const uint64_t out = device.buffer(64 * 4);
    const Timed timed = run_timed(device, "h100", {0, true}, 1, 1, 64, out);
    CAPTURE(seed);
    CHECK(!timed.time.replay.stuck);
    CHECK(issued(timed.time, "bar.sync") == 4);  // each warp comes to each of the two once
  }
}

TEST_CASE("lanes at a join go ahead when nobody else can") {
  // Lane 0 waits for what lane 1 does behind the join.
  const std::string text = unit(
      "\n.visible .entry k(.param .u64 out) {\n"
      " .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<4>; .shared .align 8 .b8 bar[8];\n"
      " ld.param.u64 %d0, [out];\n mov.u32 %r0, %tid.x;\n mov.u32 %r1, bar;\n"
      " setp.eq.u32 %p0, %r0, 0;\n @%p0 mbarrier.init.shared.b64 [%r1], 1;\n bar.sync 0;\n"
      " @!%p0 bra MEET;\n"
      "WAIT:\n mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;\n @!%p2 bra WAIT;\n"
      "MEET:\n setp.eq.u32 %p3, %r0, 1;\n @%p3 mbarrier.arrive.shared.b64 %d1, [%r1];\n"
      " mul.wide.u32 %d2, %r0, 4;\n add.u64 %d2, %d0, %d2;\n"
      " st.global.u32 [%d2], %r0;\n ret;\n}\n");
  Device device;
  device.load(text);
  const uint64_t out = device.buffer(32 * 4);
  const Timed timed = run_timed(device, "h100", {0, true}, 1, 1, 32, out);
  CHECK(issued(timed.time, "mbarrier.arrive") >= 1);
  CHECK(device.download<uint32_t>(out, 32)[31] == 31);
}

TEST_CASE("products of two ways through a loop keep apart, wherever ptxas puts them") {
  Nvrtc nvrtc;
  if (!nvrtc.available()) {
    MESSAGE("skipped: libnvrtc.so cannot be opened");
    return;
  }
  std::ifstream in(std::string(SIM_CLOCK_SOURCES) + "/two_ways.cuh");
  REQUIRE(in.good());
  std::stringstream source;
  source << in.rdbuf();
  std::string log;
  const std::string ptx = nvrtc.compile(source.str(), "sm_90a", &log);
  INFO(log);
  REQUIRE(!ptx.empty());
  for (const bool ptx_only : {true, false}) {
    Device device;
    device.settings.check = kMemcheck;
    device.dynamic_shared = 65536;
    device.load(ptx);
    const uint64_t out = device.buffer(4 * 128);
    // The first and every fifth of 21 rounds take the long way.
    const Timed timed = run_timed(device, "h100", {0, ptx_only}, 1, 1, 128, out, 21u);
    if (!ptx_only && !from_machine_code(timed.time)) continue;
    CHECK(timed.time.mapped == 1.0);
    std::map<int, uint64_t> by_line;
    for (size_t k = 0; k < timed.time.program.ops.size(); ++k) {
      if (timed.time.program.ops[k].unit == clock::Unit::wgmma) {
        by_line[static_cast<int>(k)] = timed.time.replay.ops[k].issued;
      }
    }
    // Four warps: five long rounds of four products, sixteen short ones of four.
    uint64_t all = 0;
    for (const auto& [op, count] : by_line) all += count;
    CHECK(all == 4 * 4 * 21);
    for (const auto& [op, count] : by_line) {
      CAPTURE(op);
      CHECK((count == 4 * 5 || count == 4 * 16));
    }
  }
}

TEST_CASE("roles are named by what their warps do") {
  clock::Program program;
  program.ops.resize(200);
  program.ops[50].unit = clock::Unit::tma;
  program.ops[120].unit = clock::Unit::wgmma;
  const auto ran = [](size_t first, size_t end) {
    std::vector<bool> out(200);
    for (size_t k = first; k < end; ++k) out[k] = true;
    return out;
  };
  clock::ReplayResult replay;
  for (int w = 0; w < 13; ++w) {
    replay.ran.push_back(w < 8 ? ran(100, 200) : w == 8 ? ran(0, 100) : ran(0, w == 12 ? 90 : 5));
  }
  replay.warps.resize(replay.ran.size());
  const auto roles = clock::find_roles(program, replay);
  std::vector<std::string> names;
  for (const auto& role : roles) names.push_back(role.name);
  CHECK(names ==
        std::vector<std::string>{"consumer 0", "consumer 1", "producer 0", "idle", "producer 1"});
}
