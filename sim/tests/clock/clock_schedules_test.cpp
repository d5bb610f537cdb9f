// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The clock tells schedules of one loop apart, in the right order and by a plausible amount.
#include <fstream>
#include <sstream>

#include "sim/clock/roles.h"
#include "sim/tests/clock/clock_run.h"
#include "sim/tests/nvrtc.h"

using namespace sim;
using namespace sim::test;

namespace {

// Bytes of Q for two warpgroups, K and V.
constexpr uint32_t kShared = 2 * 64 * 128 * 2 + 2 * 128 * 128 * 2;
constexpr double kTensorCycles = 2 * 16 * 64;  // of a round: two warpgroups, 16 products, n / 2
constexpr double kMathCycles = 2 * 64 * 128 / 16.0;

std::string compile(int schedule) {
  static Nvrtc nvrtc;
  if (!nvrtc.available()) return "";
  std::ifstream in(std::string(SIM_CLOCK_SOURCES) + "/softmax_loop.cuh");
  REQUIRE(in.good());
  std::stringstream text;
  text << "#define SCHEDULE " << schedule << "\n" << in.rdbuf();
  std::string log;
  const std::string ptx = nvrtc.compile(text.str(), "sm_90a", &log);
  INFO(log);
  REQUIRE(!ptx.empty());
  return ptx;
}

struct Timing {
  double cycles = 0;
  clock::KernelTime time;
};
Timing round_of(const std::string& ptx, bool ptx_only, int threads = 0) {
  Timing out;
  for (const uint32_t rounds : {4u, 12u}) {
    Device device;
    device.settings.check = kMemcheck;
    device.settings.threads = threads;
    device.dynamic_shared = kShared;
    device.load(ptx);
    const uint64_t at = device.buffer(4 * 256);
    Timed timed = run_timed(device, "h100", {0, ptx_only}, 1, 1, 256, at, rounds, 1.f);
    CAPTURE(ptx_only);
    CHECK(!timed.time.replay.stuck);
    out.cycles = (timed.time.cycles - out.cycles) / (rounds == 4 ? 1 : 8);
    out.time = std::move(timed.time);
  }
  return out;
}

}  // namespace

TEST_CASE("in step, as it comes, by turns: the tensor cores are busier each time") {
  if (compile(0).empty()) {
    MESSAGE("skipped: libnvrtc.so cannot be opened");
    return;
  }
  for (const bool ptx_only : {true, false}) {
    double cycles[3];
    for (int schedule = 0; schedule < 3; ++schedule) {
      const Timing timing = round_of(compile(schedule), ptx_only);
      cycles[schedule] = timing.cycles;
      if (!ptx_only && timing.time.from == "ptx") {
        MESSAGE("from PTX alone, as " << timing.time.made_by);
      } else {
        CHECK(timing.time.from == (ptx_only ? "ptx" : "sass"));
      }
      CHECK(timing.time.mapped > 0.98);
      CHECK(timing.cycles >= kTensorCycles);
      const auto roles = clock::find_roles(timing.time.program, timing.time.replay);
      REQUIRE(roles.size() == 2);  // a warpgroup each
      for (const clock::RoleTime& role : roles) {
        CHECK(role.last_warp == role.first_warp + 3);
        CHECK(role.rounds >= 8);
        // As it comes, the two take rounds of uneven length.
        CHECK(role.period == doctest::Approx(timing.cycles).epsilon(schedule == 1 ? 0.1 : 0.05));
      }
      CAPTURE(schedule);
    }
    CAPTURE(ptx_only);
    CAPTURE(cycles[0]);
    CAPTURE(cycles[1]);
    CAPTURE(cycles[2]);
    // Nothing overlaps in step; by turns the exponentials hide behind the other's products.
    CHECK(cycles[0] > kTensorCycles + kMathCycles);
    CHECK(cycles[0] > 1.15 * cycles[2]);
    CHECK(cycles[1] >= cycles[2]);
    CHECK(cycles[0] > cycles[1]);
    CHECK(cycles[2] < 1.25 * kTensorCycles);
  }
}

TEST_CASE("the same time for any number of host threads") {
  const std::string ptx = compile(2);
  if (ptx.empty()) return;
  const Timing one = round_of(ptx, true, 1), three = round_of(ptx, true, 3);
  CHECK(one.cycles == three.cycles);
  CHECK(one.time.microseconds == three.time.microseconds);
  for (size_t op = 0; op < one.time.replay.ops.size(); ++op) {
    CHECK(one.time.replay.ops[op].stalls == three.time.replay.ops[op].stalls);
  }
}
