// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the chunked operator of a case: its call, or its two calls, on one rank or
// several, and the comparison with the recurrence in double and its gradients.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/kda_backward.h"
#include "tests/harness/family.h"
#include "tests/harness/ranks.h"
#include "tests/numbers.h"
#include "tests/ops/kda/case.h"

namespace apitest {
namespace {

// Every output, or input of the same kind, has the dtype that its name says.
void want(Call* call, const KdaCase& kda, const char* name, std::vector<int64_t> shape,
          int64_t gap = 0) {
  call->want(name, kda_dtype(kda, name), std::move(shape), kda_placement(kda, gap));
}

void want_forward(const KdaCase& kda, Call* call) {
  const int64_t B = kda.batch_rows(), T = kda.rows() / B;
  want(call, kda, "o", {B, T, kda.value_heads(), kda.value_dim}, kda.gap);
  if (kda.has_final_state()) {
    want(call, kda, "final_state", kda_state_shape(kda, kda.sequences()));
  }
  if (!kda.chunk_states) return;
  std::vector<int64_t> shape = kda_state_shape(kda, kda_chunks_before(kda, kda.rows()));
  shape.insert(shape.begin(), B);
  want(call, kda, "chunk_states", shape);
}

void want_saved(const KdaCase& kda, Call* call) {
  const int64_t B = kda.batch_rows(), T = kda.rows() / B, HV = kda.value_heads();
  want(call, kda, "saved_values", {B, T, HV, kda.value_dim});
  want(call, kda, "saved_states", {kda_slots_of(kda, T), HV, kda.value_dim, kda.key_dim});
}

void want_gradients(const KdaCase& kda, const KdaInputs& inputs, Call* call) {
  const int64_t B = kda.batch_rows(), T = kda.rows() / B;
  const int64_t H = kda.heads, HV = kda.value_heads(), K = kda.key_dim, V = kda.value_dim;
  const std::vector<int64_t> states = kda_state_shape(kda, kda.sequences());
  const ref::Kda& a = inputs.kda;
  call->put("do", kda.element, {B, T, HV, V}, a.d_o, kda_placement(kda, 2 * kda.gap));
  if (!a.dht.empty()) call->put("dht", LATHE_F32, states, a.dht);
  const auto add = [&](const char* name, std::vector<int64_t> shape, int64_t gap,
                       bool given = true) {
    if (given && kda.wants(name)) want(call, kda, name, std::move(shape), gap);
  };
  add("dq", {B, T, H, K}, 2 * kda.gap);
  add("dk", {B, T, H, K}, kda.gap);
  add("dv", {B, T, HV, V}, kda.gap);
  add("dg", {B, T, HV, K}, 3 * kda.gap);
  add("dbeta", {B, T, HV}, kda.gap);
  add("dA_log", {HV}, 0, !a.A_log.empty());
  add("ddt_bias", {HV * K}, 0, !a.dt_bias.empty());
  add("dinitial_state", states, 0, !a.initial_state.empty());
}

Call start_call(const KdaCase& kda, const KdaInputs& inputs) {
  Call call = kda_base_call("kda", kda, inputs, 0);
  if (kda.chunk != 64) call.set("chunk_size", kda.chunk);
  if (kda.segments > 0) call.set("segments", int64_t{kda.segments});
  if (kda.warmup_segments > 0) call.set("warmup_segments", int64_t{kda.warmup_segments});
  if (kda.saved) call.options["disable_recompute"] = "1";
  if (kda.has_pool()) put_kda_pool(kda, inputs.pool, kda.gap, &call);
  return call;
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

// Rows that no sequence has hold NaN in the inputs. Nothing reads them, and results there are 0.
void check_padding(const KdaCase& kda, const Outputs& actual) {
  for (const char* name : {"o", "dq", "dk", "dv", "dg", "dbeta"}) {
    const auto found = actual.find(name);
    if (found == actual.end() || kda.padding == 0) continue;
    const auto each = std::ssize(found->second) / kda.rows();
    const bool zeros = std::all_of(found->second.end() - each * kda.padding, found->second.end(),
                                   [](double value) { return value == 0; });
    CHECK_MESSAGE(zeros, std::string(name), " behind the last sequence");
  }
}

// The outputs of a case, of one call or two, by `run_call`.
template <typename RunCall>
Outputs run_calls(const KdaCase& kda, const KdaInputs& inputs, const RunCall& run_call) {
  if (!kda.forward) return run_call(kda_backward_call(kda, inputs, {}));
  Outputs outputs = run_call(kda_call(kda, inputs));
  if (kda.backward && kda.apart) {
    outputs.merge(run_call(kda_backward_call(kda, inputs, outputs)));
  }
  outputs.erase("saved_values"), outputs.erase("saved_states");
  return outputs;
}

}  // namespace

int64_t kda_chunks_before(const KdaCase& kda, int64_t until) {
  const std::vector<int64_t> fixed = {0, kda.tokens};
  const std::vector<int64_t>& begin = kda.packed() ? kda.cu_seqlens : fixed;
  int64_t chunks = 0;
  for (size_t n = 0; n + 1 < begin.size(); ++n) {
    const int64_t tokens = std::min(begin[n + 1], until) - begin[n];
    if (tokens > 0) chunks += (tokens + kda.chunk - 1) / kda.chunk;
  }
  return chunks;
}

int64_t kda_slots_of(const KdaCase& kda, int64_t tokens) {
  return kda.packed() ? tokens / 64 + kda.sequences() : kda.batch * ((tokens + 63) / 64);
}

lathe_dtype kda_dtype(const KdaCase& kda, const std::string& output) {
  if (output == "dg") return kda.gate_dtype;
  if (output == "dbeta") return kda.beta_dtype;
  for (const char* name : {"o", "dq", "dk", "dv", "saved_values", "saved_states"}) {
    if (output == name) return kda.element;
  }
  return LATHE_F32;
}

double kda_bound(const KdaCase& kda, const std::string& output) {
  const bool state = output == "o" || output == "final_state" || output == "chunk_states" ||
                     output == "state_pool";
  const bool gate = output == "dg" || output == "dbeta";
  if (kda.element != LATHE_F32) {
    return state ? 5e-3 : !gate ? 8e-3 : kda.packed() || kda.tight ? 1.5e-2 : 2e-2;
  }
  // dg and dbeta of 16-bit inputs are rounded once more.
  const double rounding = gate ? numbers::half_ulp(kda_dtype(kda, output)) / 2 : 0;
  if (kda.tight) return (state ? 2e-6 : 1e-5) + rounding;
  const bool sum = output == "dA_log" || output == "ddt_bias";
  return (state ? 1e-4 : gate || sum ? 1e-3 : 2e-4) + rounding;
}

Outputs kda_reference(const KdaCase& kda, const KdaInputs& inputs) {
  Outputs out;
  if (kda.has_pool()) {
    ref::KdaPool pool = inputs.pool;
    out["o"] = ref::kda_pool_forward(inputs.kda, &pool);
    out["state_pool"] = std::move(pool.states);
  } else if (kda.forward) {
    ref::KdaForward forward = ref::kda_forward(inputs.kda);
    out["o"] = std::move(forward.o);
    if (kda.has_final_state()) out["final_state"] = std::move(forward.final_state);
    if (kda.chunk_states) out["chunk_states"] = std::move(forward.chunk_states);
  }
  if (!kda.backward) return out;
  const ref::Kda& a = inputs.kda;
  ref::KdaBackward gradients = ref::kda_backward(a);
  const auto add = [&](const char* name, Values* values, bool given = true) {
    if (given && kda.wants(name)) out[name] = std::move(*values);
  };
  add("dq", &gradients.dq), add("dk", &gradients.dk), add("dv", &gradients.dv);
  add("dg", &gradients.dg), add("dbeta", &gradients.dbeta);
  add("dA_log", &gradients.dA_log, !a.A_log.empty());
  add("ddt_bias", &gradients.ddt_bias, !a.dt_bias.empty());
  add("dinitial_state", &gradients.dinitial_state, !a.initial_state.empty());
  if (out.contains("dA_log")) out["dA_log_terms"] = std::move(gradients.dA_log_terms);
  if (out.contains("ddt_bias")) out["ddt_bias_terms"] = std::move(gradients.ddt_bias_terms);
  return out;
}

Call kda_call(const KdaCase& kda, const KdaInputs& inputs) {
  Call call = start_call(kda, inputs);
  if (kda.warps > 0) {
    const std::string tile = "warps=" + std::to_string(kda.warps);
    call.tiles[kda.warmup_segments > 1 ? "kda_forward_warmup" : "kda_forward"] = tile;
    call.tiles["kda_forward_warpgroups"] = "kernel=kda_forward " + tile;
  }
  want_forward(kda, &call);
  const bool backward = kda.backward && !kda.apart;
  if (backward) want_gradients(kda, inputs, &call);
  if (kda.saved && !backward) want_saved(kda, &call);
  return call;
}

Call kda_backward_call(const KdaCase& kda, const KdaInputs& inputs, const Outputs& saved) {
  Call call = start_call(kda, inputs);
  // Hopper's walk back has one tile.
  if (kda.warps > 0 && !in_family("sm90")) {
    call.tiles["kda_backward_scan"] = "warps=" + std::to_string(kda.warps);
  }
  want_gradients(kda, inputs, &call);
  if (!kda.saved) return call;
  want_saved(kda, &call);
  for (const char* name : {"saved_values", "saved_states"}) {
    call.tensors.at(name).values = saved.at(name);
  }
  return call;
}

Outputs run_kda(const KdaCase& kda, const KdaInputs& inputs) {
  return run_calls(kda, inputs, [&](const Call& call) { return run_kda_call(kda, call); });
}

Outputs run_kda_ranks(const KdaCase& kda, const KdaInputs& inputs,
                      const std::vector<int64_t>& parts, unsigned flags, bool graph) {
  Ranks ranks;
  ranks.world = static_cast<int>(parts.size()), ranks.flags = flags, ranks.graph = graph;
  ranks.bounds.push_back(0);
  std::vector<int64_t>&chunks = ranks.counts["NT"], &slots = ranks.counts["slots"];
  for (const int64_t part : parts) {
    const int64_t begin = ranks.bounds.back(), end = begin + part;
    ranks.bounds.push_back(end);
    chunks.push_back(kda_chunks_before(kda, end) - kda_chunks_before(kda, begin));
    slots.push_back(kda_slots_of(kda, part));
  }
  return run_calls(kda, inputs, [&](Call call) {
    // Each rank has slots for its own part.
    const auto states = call.tensors.find("saved_states");
    if (states != call.tensors.end()) {
      states->second.shape[0] = std::reduce(slots.begin(), slots.end());
    }
    return run_ranks(call, ranks).outputs;
  });
}

Outputs run_kda_ranks(const KdaCase& kda, const KdaInputs& inputs, Ranks ranks,
                      std::vector<RanksAnswer>* answers) {
  std::vector<int64_t> slots;
  for (const Intervals& own : ranks.ranges) {
    Intervals& chunks = ranks.entries["NT"].emplace_back();
    int64_t tokens = 0;
    for (const auto& [begin, end] : own) {
      tokens += end - begin;
      chunks.emplace_back(kda_chunks_before(kda, begin), kda_chunks_before(kda, end));
    }
    slots.push_back(kda_slots_of(kda, tokens));
  }
  if (kda.saved) ranks.counts["slots"] = slots;
  return run_calls(kda, inputs, [&](Call call) {
    const auto states = call.tensors.find("saved_states");
    if (states != call.tensors.end()) {
      states->second.shape[0] = std::reduce(slots.begin(), slots.end());
    }
    RanksAnswer answer = run_ranks(call, ranks);
    Outputs outputs = answer.outputs;
    if (answers != nullptr) answers->push_back(std::move(answer));
    return outputs;
  });
}

void check_kda(const KdaCase& kda, const KdaInputs& inputs, const Outputs& actual, double slack) {
  if (kda.element == LATHE_F32) slack = 1;
  const Outputs expected = kda_reference(kda, inputs);
  for (const auto& [name, values] : expected) {
    if (name.ends_with("_terms")) continue;
    const auto terms = expected.find(name + "_terms");
    const double bound = terms == expected.end() ? kda_bound(kda, name)
                                                 : bound_of_sum(kda, name, values, terms->second);
    REQUIRE(actual.contains(name));
    if (name == "state_pool") {
      const double rounding = numbers::half_ulp(kda.pool_dtype);
      check_kda_pool(inputs, actual.at(name), values, slack * bound + rounding);
      continue;
    }
    check_rms(name, actual.at(name), values, slack * bound, 1e-6);
  }
  check_padding(kda, actual);
}

Outputs check_kda(const KdaCase& kda, const KdaInputs& inputs) {
  Outputs actual = run_kda(kda, inputs);
  check_kda(kda, inputs, actual);
  return actual;
}

}  // namespace apitest
