// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Converts a problem of the KDA operators to integers and flags, and refuses unsupported ones: the
// shared checks, and kda_recurrent's own.
#include "ops/kda/request.h"

#include <cmath>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "templates/params/kda.h"

namespace lathe {

Status check_kda_transforms(const Resolved& resolved) {
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

namespace {

// Records stand for writes of one state a slot, which is read and folded in place.
Status check_rings(const Resolved& resolved) {
  using namespace kda_recurrent;
  if (resolved.problem.tensors[state_indices].shape.rank != 1) {
    return invalid(
        "ring_k is declared and state_indices has rank 2, [N,spec]; allowed with rings is [N]");
  }
  for (const int tensor : {source_indices, has_initial_state}) {
    if (!resolved.has(tensor)) continue;
    return invalid(text(kTensors[tensor].name,
                        " is declared with ring_k; allowed is one of them: a slot's records follow "
                        "its own state"));
  }
  if (!resolved.options_as<KdaRecurrentOptions>().update_state) {
    return invalid(
        "option update_state is 0 and ring_k is declared; allowed is 1, or option "
        "append 0, which leaves the counts");
  }
  const Dtype found = resolved.dtype(ring_u);
  if (found != Dtype::f32 && found != resolved.dtype(q)) {
    return invalid(text("ring_u has dtype ", word(found), "; allowed are f32 and ",
                        word(resolved.dtype(q)), ", that of q"));
  }
  return {};
}

// A pool takes the place of initial_state and final_state.
Status check_pool(const Resolved& resolved) {
  using namespace kda_recurrent;
  const auto& options = resolved.options_as<KdaRecurrentOptions>();
  if (!options.append && !resolved.has(ring_k)) {
    return invalid(
        "option append is 0 and ring_k is not declared; allowed is 1: there are no "
        "records to count");
  }
  if (!resolved.has(state_pool)) {
    if (options.update_state && options.null_slot == -1) return {};
    const std::string found = options.update_state ? text("null_slot is ", options.null_slot)
                                                   : std::string("update_state is 0");
    return invalid(text("option ", found,
                        " and state_pool is not declared; it says how a pool is "
                        "used: allowed is ",
                        options.update_state ? "-1" : "1"));
  }
  for (const int tensor : {initial_state, final_state}) {
    if (!resolved.has(tensor)) continue;
    return invalid(text(kTensors[tensor].name,
                        " is declared with state_pool; allowed is one of them, the pool's states "
                        "being read and written in place"));
  }
  if (resolved.has(ring_k)) LATHE_TRY(check_rings(resolved));
  if (resolved.has(num_accepted_tokens) && resolved.has(source_indices)) {
    return invalid(
        "num_accepted_tokens is declared with source_indices; allowed is one of them, as both say "
        "which slot a sequence reads");
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
  if (const int64_t length = extents[Dim::L];
      !packed && tokens != kUnknown && length != kUnknown && tokens > length) {
    return invalid(text("q has T = ", tokens, " and ring_k has L = ", length,
                        "; allowed are T up to L, a record for each token"));
  }
  if (!packed && tokens != kUnknown && columns != kUnknown && tokens > columns) {
    return invalid(text("q has T = ", tokens, " and state_indices has spec = ", columns,
                        "; allowed are T up to spec, a column for each token"));
  }
  return {};
}

Status check_kda_widths(const char* keys, const char* values, const Resolved& resolved) {
  constexpr int64_t kStep = 4, kLeast = 8, kMost = 256;
  LATHE_TRY(check_width(keys, "K", resolved[Dim::K], kStep, kLeast, kMost));
  return check_width(values, "V", resolved[Dim::V], kStep, kLeast, kMost);
}

Status check_kda_inputs(const Resolved& resolved) {
  LATHE_TRY(check_kda_widths("q", "v", resolved));
  LATHE_TRY(check_kda_extents(resolved.extents, resolved.has(kda::cu_seqlens)));
  return check_kda_transforms(resolved);
}

Status check_kda_recurrent(const Resolved& resolved) {
  LATHE_TRY(check_kda_inputs(resolved));
  return check_pool(resolved);
}

KdaRequest read_kda_inputs(const Resolved& resolved) {
  KdaRequest out = read_kda_transforms(resolved);
  out.initial_state = resolved.has(kda::initial_state);
  KdaProblem& asked = out.problem;
  asked.packed = resolved.has(kda::cu_seqlens);
  if (asked.packed) asked.cu_seqlens = resolved.dtype(kda::cu_seqlens);
  return out;
}

KdaRequest read_kda_transforms(const Resolved& resolved) {
  const auto& options = resolved.options_as<KdaInputOptions>();
  KdaRequest out;
  out.scale =
      options.scale ? *options.scale : static_cast<float>(1.0 / std::sqrt(resolved[Dim::K]));
  out.lower_bound = options.lower_bound.value_or(0);
  out.beta_factor = options.allow_neg_eigval ? 2.0f : 1.0f;
  KdaProblem& asked = out.problem;
  asked.element = resolved.dtype(kda::q);
  asked.gate = resolved.dtype(kda::g);
  asked.beta = resolved.dtype(kda::beta);
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
  KdaRequest out = read_kda_inputs(resolved);
  out.final_state = resolved.has(final_state);
  KdaProblem& asked = out.problem;
  asked.alignment = resolved.problem.alignment;
  if (resolved.has(state_pool)) {
    const Declared& indices = resolved.problem.tensors[state_indices];
    asked.index = indices.dtype;
    asked.pooled = resolved.dtype(state_pool);
    asked.states = indices.shape.rank == 2 ? kKdaStatesColumns : kKdaStatesPool;
    const auto& options = resolved.options_as<KdaRecurrentOptions>();
    out.update_state = options.update_state;
    out.append = options.append;
    out.null_slot = static_cast<int>(options.null_slot);
    if (resolved.has(ring_k)) {
      asked.states = kKdaStatesRings;
      asked.ring = resolved.dtype(ring_u);
    }
  }
  return out;
}

}  // namespace lathe
