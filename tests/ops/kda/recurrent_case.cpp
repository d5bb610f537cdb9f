// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the token-by-token operator of a case: its call, and the comparison with the
// recurrence in double.
#include "tests/numbers.h"
#include "tests/ops/kda/case.h"

namespace apitest {
namespace {

using ref::Array;

// o is rounded once; states are float32 throughout. Far inside the 5e-3 asked for.
double bound_of(const KdaCase& kda, const std::string& output) {
  if (output != "o" || kda.element == LATHE_F32) return 3e-6;
  return kda.element == LATHE_F16 ? 4e-4 : 3e-3;
}

}  // namespace

Call kda_recurrent_call(const KdaCase& kda, const KdaInputs& inputs) {
  Call call = kda_base_call("kda_recurrent", kda, inputs, kda.gap);
  if (kda.warps > 0) call.tiles["kda_recurrent"] = "warps=" + std::to_string(kda.warps);
  const Placement placement = kda_placement(kda, kda.gap);
  if (kda.has_pool()) {
    put_kda_pool(kda, inputs.pool, kda.gap, &call);
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
  for (const auto& [name, values] : expected) {
    REQUIRE(actual.contains(name));
    if (name == "state_pool") {
      const double rounding = numbers::half_ulp(kda.pool_dtype);
      check_kda_pool(inputs, actual.at(name), values, bound_of(kda, name) + rounding);
      continue;
    }
    check_rms(name, actual.at(name), values, bound_of(kda, name), 1e-7);
  }
}

}  // namespace apitest
