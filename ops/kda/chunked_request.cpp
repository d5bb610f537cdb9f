// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Converts a problem of kda to integers and flags, and refuses unsupported ones: its own checks.
#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "ops/kda/request.h"

namespace lathe {
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

// A pool takes the place of initial_state and final_state, on one rank and without gradients.
Status check_chunked_pool(const Resolved& resolved) {
  using namespace kda;
  const auto& options = resolved.options_as<KdaOptions>();
  if (!resolved.has(state_pool)) {
    if (options.null_slot == -1) return {};
    return invalid(text("option null_slot is ", options.null_slot,
                        " and state_pool is not declared; it says how a pool is used: allowed is "
                        "-1"));
  }
  for (const int tensor : {initial_state, final_state, d_o, saved_values}) {
    if (!resolved.has(tensor)) continue;
    return invalid(text(kTensors[tensor].name,
                        " is declared with state_pool; allowed is one of them: the pool's states "
                        "are read and written in place, and have no gradient"));
  }
  if (options.warmup_segments > 0) {
    return invalid(text("option warmup_segments is ", options.warmup_segments,
                        " and state_pool is declared; allowed with it is 0: segments would read a "
                        "slot that another one writes"));
  }
  if (resolved.problem.group == nullptr) return {};
  return invalid(
      "state_pool is declared and the problem has a group; allowed with a group are initial_state "
      "and final_state");
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
  LATHE_TRY(check_chunked_pool(resolved));
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
  asked.forward = resolved.has(kda::o);
  if (resolved.has(kda::state_pool)) {
    asked.pool = out.initial_state = out.final_state = true;
    asked.pooled = resolved.dtype(kda::state_pool);
    asked.index = resolved.dtype(kda::state_indices);
    asked.checkpoints = resolved.has(kda::cu_checkpoints);
    out.null_slot = static_cast<int>(options.null_slot);
  }
  asked.initial_state = out.initial_state;
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
  asked.fixed_segments = static_cast<int>(options.segments);
  const int64_t heads = resolved[Dim::H], value_heads = resolved[Dim::HV];
  asked.grouped = heads == kUnknown || value_heads == kUnknown || heads != value_heads;
  return out;
}

}  // namespace lathe
