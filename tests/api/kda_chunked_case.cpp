// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The chunked operator of a case: its call, or its two calls, and the comparison with the
// recurrence in double and its gradients.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/api/kda_call.h"
#include "tests/api/kda_case.h"
#include "tests/compare.h"
#include "tests/numbers.h"
#include "tests/ref/kda_backward.h"

namespace apitest {
namespace {

struct Output {
  std::string name;
  std::vector<int64_t> shape;
  size_t open;
  int64_t gap;
};

int64_t chunks_of(const KdaCase& kda, int64_t chunk) {
  if (kda.seat) return kda.seat->chunks * (kda.cu_seqlens.empty() ? kda.batch : 1);
  int64_t chunks = 0;
  for (int64_t n = 0; n < kda.sequences(); ++n) {
    const int64_t tokens =
        kda.cu_seqlens.empty() ? kda.tokens : kda.cu_seqlens[n + 1] - kda.cu_seqlens[n];
    chunks += (tokens + chunk - 1) / chunk;
  }
  return chunks;
}

std::vector<Output> forward_outputs(const KdaCase& kda) {
  const int64_t B = kda.cu_seqlens.empty() ? kda.batch : 1, T = kda.rows() / B;
  std::vector<Output> out = {{"o", {B, T, kda.value_heads(), kda.value_dim}, 2, kda.gap}};
  if (kda.has_final_state()) {
    out.push_back({"final_state", kda_state_shape(kda, kda.sequences()), 1, 0});
  }
  if (kda.chunk_states) {
    std::vector<int64_t> shape = kda_state_shape(kda, chunks_of(kda, kda.chunk) / B);
    shape.insert(shape.begin(), B);
    out.push_back({"chunk_states", shape, 2, 0});
  }
  return out;
}

std::vector<Output> saved_outputs(const KdaCase& kda) {
  const bool packed = !kda.cu_seqlens.empty();
  const int64_t B = packed ? 1 : kda.batch, T = kda.rows() / B;
  const int64_t slots = packed ? T / 64 + kda.sequences() : B * ((T + 63) / 64);
  return {{"saved_values", {B, T, kda.value_heads(), kda.value_dim}, 2, 0},
          {"saved_states", {slots, kda.value_heads(), kda.value_dim, kda.key_dim}, 1, 0}};
}

std::vector<Output> gradient_outputs(const KdaCase& kda, const KdaInputs& inputs) {
  const int64_t B = kda.cu_seqlens.empty() ? kda.batch : 1, T = kda.rows() / B;
  const int64_t H = kda.heads, HV = kda.value_heads(), K = kda.key_dim, V = kda.value_dim;
  std::vector<Output> out;
  const auto add = [&](const char* name, std::vector<int64_t> shape, size_t open, int64_t gap) {
    if (kda.wants(name)) out.push_back({name, std::move(shape), open, gap});
  };
  add("dq", {B, T, H, K}, 2, 2 * kda.gap);
  add("dk", {B, T, H, K}, 2, kda.gap);
  add("dv", {B, T, HV, V}, 2, kda.gap);
  add("dg", {B, T, HV, K}, 2, 3 * kda.gap);
  add("dbeta", {B, T, HV}, 2, kda.gap);
  if (!inputs.kda.A_log.empty()) add("dA_log", {HV}, 0, 0);
  if (!inputs.kda.dt_bias.empty()) add("ddt_bias", {HV * K}, 0, 0);
  if (!inputs.kda.initial_state.empty()) {
    add("dinitial_state", kda_state_shape(kda, kda.sequences()), 1, 0);
  }
  return out;
}

void poison(const KdaCase& kda, const std::vector<Output>& outputs, KdaCall* call) {
  for (const Output& each : outputs) {
    call->add(each.name, kda_dtype(kda, each.name), each.shape, each.open,
              kda_placement(kda, each.gap))
        .poison();
  }
}

KdaCall start_call(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs) {
  KdaCall call(context, "kda", kda.seat);
  set_kda_options(kda, &call);
  if (kda.chunk != 64) call.set("chunk_size", std::to_string(kda.chunk));
  if (kda.segments > 0) call.set("segments", std::to_string(kda.segments));
  if (kda.warmup_segments > 0) {
    call.set("warmup_segments", std::to_string(kda.warmup_segments));
  }
  if (kda.saved) call.set("disable_recompute", "1");
  add_kda_inputs(kda, inputs, 0, &call);
  return call;
}

void add_upstream(const KdaCase& kda, const KdaInputs& inputs, KdaCall* call) {
  const int64_t B = kda.cu_seqlens.empty() ? kda.batch : 1, T = kda.rows() / B;
  call->add("do", kda.element, {B, T, kda.value_heads(), kda.value_dim}, 2,
            kda_placement(kda, 2 * kda.gap))
      .upload(inputs.kda.d_o);
  if (inputs.kda.dht.empty()) return;
  call->add("dht", LATHE_F32, kda_state_shape(kda, kda.sequences()), 1).upload(inputs.kda.dht);
}

void take(const std::vector<Output>& outputs, const KdaCall& call, KdaValues* values) {
  for (const Output& each : outputs) (*values)[each.name] = call.get(each.name);
}

double root_mean_square(const std::vector<double>& values) {
  double sum = 0;
  for (const double each : values) sum += each * each;
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(values.size(), 1)));
}

// A sum whose terms cancel is as exact as they are: each within the bound of dg.
double bound_of_sum(const KdaCase& kda, const std::string& name, const std::vector<double>& values,
                    const std::vector<double>& squares) {
  double sum = 0;
  for (const double each : squares) sum += each;
  const double terms = std::sqrt(sum / static_cast<double>(squares.size()));
  const double size = root_mean_square(values);
  return size == 0 ? 0 : std::max(kda_bound(kda, name), kda_bound(kda, "dg") * terms / size);
}

}  // namespace

lathe_dtype kda_dtype(const KdaCase& kda, const std::string& output) {
  if (output == "dg") return kda.gate_dtype;
  if (output == "dbeta") return kda.beta_dtype;
  for (const char* name : {"o", "dq", "dk", "dv", "saved_values", "saved_states"}) {
    if (output == name) return kda.element;
  }
  return LATHE_F32;
}

double kda_bound(const KdaCase& kda, const std::string& output) {
  const bool state = output == "o" || output == "final_state" || output == "chunk_states";
  const bool gate = output == "dg" || output == "dbeta";
  if (kda.element != LATHE_F32) {
    return state ? 5e-3 : !gate ? 8e-3 : kda.cu_seqlens.empty() ? 2e-2 : 1.5e-2;
  }
  const bool sum = output == "dA_log" || output == "ddt_bias";
  // dg and dbeta of 16-bit inputs are rounded once more.
  return (state         ? 1e-4
          : gate || sum ? 1e-3
                        : 2e-4) +
         (gate ? numbers::half_ulp(kda_dtype(kda, output)) / 2 : 0);
}

KdaValues kda_chunked_reference(const KdaCase& kda, const KdaInputs& inputs) {
  ref::KdaForward forward = ref::kda_forward(inputs.kda);
  KdaValues out = {{"o", std::move(forward.o)}};
  if (kda.has_final_state()) out["final_state"] = std::move(forward.final_state);
  if (kda.chunk_states) out["chunk_states"] = std::move(forward.chunk_states);
  if (!kda.backward) return out;
  ref::KdaBackward gradients = ref::kda_backward(inputs.kda);
  const std::pair<const char*, ref::Array*> all[] = {{"dq", &gradients.dq},
                                                     {"dk", &gradients.dk},
                                                     {"dv", &gradients.dv},
                                                     {"dg", &gradients.dg},
                                                     {"dbeta", &gradients.dbeta},
                                                     {"dA_log", &gradients.dA_log},
                                                     {"ddt_bias", &gradients.ddt_bias},
                                                     {"dinitial_state", &gradients.dinitial_state}};
  for (const Output& wanted : gradient_outputs(kda, inputs)) {
    for (const auto& [name, values] : all) {
      if (wanted.name == name) out[name] = std::move(*values);
    }
  }
  if (out.contains("dA_log")) out["dA_log_terms"] = std::move(gradients.dA_log_terms);
  if (out.contains("ddt_bias")) out["ddt_bias_terms"] = std::move(gradients.ddt_bias_terms);
  return out;
}

KdaCall make_kda_call(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs) {
  KdaCall call = start_call(context, kda, inputs);
  poison(kda, forward_outputs(kda), &call);
  const bool backward = kda.backward && !kda.apart;
  if (kda.saved && !backward) poison(kda, saved_outputs(kda), &call);
  if (!backward) return call;
  add_upstream(kda, inputs, &call);
  poison(kda, gradient_outputs(kda, inputs), &call);
  return call;
}

KdaCall make_kda_backward_call(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs,
                               const KdaValues& saved) {
  KdaCall call = start_call(context, kda, inputs);
  add_upstream(kda, inputs, &call);
  for (const Output& each : saved_outputs(kda)) {
    if (!kda.saved) break;
    call.add(each.name, kda.element, each.shape, each.open).upload(saved.at(each.name));
  }
  poison(kda, gradient_outputs(kda, inputs), &call);
  return call;
}

KdaValues run_kda(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs) {
  KdaValues values, saved;
  const bool apart = kda.backward && kda.apart;
  {
    KdaCall call = make_kda_call(context, kda, inputs);
    call.run();
    take(forward_outputs(kda), call, &values);
    if (kda.backward && !apart) take(gradient_outputs(kda, inputs), call, &values);
    if (kda.saved && apart) take(saved_outputs(kda), call, &saved);
  }
  if (!apart) return values;
  KdaCall call = make_kda_backward_call(context, kda, inputs, saved);
  call.run();
  take(gradient_outputs(kda, inputs), call, &values);
  return values;
}

void check_kda(const KdaCase& kda, const KdaInputs& inputs, const KdaValues& actual, double slack) {
  if (kda.element == LATHE_F32) slack = 1;
  const KdaValues expected = kda_chunked_reference(kda, inputs);
  for (const auto& [name, values] : expected) {
    if (name.ends_with("_terms")) continue;
    const auto terms = expected.find(name + "_terms");
    const double bound = terms == expected.end() ? kda_bound(kda, name)
                                                 : bound_of_sum(kda, name, values, terms->second);
    REQUIRE(actual.contains(name));
    const auto verdict =
        compare::compare(name, actual.at(name), values, {static_cast<int64_t>(values.size())},
                         {compare::Rule::kRms, slack * bound, 1e-6});
    CHECK_MESSAGE(verdict.ok, verdict.text);
  }
  check_no_findings();
}

}  // namespace apitest
