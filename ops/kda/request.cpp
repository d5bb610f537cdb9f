// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a problem of the KDA operators to integers and flags, with its refusals: what they share,
// and kda_recurrent's own.
#include "ops/kda/request.h"

#include <cmath>

#include "codegen/base/invalid.h"
#include "templates/params/kda.h"

namespace lathe {
namespace {

constexpr int64_t kWidthStep = 4, kLeastWidth = 8, kMostWidth = 256;

// Options that mean nothing without another, or without a tensor.
Status check_transforms(const Resolved& resolved) {
  const auto& options = resolved.options_as<KdaInputOptions>();
  for (const int tensor : {kda::A_log, kda::dt_bias}) {
    if (options.use_gate_in_kernel || !resolved.has(tensor)) continue;
    const char* name = kda::kTensors[tensor].name;
    return invalid(text(name, " is declared and use_gate_in_kernel is 0; allowed is 1, or no ",
                        name, ", where g is the decay itself"));
  }
  if (options.use_gate_in_kernel && !options.lower_bound) {
    if (options.safe_gate) {
      return invalid(
          "option safe_gate is 1 with use_gate_in_kernel and lower_bound is unset; it needs a gate "
          "that is bounded: allowed are lower_bound from -5 to below 0");
    }
    if (!resolved.has(kda::A_log)) {
      return invalid(
          "A_log is not declared, but use_gate_in_kernel requires it, or option lower_bound");
    }
  }
  if (options.allow_neg_eigval && !options.use_beta_sigmoid_in_kernel) {
    return invalid("option allow_neg_eigval is 1 and use_beta_sigmoid_in_kernel is 0; it needs 1");
  }
  return {};
}

// A pool takes the place of initial_state and final_state.
Status check_pool(const Resolved& resolved) {
  using namespace kda_recurrent;
  if (!resolved.has(state_pool)) return {};
  for (const int tensor : {initial_state, final_state}) {
    if (!resolved.has(tensor)) continue;
    return invalid(text(kTensors[tensor].name,
                        " is declared with state_pool; allowed is one of them, the pool's states "
                        "being read and written in place"));
  }
  if (resolved.has(num_accepted_tokens) &&
      resolved.problem.tensors[state_indices].shape.rank != 2) {
    return invalid(
        "num_accepted_tokens is declared and state_indices has rank 1, [N]; allowed is [N,spec]");
  }
  return {};
}

}  // namespace

Status check_kda_extents(const Extents& extents, bool packed) {
  const int64_t heads = extents[Dim::H], value_heads = extents[Dim::HV];
  if (heads != kUnknown && value_heads != kUnknown &&
      (heads == 0 ? value_heads != 0 : value_heads % heads != 0)) {
    return invalid(text("v has HV = ", value_heads, " and q has H = ", heads,
                        "; allowed are HV that are a multiple of H"));
  }
  const int64_t bias = extents[Dim::HVK], keys = extents[Dim::K];
  if (bias != kUnknown && value_heads != kUnknown && keys != kUnknown &&
      bias != value_heads * keys) {
    return invalid(text("dt_bias has extent ", bias, "; allowed is HV * K = ", value_heads, " * ",
                        keys, " = ", value_heads * keys));
  }
  const int64_t tokens = extents[Dim::T], columns = extents[Dim::spec];
  if (!packed && tokens != kUnknown && columns != kUnknown && tokens > columns) {
    return invalid(text("q has T = ", tokens, " and state_indices has spec = ", columns,
                        "; allowed are T up to spec, a column for each token"));
  }
  return {};
}

Status check_kda_inputs(const Resolved& resolved) {
  LATHE_TRY(check_width("q", "K", resolved[Dim::K], kWidthStep, kLeastWidth, kMostWidth));
  LATHE_TRY(check_width("v", "V", resolved[Dim::V], kWidthStep, kLeastWidth, kMostWidth));
  LATHE_TRY(check_kda_extents(resolved.extents, resolved.has(kda::cu_seqlens)));
  return check_transforms(resolved);
}

Status check_kda_recurrent(const Resolved& resolved) {
  LATHE_TRY(check_kda_inputs(resolved));
  return check_pool(resolved);
}

KdaRequest read_kda_inputs(const Resolved& resolved) {
  const auto& options = resolved.options_as<KdaInputOptions>();
  KdaRequest out;
  out.scale =
      options.scale ? *options.scale : static_cast<float>(1.0 / std::sqrt(resolved[Dim::K]));
  out.lower_bound = options.lower_bound.value_or(0);
  out.beta_factor = options.allow_neg_eigval ? 2.0f : 1.0f;
  out.initial_state = resolved.has(kda::initial_state);
  KdaProblem& asked = out.problem;
  asked.element = resolved.dtype(kda::q);
  asked.gate = resolved.dtype(kda::g);
  asked.beta = resolved.dtype(kda::beta);
  asked.packed = resolved.has(kda::cu_seqlens);
  if (asked.packed) asked.cu_seqlens = resolved.dtype(kda::cu_seqlens);
  asked.key_dim = static_cast<int>(resolved[Dim::K]);
  asked.value_dim = static_cast<int>(resolved[Dim::V]);
  asked.l2norm = options.use_qk_l2norm_in_kernel;
  if (options.use_gate_in_kernel) {
    asked.gate_kind = options.lower_bound ? kKdaGateBounded : kKdaGateSoftplus;
  }
  asked.A_log = resolved.has(kda::A_log);
  asked.dt_bias = resolved.has(kda::dt_bias);
  asked.sigmoid = options.use_beta_sigmoid_in_kernel;
  asked.state_v_first = options.state_v_first;
  return out;
}

Result<KdaRequest> kda_recurrent_request(const Resolved& resolved) {
  using namespace kda_recurrent;
  LATHE_TRY(check_row_alignment(resolved.problem, kRowAlignment));
  KdaRequest out = read_kda_inputs(resolved);
  out.final_state = resolved.has(final_state);
  KdaProblem& asked = out.problem;
  asked.recurrent = true;
  if (resolved.has(state_pool)) {
    const Declared& indices = resolved.problem.tensors[state_indices];
    asked.index = indices.dtype;
    asked.states = indices.shape.rank == 2 ? kKdaStatesColumns : kKdaStatesPool;
  }
  return out;
}

}  // namespace lathe
