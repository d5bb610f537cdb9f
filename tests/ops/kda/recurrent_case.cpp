// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the token-by-token operator of a case: its call, and the comparison with the
// recurrence in double.
#include <algorithm>

#include "tests/ops/kda/case.h"

namespace apitest {
namespace {

using ref::Array;

// o is rounded once; states are float32 throughout. Far inside the 5e-3 asked for.
double bound_of(const KdaCase& kda, const std::string& output) {
  if (output != "o" || kda.element == LATHE_F32) return 3e-6;
  return kda.element == LATHE_F16 ? 4e-4 : 3e-3;
}

// A slot that no token is stored in keeps its bits.
void check_untouched(const KdaInputs& inputs, const Outputs& actual, const Outputs& expected) {
  const Array& before = inputs.pool.states;
  const auto each = std::ssize(before) / std::max<int64_t>(inputs.pool.slots, 1);
  for (auto slot = before.begin(); slot != before.end(); slot += each) {
    const auto at = slot - before.begin();
    if (!std::equal(slot, slot + each, expected.at("state_pool").begin() + at)) continue;
    CHECK(std::equal(slot, slot + each, actual.at("state_pool").begin() + at));
  }
}

}  // namespace

Call kda_recurrent_call(const KdaCase& kda, const KdaInputs& inputs) {
  Call call = kda_base_call("kda_recurrent", kda, inputs, kda.gap);
  if (kda.warps > 0) call.tiles["kda_recurrent"] = "warps=" + std::to_string(kda.warps);
  const Placement placement = kda_placement(kda, kda.gap);
  const auto integers = [&](const char* name, std::vector<int64_t> shape,
                            const std::vector<int64_t>& values) {
    call.put(name, kda.index_dtype, std::move(shape), Array(values.begin(), values.end()));
  };
  if (kda.has_pool()) {
    const ref::KdaPool& pool = inputs.pool;
    call.put("state_pool", LATHE_F32, kda_state_shape(kda, pool.slots), pool.states, placement);
    call.tensors.at("state_pool").changed = true;
    std::vector<int64_t> shape = {kda.sequences()};
    if (pool.columns > 0) shape.push_back(pool.columns);
    integers("state_indices", shape, pool.indices);
    if (!pool.accepted.empty()) integers("num_accepted_tokens", {kda.sequences()}, pool.accepted);
    if (!pool.sources.empty()) integers("source_indices", {kda.sequences()}, pool.sources);
    if (!pool.has_initial_state.empty()) {
      call.put("has_initial_state", LATHE_I32, {kda.sequences()},
               Array(pool.has_initial_state.begin(), pool.has_initial_state.end()));
    }
    if (pool.null_slot != -1) call.set("null_slot", pool.null_slot);
    if (!pool.updates) call.set("update_state", int64_t{0});
  } else if (kda.has_final_state()) {
    call.want("final_state", LATHE_F32, kda_state_shape(kda, kda.sequences()), placement);
  }
  const int64_t B = kda.batch_rows();
  call.want("o", kda.element, {B, kda.rows() / B, kda.value_heads(), kda.value_dim}, placement);
  return call;
}

Outputs run_kda_recurrent(const KdaCase& kda, const KdaInputs& inputs) {
  return run_kda_call(kda, kda_recurrent_call(kda, inputs));
}

Outputs kda_recurrent_reference(const KdaCase& kda, const KdaInputs& inputs) {
  if (kda.has_pool()) {
    ref::KdaPool pool = inputs.pool;
    Array o = ref::kda_pool_forward(inputs.kda, &pool);
    return {{"o", std::move(o)}, {"state_pool", std::move(pool.states)}};
  }
  ref::KdaForward forward = ref::kda_forward(inputs.kda);
  Outputs out = {{"o", std::move(forward.o)}};
  if (kda.has_final_state()) out["final_state"] = std::move(forward.final_state);
  return out;
}

void check_kda_recurrent(const KdaCase& kda, const KdaInputs& inputs, const Outputs& actual) {
  const Outputs expected = kda_recurrent_reference(kda, inputs);
  check_untouched(inputs, actual, expected);
  for (const auto& [name, values] : expected) {
    REQUIRE(actual.contains(name));
    check_rms(name, actual.at(name), values, bound_of(kda, name), 1e-7);
  }
}

}  // namespace apitest
