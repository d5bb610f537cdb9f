// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward_scan and kda_backward on the simulator, under every checker, against the gradients
// of the recurrence in double.
#include "tests/templates/kda_gradients.h"

using namespace kda_case;
using lathe::KdaBackwardScanParams;

namespace {

KernelSpec walk_spec(const Setup& s) {
  KernelSpec spec = scan_spec(s, "kda_backward_scan");
  spec.params = "KdaBackwardScanParams";
  spec.params_bytes = sizeof(KdaBackwardScanParams);
  spec.last_field = "reserved";
  spec.last_field_offset = offsetof(KdaBackwardScanParams, reserved);
  const std::pair<const char*, bool> flags[] = {{"kFinalState", false},
                                                {"kChunkStates", false},
                                                {"kOutput", false},
                                                {"kSaved", true},
                                                {"kFinalStateGrad", s.has("final")},
                                                {"kInitialStateGrad", s.has("initial")}};
  for (const auto& [member, value] : flags) {
    spec.constants.push_back(Constant::flag(member, member, value));
  }
  return spec;
}

const std::vector<Setup> kSetups = {
    {LATHE_BF16, LATHE_F32, LATHE_F32, 64, 4, "single"},
    {LATHE_BF16, LATHE_BF16, LATHE_BF16, 128, 8,
     "l2norm gate_b factor bias sigmoid initial final single"},
    {LATHE_F16, LATHE_F32, LATHE_F32, 128, 4, "packed initial final v_first narrow grouped"},
    {LATHE_BF16, LATHE_F32, LATHE_BF16, 64, 8,
     "packed l2norm gate_a factor bias sigmoid negative final grouped"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 64, 4,
     "packed l2norm gate_b factor sigmoid initial final single"},
};

// What the walks leave when they are run.
struct Walked {
  Left left;
  ref::Array dinitial_state;
};

Walked walked(const Setup& s, const ref::Kda& a, uint32_t seed) {
  const KernelSpec spec = walk_spec(s);
  const auto made = compiled(spec);
  sim::test::Device device("sm_80");
  device.settings.seed = seed;
  device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
  const auto room = [&](size_t count, lathe_dtype dtype) {
    return at(device.buffer(count * numbers::bytes_of(dtype) + 64));
  };
  Walked out;
  KdaBackwardScanParams p = {};
  p.in = inputs_of(device, s, a);
  const int chunks = (p.in.tokens + 63) / 64;
  out.left.slots = s.has("packed") ? p.in.tokens / 64 + p.in.sequences : p.in.sequences * chunks;
  const size_t states = static_cast<size_t>(out.left.slots * a.value_heads) * a.state_size();
  const size_t final_states = static_cast<size_t>(a.sequences() * a.value_heads) * a.state_size();
  p.initial_state = put(device, LATHE_F32, a.initial_state);
  p.d_o = put(device, s.element, a.d_o), p.dht = put(device, LATHE_F32, a.dht);
  p.dinitial_state = room(final_states, LATHE_F32);
  p.saved_values = room(a.v.size(), s.element), p.value_grads = room(a.v.size(), s.element);
  p.saved_states = room(states, s.element), p.state_grads = room(states, s.element);
  p.do_head_stride = p.in.v_head_stride, p.do_token_stride = p.in.v_token_stride;
  p.do_batch_stride = p.in.v_batch_stride;
  p.forward_blocks = p.in.sequences * p.in.value_heads * p.in.value_tiles;
  launched(device, made->ptx, spec, static_cast<size_t>(2 * p.forward_blocks), p);
  out.left.values = take(device, s.element, p.saved_values, a.v.size());
  out.left.value_grads = take(device, s.element, p.value_grads, a.v.size());
  out.left.states = take(device, s.element, p.saved_states, states);
  out.left.state_grads = take(device, s.element, p.state_grads, states);
  if (s.has("initial")) {
    out.dinitial_state = take(device, LATHE_F32, p.dinitial_state, final_states);
  }
  return out;
}

}  // namespace

TEST_CASE("the backward of kda: random shapes on every configuration, under every check") {
  if (!compiled(finish_spec())) return;
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    for (int turn = 0; turn < (s.element == LATHE_F32 ? 2 : 4); ++turn, ++seed) {
      ref::Kda a = random_case(s, seed);
      if (a.rows() == 0) continue;
      add_gradients(s, seed, &a);
      CAPTURE(walk_spec(s).text());
      CAPTURE(seed);
      CAPTURE(a.begin.back());
      CAPTURE(a.key_dim);
      CAPTURE(a.value_dim);
      CAPTURE(a.heads);
      CAPTURE(a.value_heads);
      const ref::KdaBackward exact = ref::kda_backward(a);
      const Walked left = walked(s, a, seed);
      compare(s, run_gradients(s, a, left.left, {seed, static_cast<int>(seed % 3), ""}), exact);
      if (!s.has("initial")) continue;
      CHECK(rms(left.dinitial_state, exact.dinitial_state) < bound_of(s, "dinitial_state"));
    }
  }
}
