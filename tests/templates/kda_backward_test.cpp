// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward_scan and kda_backward on the simulator, under every checker, against the gradients
// of the recurrence in double.
#include "tests/templates/kda_gradients.h"

using namespace kda_case;
using lathe::KdaBackwardParams;
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
};

}  // namespace

TEST_CASE("the backward of kda: random shapes on every configuration, under every check") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    std::string ptx[2];
    for (int i = 0; i < 2; ++i) {
      const KernelSpec spec = i == 0 ? walk_spec(s) : gradient_spec(s);
      CAPTURE(spec.text());
      const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
      REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
      MESSAGE(spec.text(), ": ", compiled->report.registers, " registers, ",
              compiled->report.spill_stores, " spilt");
      ptx[i] = compiled->ptx;
    }
    for (int turn = 0; turn < 4; ++turn, ++seed) {
      ref::Kda a = random_case(s, seed);
      if (a.rows() == 0) continue;
      a.chunk = 64;
      std::mt19937 random(seed);
      std::normal_distribution<double> normal;
      a.d_o.resize(a.v.size());
      for (double& x : a.d_o) x = numbers::rounded(s.element, normal(random));
      if (s.has("final")) {
        a.dht.resize(static_cast<size_t>(a.sequences() * a.value_heads) * a.state_size());
        for (double& x : a.dht) x = static_cast<float>(normal(random));
      }
      CAPTURE(seed);
      CAPTURE(a.begin.back());
      CAPTURE(a.key_dim);
      CAPTURE(a.value_dim);
      CAPTURE(a.heads);
      CAPTURE(a.value_heads);
      const ref::KdaBackward exact = ref::kda_backward(a);

      sim::test::Device device("sm_80");
      device.settings.seed = seed;
      device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
      const auto room = [&](size_t count, int each) {
        return at(device.buffer(count * each + 64));
      };
      KdaBackwardScanParams w = {};
      w.in = inputs_of(device, s, a);
      const bool packed = s.has("packed");
      const int slots =
          packed ? w.in.tokens / 64 + w.in.sequences : w.in.sequences * ((w.in.tokens + 63) / 64);
      const size_t states = static_cast<size_t>(slots * a.value_heads) * a.state_size();
      w.initial_state = put(device, LATHE_F32, a.initial_state);
      w.d_o = put(device, s.element, a.d_o);
      w.dht = put(device, LATHE_F32, a.dht);
      const size_t final_states =
          static_cast<size_t>(a.sequences() * a.value_heads) * a.state_size();
      w.dinitial_state = room(final_states, 4);
      w.saved_values = room(a.v.size(), 2), w.value_grads = room(a.v.size(), 2);
      w.saved_states = room(states, 2), w.state_grads = room(states, 2);
      w.do_head_stride = w.in.v_head_stride, w.do_token_stride = w.in.v_token_stride;
      w.do_batch_stride = w.in.v_batch_stride;
      w.forward_blocks = w.in.sequences * w.in.value_heads * w.in.value_tiles;
      KdaBackwardParams p = {};
      p.in = w.in;
      p.d_o = w.d_o, p.saved_values = w.saved_values, p.saved_states = w.saved_states;
      p.value_grads = w.value_grads, p.state_grads = w.state_grads;
      p.dq = room(a.q.size(), 2), p.dk = room(a.q.size(), 2), p.dv = room(a.v.size(), 2);
      p.dg = room(a.g.size(), 4), p.dbeta = room(a.beta.size(), 4);
      p.rate_sums = room(static_cast<size_t>(slots * a.value_heads), 4);
      p.bias_sums = room(static_cast<size_t>(slots * a.value_heads * a.key_dim), 4);
      p.do_head_stride = w.do_head_stride, p.do_token_stride = w.do_token_stride;
      p.do_batch_stride = w.do_batch_stride;
      p.dq_head_stride = p.dk_head_stride = p.in.q_head_stride;
      p.dq_token_stride = p.dk_token_stride = p.in.q_token_stride;
      p.dq_batch_stride = p.dk_batch_stride = p.in.q_batch_stride;
      p.dv_head_stride = p.in.v_head_stride, p.dv_token_stride = p.in.v_token_stride;
      p.dv_batch_stride = p.in.v_batch_stride;
      p.dg_head_stride = p.in.g_head_stride, p.dg_token_stride = p.in.g_token_stride;
      p.dg_batch_stride = p.in.g_batch_stride;
      p.dbeta_head_stride = p.in.beta_head_stride, p.dbeta_token_stride = p.in.beta_token_stride;
      p.dbeta_batch_stride = p.in.beta_batch_stride;
      p.slots = slots;

      for (int i = 0; i < 2; ++i) {
        device.load(ptx[i]);
        const KernelSpec spec = i == 0 ? walk_spec(s) : gradient_spec(s);
        device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
        const auto outcome =
            i == 0 ? device.run("entry", static_cast<uint32_t>(2 * w.forward_blocks),
                                static_cast<uint32_t>(spec.threads), w)
                   : device.run("entry", static_cast<uint32_t>(slots * p.in.heads), 256u, p);
        INFO(spec.kernel, " ", sim::test::texts(outcome));
        REQUIRE(outcome.error == 0);
        CHECK(outcome.findings.empty());
        CHECK(outcome.counters.shared_load.conflicts == 0);
        CHECK(outcome.counters.shared_store.conflicts == 0);
      }
      const auto near = [&](const char* name, const ref::Array& r, const void* from,
                            lathe_dtype dtype, double bound) {
        const double error = rms(take(device, dtype, from, r.size()), r);
        INFO(name);
        MESSAGE(std::string(name), " ", error);
        CHECK(error < bound);
      };
      near("dq", exact.dq, p.dq, s.element, 8e-3);
      near("dk", exact.dk, p.dk, s.element, 8e-3);
      near("dv", exact.dv, p.dv, s.element, 8e-3);
      near("dg", exact.dg, p.dg, s.gate, 1.5e-2);
      near("dbeta", exact.dbeta, p.dbeta, s.beta, 1.5e-2);
      if (s.has("initial")) {
        near("dinitial", exact.dinitial_state, w.dinitial_state, LATHE_F32, 8e-3);
      }
      const auto sums = [&](const char* name, const ref::Array& r, const void* from, double bound) {
        const ref::Array parts =
            take(device, LATHE_F32, from, static_cast<size_t>(slots) * r.size());
        ref::Array whole(r.size(), 0.0);
        for (size_t i = 0; i < parts.size(); ++i) whole[i % r.size()] += parts[i];
        MESSAGE(std::string(name), " ", rms(whole, r));
        INFO(name);
        CHECK(rms(whole, r) < bound);
      };
      if (s.has("factor")) sums("dA_log", exact.dA_log, p.rate_sums, 8e-3);
      if (s.has("bias")) sums("ddt_bias", exact.ddt_bias, p.bias_sums, 8e-3);
    }
  }
}
