// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward on the simulator, under every checker, against the recurrence in double: random
// shapes for each of a set of configurations that covers every width, type and option.
#include "tests/templates/kda_case.h"

using namespace kda_case;
using lathe::KdaForwardParams;

namespace {

KernelSpec spec_of(const Setup& s) {
  KernelSpec spec = scan_spec(s, "kda_forward");
  spec.params = "KdaForwardParams";
  spec.params_bytes = sizeof(KdaForwardParams);
  spec.last_field = "chunks";
  spec.last_field_offset = offsetof(KdaForwardParams, chunks);
  for (const auto& [flag, member] :
       {std::pair("final", "kFinalState"), std::pair("chunks", "kChunkStates")}) {
    spec.constants.push_back(Constant::flag(flag, member, s.has(flag)));
  }
  spec.constants.push_back(Constant::flag("output", "kOutput", true));
  spec.constants.push_back(Constant::flag("saved", "kSaved", false));
  return spec;
}

struct Results {
  ref::Array o, final_state, chunk_states;
};

Results run(sim::test::Device& device, const Setup& s, const ref::Kda& a) {
  const KernelSpec spec = spec_of(s);
  KdaForwardParams p = {};
  p.in = inputs_of(device, s, a);
  p.initial_state = put(device, LATHE_F32, a.initial_state);
  const size_t states = static_cast<size_t>(a.sequences() * a.value_heads) * a.state_size();
  size_t chunks = 0;
  for (int64_t n = 0; n < a.sequences(); ++n) {
    chunks += static_cast<size_t>((a.begin[n + 1] - a.begin[n] + a.chunk - 1) / a.chunk);
  }
  const size_t chunk_count = chunks * static_cast<size_t>(a.value_heads) * a.state_size();
  p.o = at(device.buffer(a.v.size() * numbers::bytes_of(s.element) + 16));
  p.final_state = at(device.buffer(states * 4 + 16));
  p.chunk_states = at(device.buffer(chunk_count * 4 + 16));
  p.chunk_size = static_cast<int>(a.chunk), p.chunks = static_cast<int>(chunks);
  p.o_head_stride = p.in.v_head_stride, p.o_token_stride = p.in.v_token_stride;
  p.o_batch_stride = p.in.v_batch_stride;

  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome = device.run(
      "entry", static_cast<uint32_t>(p.in.sequences * p.in.value_heads * p.in.value_tiles),
      static_cast<uint32_t>(spec.threads), p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  CHECK(outcome.counters.shared_load.conflicts == 0);
  CHECK(outcome.counters.shared_store.conflicts == 0);
  Results r;
  r.o = take(device, s.element, p.o, a.v.size());
  if (s.has("final")) r.final_state = take(device, LATHE_F32, p.final_state, states);
  if (s.has("chunks")) r.chunk_states = take(device, LATHE_F32, p.chunk_states, chunk_count);
  return r;
}

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

// Of section 14 for 16-bit elements; float32 ones come to the rounding of the results.
double bound_of(const Setup& s) { return s.element == LATHE_F32 ? 2e-6 : 5e-3; }

}  // namespace

TEST_CASE("kda_forward: random shapes on every configuration, under every check") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const KernelSpec spec = spec_of(s);
    CAPTURE(spec.text());
    const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    MESSAGE(spec.text(), ": ", compiled->report.registers, " registers, ",
            compiled->report.spill_stores, " spilt");
    if (s.width <= 128 && s.element != LATHE_F32) CHECK(compiled->report.spill_stores == 0);
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
      const Results r = run(device, s, a);
      const ref::KdaForward exact = ref::kda_forward(a);
      CHECK(rms(r.o, exact.o) < bound_of(s));
      if (s.has("final")) CHECK(rms(r.final_state, exact.final_state) < bound_of(s));
      if (s.has("chunks")) CHECK(rms(r.chunk_states, exact.chunk_states) < bound_of(s));
    }
  }
}
