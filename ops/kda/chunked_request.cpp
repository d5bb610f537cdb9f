// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a problem of `kda` to integers and flags, with its refusals.
#include <charconv>

#include "codegen/base/invalid.h"
#include "ops/kda/request.h"
#include "templates/params/kda_chunked.h"

namespace lathe {
namespace {

constexpr int kLeastAlignment = 8;  // kernels read rows in pieces of 8 or 16 bytes

bool is_set(const lathe_problem& problem, const char* option) {
  return problem.option(option) == "1";
}

int number(const lathe_problem& problem, const char* option) {
  const std::string value = problem.option(option);
  int out = 0;
  std::from_chars(value.data(), value.data() + value.size(), out);
  return out;
}

// Any gradient that takes more than the walk back, which alone gives that of the initial state.
bool has_gradients(const lathe_problem& problem) {
  for (const int tensor :
       {kda::dq, kda::dk, kda::dv, kda::dg, kda::dbeta, kda::dA_log, kda::ddt_bias}) {
    if (problem.has(tensor)) return true;
  }
  return false;
}

Status check_backward(const lathe_problem& problem, const Extents& promised) {
  if (!problem.has(kda::d_o)) return {};
  if (!has_gradients(problem) && !problem.has(kda::dinitial_state)) {
    return invalid(
        "do is declared, but no gradient is: declare at least one of dq, dk, dv, dg, dbeta, "
        "dA_log, ddt_bias, dinitial_state");
  }
  if (promised[Letter::HV] == 0 && promised[Letter::H] != 0) {
    return invalid(text("v has HV = 0 and q has H = ", promised[Letter::H],
                        "; allowed with a backward are HV that are a multiple of H from H on"));
  }
  return {};
}

// What the forward leaves for the backward: there only if it is asked for, and there if the
// backward cannot do without.
Status check_saved(const lathe_problem& problem) {
  const bool declared = problem.has(kda::saved_values);
  if (!is_set(problem, "disable_recompute")) {
    if (!declared) return {};
    return invalid(
        "saved_values and saved_states are declared and option disable_recompute is 0; allowed is "
        "1, or neither of them");
  }
  if (declared || problem.has(kda::o) || !has_gradients(problem)) return {};
  return invalid(
      "saved_values is not declared, but option disable_recompute is 1 and so is no o: allowed are "
      "saved_values and saved_states of the call that gave o, or disable_recompute 0");
}

Status check_segments(const lathe_problem& problem) {
  const int segments = number(problem, "segments"), warmup = number(problem, "warmup_segments");
  if (warmup == 0) return {};
  if (segments > 0) {
    return invalid(text("option warmup_segments is ", warmup, " and segments is ", segments,
                        "; allowed is one of them"));
  }
  if (problem.has(kda::d_o)) {
    return invalid(text("option warmup_segments is ", warmup,
                        " and do is declared; allowed with a backward is 0: the variant is for "
                        "inference"));
  }
  if (problem.has(kda::saved_values)) {
    return invalid(text("option warmup_segments is ", warmup,
                        " and saved_values is declared; allowed with it is 0: a backward would "
                        "need what the bound drops"));
  }
  if (is_set(problem, "use_qk_l2norm_in_kernel")) return {};
  return invalid(text("option warmup_segments is ", warmup,
                      " and use_qk_l2norm_in_kernel is 0; it needs 1: the bound of its error holds "
                      "for keys up to norm 1"));
}

int vector_bytes(const KdaProblem& problem, int alignment) {
  const auto fits = [](int width, Dtype dtype) { return width * bytes_of(dtype) % 16 == 0; };
  return alignment >= 16 && fits(problem.key_dim, problem.element) &&
                 fits(problem.key_dim, problem.gate) && fits(problem.value_dim, problem.element)
             ? 16
             : 8;
}

// Legal, and without kernels.
Status check_covered(const lathe_problem& problem) {
  if (problem.alignment < kLeastAlignment) {
    return Status(Code::unsupported, text("alignment is ", problem.alignment, "; kda needs ",
                                          kLeastAlignment, " bytes (lathe_problem_alignment)"));
  }
  return {};
}

}  // namespace

Status check_kda_chunks(const Extents& extents, bool packed, int chunk_size) {
  const int64_t tokens = extents[Letter::T], chunks = extents[Letter::NT];
  if (tokens == kUnknown) return {};
  const auto ceil_div = [](int64_t a, int64_t b) { return a / b + (a % b != 0); };
  if (!packed && chunks != kUnknown && chunks != ceil_div(tokens, chunk_size)) {
    return invalid(text("chunk_states has NT = ", chunks,
                        "; allowed is ceil(T / chunk_size) = ", ceil_div(tokens, chunk_size),
                        " for T = ", tokens, " and chunk_size ", chunk_size));
  }
  const int64_t slots = extents[Letter::slots], sequences = extents[Letter::N];
  if (slots == kUnknown || sequences == kUnknown) return {};
  const int64_t needed =
      packed ? tokens / kKdaChunk + sequences : sequences * ceil_div(tokens, kKdaChunk);
  if (slots == needed) return {};
  return invalid(text("saved_states has ", slots, " slots; allowed is ",
                      packed ? "T / 64 + N = " : "B * ceil(T / 64) = ", needed,
                      " for T = ", tokens));
}

Status check_kda(const lathe_problem& problem, const Extents& promised) {
  LATHE_TRY(check_kda_inputs(problem, promised));
  LATHE_TRY(check_kda_output(problem, "output_chunk_states", "chunk_states"));
  LATHE_TRY(check_backward(problem, promised));
  LATHE_TRY(check_saved(problem));
  LATHE_TRY(check_segments(problem));
  return check_kda_chunks(promised, problem.has(kda::cu_seqlens), number(problem, "chunk_size"));
}

Result<KdaRequest> kda_request(const lathe_problem& problem, const Extents& promised) {
  LATHE_TRY(check_covered(problem));
  KdaRequest out;
  LATHE_TRY(read_kda_inputs(problem, promised, &out));
  out.chunk_size = number(problem, "chunk_size");
  const int warmup = number(problem, "warmup_segments");
  out.segments = warmup > 0 ? warmup : number(problem, "segments");
  out.saved_outside = problem.has(kda::saved_values);
  out.promised = {promised[Letter::N], promised[Letter::H], promised[Letter::HV],
                  promised[Letter::T]};
  KdaProblem& asked = out.problem;
  asked.vector_bytes = vector_bytes(asked, problem.alignment);
  asked.initial_state = out.initial_state;
  asked.forward = problem.has(kda::o);
  asked.final_state = out.final_state;
  asked.chunk_states = problem.has(kda::chunk_states);
  asked.backward = has_gradients(problem);
  // A call that does both walks forward once, wherever what it leaves then lies.
  asked.saves = asked.forward && (asked.backward || out.saved_outside);
  asked.given_saved = asked.backward && !asked.forward && out.saved_outside;
  asked.dht = problem.has(kda::dht);
  asked.dinitial_state = problem.has(kda::dinitial_state);
  asked.dA_log = problem.has(kda::dA_log);
  asked.ddt_bias = problem.has(kda::ddt_bias);
  const int64_t heads = promised[Letter::H], value_heads = promised[Letter::HV];
  asked.warmup = warmup > 1;
  asked.segmented = !asked.warmup && out.segments != 1;
  asked.grouped = heads == kUnknown || value_heads == kUnknown || heads != value_heads;
  return out;
}

}  // namespace lathe
