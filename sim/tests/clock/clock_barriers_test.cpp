// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks of barriers inside a block:
//   [rt] Dash-Crystal/flashinfer, benchmarks/microbench/sm90_rt_constants.cu and its results in
//        docs/mixed_kv_page_transport_backends.md, P0.3 (d): cycles on an H200, one block of 128
//        threads. bar.sync 20.7; arrival at an mbarrier by all threads and the wait of all of them
//        87. A consumer in a kernel sees an arrival after 67 cycles or more (P0.3 (a)).
// ademeure/QuickRunCUDA measured more on a B300: 22 cycles and 2 for each warp of bar.sync, 123 of
// an mbarrier. The Hopper figures are taken here.
#include "sim/tests/clock/clock_bench.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("bar.sync of four warps") {
  Bench b;
  b.gpu = "h200";
  b.threads = 128;
  b.body = " bar.sync 1, 128;\n";
  expect(b, "bar.sync", 20.7, 0.12);  // [rt]
}

// [units] has 24.6 cycles and two more for each warp, as the B300 has: the clock is made of [rt].
TEST_CASE("bar.sync of more warps, beside an H200") {
  const struct {
    uint32_t warps;
    double measured, ratio;
  } rows[] = {{4, 32.6, 0.63}, {8, 40.6, 0.51}, {16, 56.6, 0.406}};
  for (const auto& row : rows) {
    Bench b;
    b.gpu = "h200";
    b.threads = 32 * row.warps;
    b.body = " bar.sync 1, " + std::to_string(b.threads) + ";\n";
    expect(b, "bar.sync of " + std::to_string(row.warps) + " warps",
           {row.measured, row.ratio, 0.06});
  }
}

namespace {

// Cycles of one of the rounds of a kernel whose text has `rounds` of them.
template <class F>
double cycles_of_round(F text, uint32_t threads, bool ptx_only) {
  double cycles[2];
  for (int k = 0; k < 2; ++k) {
    Device device;
    device.settings.check = kMemcheck;
    device.dynamic_shared = 1024;
    device.load(text(16 << k));
    const Timed timed = run_timed(device, "h200", {0, ptx_only}, 1, 1, threads, uint64_t{0});
    CHECK(timed.time.from == (ptx_only ? "ptx" : "sass"));
    CHECK(!timed.time.replay.stuck);
    cycles[k] = timed.time.cycles;
  }
  return (cycles[1] - cycles[0]) / 16;
}

const char* const kHead =
    "\n.extern .shared .align 1024 .b8 room[];\n.visible .entry k(.param .u64 unused) {\n"
    " .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<4>;\n mov.u32 %r0, room;\n"
    " mov.u32 %r1, %tid.x;\n";

}  // namespace

// Two warps go on by barrier 1 and two by barrier 2: there and back are two barriers.
TEST_CASE("a round trip by two named barriers") {
  const auto text = [](int rounds) {
    return unit(std::string(kHead) + " setp.ge.u32 %p0, %r1, 64;\n @%p0 bra SECOND;\n" +
                repeated(rounds, " bar.arrive 1, 128;\n bar.sync 2, 128;\n") + " ret;\nSECOND:\n" +
                repeated(rounds, " bar.sync 1, 128;\n bar.arrive 2, 128;\n") + " ret;\n}\n");
  };
  for (const bool ptx_only : ways()) {
    const double cycles = cycles_of_round(text, 128, ptx_only);
    within("there and back", cycles, 2 * 20.7, 0.15);  // [rt]
    beside("there and back", cycles, 56.1, 0.73, 0.06);
  }
}

TEST_CASE("all threads of four warps arrive at an mbarrier and wait for it") {
  const auto text = [](int rounds) {
    std::string body = std::string(kHead) +
                       " setp.ne.u32 %p0, %r1, 0;\n @%p0 bra READY;\n"
                       " mbarrier.init.shared::cta.b64 [%r0], 128;\nREADY:\n bar.sync 0;\n";
    for (int k = 0; k < rounds; ++k) {
      const std::string label = "WAIT" + std::to_string(k);
      body += " mbarrier.arrive.release.cta.shared::cta.b64 %d0, [%r0];\n" + label +
              ":\n mbarrier.try_wait.acquire.cta.shared::cta.b64 %p1, [%r0], %d0;\n @!%p1 bra " +
              label + ";\n";
    }
    return unit(body + " ret;\n}\n");
  };
  for (const bool ptx_only : ways()) {
    const double cycles = cycles_of_round(text, 128, ptx_only);
    within("a round", cycles, 87, 0.15);  // [rt]
    beside("a round", cycles, 64.1, 1.36, 0.08);
  }
}
