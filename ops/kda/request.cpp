// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Converts a problem of the KDA operators to integers and flags, and refuses unsupported ones: the
// shared checks, and kda_recurrent's own.
#include "ops/kda/request.h"

#include <cmath>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "templates/params/kda.h"
#include "templates/params/kda_chunked.h"

namespace lathe {
namespace {

constexpr int64_t kWidthStep = 4, kLeastWidth = 8, kMostWidth = 256;

// Refuses options that mean nothing without another, or without a tensor.
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
  KdaRequest out = read_kda_inputs(resolved);
  out.final_state = resolved.has(final_state);
  KdaProblem& asked = out.problem;
  asked.alignment = resolved.problem.alignment;
  if (resolved.has(state_pool)) {
    const Declared& indices = resolved.problem.tensors[state_indices];
    asked.index = indices.dtype;
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

// The functions below are those of `kda` alone.
namespace {

// Returns whether any gradient needs more than the walk back, which alone gives that of the initial
// state.
bool has_gradients(const Resolved& resolved) {
  for (const int tensor :
       {kda::dq, kda::dk, kda::dv, kda::dg, kda::dbeta, kda::dA_log, kda::ddt_bias}) {
    if (resolved.has(tensor)) return true;
  }
  return false;
}

Status check_backward(const Resolved& resolved) {
  if (!resolved.has(kda::d_o)) return {};
  if (!has_gradients(resolved) && !resolved.has(kda::dinitial_state)) {
    return invalid(
        "do is declared, but no gradient is: declare at least one of dq, dk, dv, dg, dbeta, "
        "dA_log, ddt_bias, dinitial_state");
  }
  if (resolved[Dim::HV] == 0 && resolved[Dim::H] != 0) {
    return invalid(text("v has HV = 0 and q has H = ", resolved[Dim::H],
                        "; allowed with a backward are HV that are a multiple of H from H on"));
  }
  return {};
}

// The forward leaves something for the backward only if it is asked to, and must where the backward
// cannot do without.
Status check_saved(const Resolved& resolved) {
  const bool declared = resolved.has(kda::saved_values);
  if (!resolved.options_as<KdaOptions>().disable_recompute) {
    if (!declared) return {};
    return invalid(
        "saved_values and saved_states are declared and option disable_recompute is 0; allowed is "
        "1, or neither of them");
  }
  if (declared || resolved.has(kda::o) || !has_gradients(resolved)) return {};
  return invalid(
      "saved_values is not declared, but option disable_recompute is 1 and so is no o: allowed are "
      "saved_values and saved_states of the call that gave o, or disable_recompute 0");
}

Status check_segments(const Resolved& resolved) {
  const auto& options = resolved.options_as<KdaOptions>();
  const int64_t segments = options.segments, warmup = options.warmup_segments;
  if (warmup == 0) return {};
  const std::string found = text("option warmup_segments is ", warmup, " and ");
  if (segments > 0) {
    return invalid(text(found, "segments is ", segments, "; allowed is one of them"));
  }
  if (resolved.has(kda::d_o)) {
    return invalid(
        text(found, "do is declared; allowed with a backward is 0: the variant is for inference"));
  }
  if (resolved.has(kda::saved_values)) {
    return invalid(text(found,
                        "saved_values is declared; allowed with it is 0: a backward would need "
                        "what the bound drops"));
  }
  if (options.use_qk_l2norm_in_kernel) return {};
  return invalid(text(found,
                      "use_qk_l2norm_in_kernel is 0; it needs 1: the bound of its error holds for "
                      "keys up to norm 1"));
}

int vector_bytes(const KdaProblem& problem, int alignment) {
  const auto fits = [](int width, Dtype dtype) { return width * bytes_of(dtype) % 16 == 0; };
  return alignment >= 16 && fits(problem.key_dim, problem.element) &&
                 fits(problem.key_dim, problem.gate) && fits(problem.value_dim, problem.element)
             ? 16
             : 8;
}

}  // namespace

Status check_kda_chunks(const Extents& extents, bool packed, int chunk_size) {
  const int64_t tokens = extents[Dim::T], chunks = extents[Dim::NT];
  if (tokens == kUnknown) return {};
  const int64_t most = ceil_div(tokens, chunk_size);
  if (!packed && chunks != kUnknown && chunks != most) {
    return invalid(text("chunk_states has NT = ", chunks, "; allowed is ceil(T / chunk_size) = ",
                        most, " for T = ", tokens, " and chunk_size ", chunk_size));
  }
  const int64_t slots = extents[Dim::slots], sequences = extents[Dim::N];
  if (slots == kUnknown || sequences == kUnknown) return {};
  const int64_t needed = kda_slots(packed, sequences, tokens);
  if (slots == needed) return {};
  return invalid(text("saved_states has ", slots, " slots; allowed is ",
                      packed ? "T / 64 + N = " : "B * ceil(T / 64) = ", needed,
                      " for T = ", tokens));
}

Status check_kda(const Resolved& resolved) {
  LATHE_TRY(check_kda_inputs(resolved));
  LATHE_TRY(check_backward(resolved));
  LATHE_TRY(check_saved(resolved));
  LATHE_TRY(check_segments(resolved));
  return check_kda_chunks(resolved.extents, resolved.has(kda::cu_seqlens),
                          static_cast<int>(resolved.options_as<KdaOptions>().chunk_size));
}

Result<KdaRequest> kda_request(const Resolved& resolved) {
  const auto& options = resolved.options_as<KdaOptions>();
  KdaRequest out = read_kda_inputs(resolved);
  out.final_state = resolved.has(kda::final_state);
  out.chunk_size = static_cast<int>(options.chunk_size);
  out.segments =
      static_cast<int>(options.warmup_segments > 0 ? options.warmup_segments : options.segments);
  out.saved_outside = resolved.has(kda::saved_values);
  out.declared = {resolved[Dim::N], resolved[Dim::H], resolved[Dim::HV], resolved[Dim::T]};
  KdaProblem& asked = out.problem;
  asked.vector_bytes = vector_bytes(asked, resolved.problem.alignment);
  asked.initial_state = out.initial_state;
  asked.forward = resolved.has(kda::o);
  asked.final_state = out.final_state;
  asked.chunk_states = resolved.has(kda::chunk_states);
  asked.backward = has_gradients(resolved);
  // A call that does both walks forward once, wherever what it leaves then lies.
  asked.saves = asked.forward && (asked.backward || out.saved_outside);
  asked.given_saved = asked.backward && !asked.forward && out.saved_outside;
  asked.dht = resolved.has(kda::dht);
  asked.dinitial_state = resolved.has(kda::dinitial_state);
  asked.dA_log = resolved.has(kda::dA_log);
  asked.ddt_bias = resolved.has(kda::ddt_bias);
  asked.warmup = options.warmup_segments > 1;
  asked.segmented = !asked.warmup && out.segments != 1;
  const int64_t heads = resolved[Dim::H], value_heads = resolved[Dim::HV];
  asked.grouped = heads == kUnknown || value_heads == kUnknown || heads != value_heads;
  return out;
}

}  // namespace lathe
