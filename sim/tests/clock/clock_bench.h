// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks of the clock, as those who measured GPUs wrote theirs: an instruction many times,
// once dependent and once not, and the cycles of each. A result is held against what was published,
// within a tolerance so small that a constant that is 30 % off on either side shows.
//   [units] bench/results/units-h200-2026-11-26.csv: our own measurements of an H200. The clock is
//           also held beside these, see beside().
#pragma once

#include "sim/tests/clock/clock_run.h"

namespace sim::test {

// Says why machine code is not replayed, if it is not.
inline bool have_machine_code() {
  const std::string empty = unit(".visible .entry k() {\n ret;\n}\n");
  const clock::Listing listing = clock::list_machine_code(empty, "sm_90a");
  if (listing.text.empty()) MESSAGE("from PTX alone, as " << listing.why);
  return !listing.text.empty();
}
// Replays of PTX alone, and of machine code where it can be made.
inline std::vector<bool> ways() {
  return have_machine_code() ? std::vector<bool>{true, false} : std::vector<bool>{true};
}

inline void within(const std::string& what, double found, double published, double tolerance) {
  INFO(what << ": " << found << ", published " << published);
  CHECK(found >= published * (1 - tolerance));
  CHECK(found <= published * (1 + tolerance));
}

// Holds the clock beside a figure of [units]. Some of the published figures that the clock is made
// of are not what was measured there: `ratio` says how much longer the clock takes, or by how much
// more it has where the figure is a rate.
inline void beside(const std::string& what, double found, double measured, double ratio,
                   double tolerance = 0.04) {
  INFO(what << ": " << found << ", measured " << measured << ", ratio " << found / measured);
  CHECK(found / measured >= ratio * (1 - tolerance));
  CHECK(found / measured <= ratio * (1 + tolerance));
}

struct Bench {
  std::string gpu = "h100", arch = "sm_90a";
  uint32_t threads = 32;
  std::string registers;  // declared beyond the usual ones
  std::string before;     // once
  std::string body;       // of one repetition; # is its number
  std::string after;      // uses the results, so that ptxas leaves the body; once
  uint32_t dynamic_shared = 0;
  int times = 64;            // of the shorter of two runs, which must outlast the loads before them
  bool machine_code = true;  // held against it too
  // In machine code the body stands in a loop, so that ptxas puts nothing of one repetition among
  // another. The schedule of a replay of PTX ends with each round of a loop.
  bool loop = false;
};

inline std::string text_of(const Bench& b, int times, bool loop) {
  const std::string round =
      " mov.u32 %r299, " + std::to_string(times) + ";\nLOOP:\n" + b.body +
      " sub.u32 %r299, %r299, 1;\n setp.ne.u32 %p7, %r299, 0;\n @%p7 bra LOOP;\n";
  return unit(
      "\n.extern .shared .align 1024 .b8 room[];\n"
      ".visible .entry k(.param .u64 out) {\n"
      " .reg .f32 %f<600>; .reg .b32 %r<300>; .reg .b64 %d<40>; .reg .pred %p<8>;\n" +
          b.registers +
          "\n ld.param.u64 %d0, [out];\n mov.u32 %r0, %tid.x;\n mul.wide.u32 %d1, %r0, 4;\n"
          " add.u64 %d2, %d0, %d1;\n ld.global.f32 %f0, [%d2];\n" +
          numbered(20, " ld.global.f32 %f2#, [%d2 + #00];\n") + b.before + "\n" +
          (loop ? round : numbered(times, b.body)) + b.after +
          numbered(20, " add.f32 %f0, %f0, %f2#;\n") + " st.global.f32 [%d2], %f0;\n ret;\n}\n",
      b.arch);
}

// Cycles of one repetition, from the difference of two runs.
inline double cycles_of(const Bench& b, bool ptx_only) {
  double cycles[2];
  for (int k = 0; k < 2; ++k) {
    Device device(b.arch);
    device.dynamic_shared = b.dynamic_shared;
    device.settings.check = kMemcheck;
    device.load(text_of(b, (k + 1) * b.times, b.loop && !ptx_only));
    const uint64_t out = device.upload(std::vector<float>(b.threads + 500, 1.f));
    clock::ReplayOptions options;
    options.ptx_only = ptx_only;
    const Timed timed = run_timed(device, b.gpu, options, 1, 1, b.threads, out);
    CHECK(timed.time.from == (ptx_only ? "ptx" : "sass"));
    CHECK(!timed.time.replay.stuck);
    cycles[k] = timed.time.cycles;
  }
  return (cycles[1] - cycles[0]) / b.times;
}

inline void expect(const Bench& b, const std::string& what, double published, double tolerance) {
  for (const bool ptx_only : {true, false}) {
    if (!ptx_only && (!b.machine_code || !have_machine_code())) continue;
    within(what + " on " + b.gpu + " from " + (ptx_only ? "PTX" : "machine code"),
           cycles_of(b, ptx_only), published, tolerance);
  }
}

// The same beside a figure of [units] alone, and beside both.
struct Measured {
  double cycles, ratio, tolerance = 0.04;
};
inline void expect(const Bench& b, const std::string& what, const Measured& measured,
                   double published = 0, double tolerance = 0) {
  for (const bool ptx_only : {true, false}) {
    if (!ptx_only && (!b.machine_code || !have_machine_code())) continue;
    const std::string from = what + (ptx_only ? " from PTX" : " from machine code");
    const double cycles = cycles_of(b, ptx_only);
    beside(from, cycles, measured.cycles, measured.ratio, measured.tolerance);
    if (published > 0) within(from, cycles, published, tolerance);
  }
}

inline Bench ampere(Bench b) {
  b.gpu = "a100";
  b.arch = "sm_80";
  return b;
}

}  // namespace sim::test
