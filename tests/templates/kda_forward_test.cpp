// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward on the simulator, under every checker, against the recurrence in double: random
// shapes for each of a set of configurations that covers every width, type and option.
#include "tests/templates/kda_forward_case.h"

using namespace kda_case;

namespace {

const std::vector<Setup> kSetups = {
    {LATHE_BF16, LATHE_F32, LATHE_F32, 64, 4, "final"},
    {LATHE_BF16, LATHE_BF16, LATHE_BF16, 128, 8, "l2norm gate_b factor bias sigmoid initial final"},
    {LATHE_F16, LATHE_F32, LATHE_F32, 128, 4, "packed initial final v_first chunks narrow"},
    {LATHE_BF16, LATHE_F32, LATHE_BF16, 64, 8,
     "packed l2norm gate_a factor sigmoid negative final"},
    {LATHE_BF16, LATHE_F32, LATHE_F32, 256, 4, "l2norm gate_b initial final chunks"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 64, 4, "packed l2norm gate_b bias sigmoid final"},
    {LATHE_F32, LATHE_BF16, LATHE_F32, 128, 2, "initial final v_first chunks"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 256, 2, "packed l2norm gate_a factor sigmoid initial final"},
};

}  // namespace

TEST_CASE("kda_forward: random shapes on every configuration, under every check") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const KernelSpec spec = forward_spec(s);
    CAPTURE(spec.text());
    const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    MESSAGE(spec.text(), ": ", compiled->report.registers, " registers, ",
            compiled->report.spill_stores, " spilt");
    if (s.element != LATHE_F32) CHECK(compiled->report.spill_stores == 0);
    for (int turn = 0; turn < 4; ++turn, ++seed) {
      const ref::Kda a = random_case(s, seed);
      if (a.rows() == 0) continue;
      CAPTURE(seed);
      CAPTURE(a.begin.back());
      CAPTURE(a.key_dim);
      CAPTURE(a.value_dim);
      sim::test::Device device("sm_80");
      device.settings.seed = seed;
      device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
      device.load(compiled->ptx);
      const ForwardResults r = run_forward(device, s, a);
      const ref::KdaForward exact = ref::kda_forward(a);
      CHECK(rms(r.o, exact.o) < bound_of(s));
      if (s.has("final")) CHECK(rms(r.final_state, exact.final_state) < bound_of(s));
      if (s.has("chunks")) CHECK(rms(r.chunk_states, exact.chunk_states) < bound_of(s));
    }
  }
}
