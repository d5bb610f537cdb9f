// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A replay of machine code in which warps wait for what never comes says nothing: the PTX is
// replayed instead.
#include "sim/tests/clock/clock_run.h"
#include "sim/tests/clock/made_code.h"

using namespace sim;
using namespace sim::test;

namespace {

// Each of 32 threads arrives at an mbarrier and waits until all have.
const std::string kPtx = unit(
    "\n.visible .entry k(.param .u64 out) {\n"
    " .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<4>; .shared .align 8 .b8 bar[8];\n"
    " ld.param.u64 %d0, [out];\n mov.u32 %r0, %tid.x;\n mov.u32 %r1, bar;\n"
    " setp.eq.u32 %p0, %r0, 0;\n @%p0 mbarrier.init.shared.b64 [%r1], 32;\n bar.sync 0;\n"
    " mbarrier.arrive.shared.b64 %d1, [%r1];\n"
    "WAIT:\n mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;\n @!%p1 bra WAIT;\n"
    " mul.wide.u32 %d2, %r0, 4;\n add.u64 %d2, %d0, %d2;\n st.global.u32 [%d2], %r0;\n"
    " ret;\n}\n");

clock::KernelTime time_of(bool waits_first) {
  Device device;
  Traces traces;
  traces.most = 1;
  device.settings.traces = &traces;
  device.load(kPtx);
  const uint64_t out = device.buffer(4096);
  const Outcome outcome = device.run("k", 1, 32, out);
  REQUIRE(outcome.error == 0);
  MadeCode code(kPtx);
  const auto wait = [&] {
    code.add("mbarrier.try_wait", clock::Unit::shared, clock::OpKind::mbarrier_wait);
  };
  code.add("mbarrier.init", clock::Unit::shared, clock::OpKind::store).guarded = true;
  code.add("bar.sync", clock::Unit::control, clock::OpKind::barrier);
  if (waits_first) wait();
  code.add("mbarrier.arrive", clock::Unit::shared, clock::OpKind::mbarrier_arrive);
  if (!waits_first) wait();
  code.store("st.global");
  code.exit();
  code.finish();
  code.program.made_by = "by hand";
  return clock::time_program(code.program, grid_of(device, "k", 1, 32), device.profile,
                             outcome.counters, traces.blocks, *clock::find_machine("h100"));
}

}  // namespace

TEST_CASE("machine code that gets stuck gives way to the PTX, and the report says so") {
  const clock::KernelTime right = time_of(false);
  CHECK(right.from == "sass");
  CHECK(right.made_by == "by hand");
  CHECK(right.mapped == 1);
  CHECK(!right.replay.stuck);
  const clock::KernelTime stuck = time_of(true);
  CHECK(stuck.from == "ptx");
  CHECK(stuck.made_by.find("waited for each other in vain") != std::string::npos);
  CHECK(!stuck.replay.stuck);
  CHECK(stuck.cycles > 0);
}
