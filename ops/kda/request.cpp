// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a problem of the KDA operators to integers and flags, with its refusals: what they share,
// and kda_recurrent's own.
#include "ops/kda/request.h"

#include <cfloat>
#include <charconv>
#include <cmath>

#include "codegen/base/invalid.h"
#include "templates/params/kda.h"

namespace lathe {
namespace {

constexpr int64_t kWidthStep = 4, kLeastWidth = 8, kMostWidth = 256;
constexpr int kRowAlignment = 16;  // kernels read states and float32 rows in 16-byte pieces

int index_of(const lathe_problem& problem, const char* tensor) {
  return find_tensor(*problem.op, tensor);
}
bool has(const lathe_problem& problem, const char* tensor) {
  return problem.has(index_of(problem, tensor));
}
bool is_set(const lathe_problem& problem, const char* option) {
  return problem.option(option) == "1";
}
bool has_lower_bound(const lathe_problem& problem) {
  return problem.option("lower_bound") != "unset";
}

Status check_width(const char* tensor, const char* letter, int64_t width) {
  if (width != kUnknown && width >= kLeastWidth && width <= kMostWidth && width % kWidthStep == 0) {
    return {};
  }
  const bool open = width == kUnknown;
  return invalid(text(tensor, " has ", letter, " = ", width,
                      open ? "; it changes the code and must be given, a multiple of "
                           : "; allowed are multiples of ",
                      kWidthStep, " from ", kLeastWidth, " to ", kMostWidth));
}

// Options that mean nothing without another, or without a tensor.
Status check_transforms(const lathe_problem& problem) {
  const bool gate = is_set(problem, "use_gate_in_kernel");
  for (const char* tensor : {"A_log", "dt_bias"}) {
    if (gate || !has(problem, tensor)) continue;
    return invalid(text(tensor, " is declared and use_gate_in_kernel is 0; allowed is 1, or no ",
                        tensor, ", where g is the decay itself"));
  }
  if (gate && !has_lower_bound(problem)) {
    if (is_set(problem, "safe_gate")) {
      return invalid(
          "option safe_gate is 1 with use_gate_in_kernel and lower_bound is unset; it needs a gate "
          "that is bounded: allowed are lower_bound from -5 to below 0");
    }
    if (!has(problem, "A_log")) {
      return invalid(
          "A_log is not declared, but use_gate_in_kernel requires it, or option lower_bound");
    }
  }
  if (is_set(problem, "allow_neg_eigval") && !is_set(problem, "use_beta_sigmoid_in_kernel")) {
    return invalid("option allow_neg_eigval is 1 and use_beta_sigmoid_in_kernel is 0; it needs 1");
  }
  return {};
}

// A pool takes the place of initial_state and final_state.
Status check_pool(const lathe_problem& problem) {
  if (!has(problem, "state_pool")) return {};
  for (const char* tensor : {"initial_state", "final_state"}) {
    if (!has(problem, tensor)) continue;
    return invalid(text(tensor, " is declared with state_pool; allowed is one of them, the pool's ",
                        "states being read and written in place"));
  }
  if (problem.has(kda_recurrent::num_accepted_tokens) &&
      problem.tensors[kda_recurrent::state_indices].shape.rank != 2) {
    return invalid(
        "num_accepted_tokens is declared and state_indices has rank 1, [N]; allowed is [N,spec]");
  }
  return {};
}

// An option's value as float32, which must not round it out of its range.
Status to_float(const lathe_problem& problem, const char* name, float* out) {
  const std::string value = problem.option(name);
  double number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  const lathe_operator_option& option = problem.op->info.options[find_option(*problem.op, name)];
  *out = std::abs(number) > FLT_MAX ? HUGE_VALF : static_cast<float>(number);
  if (*out != 0 && std::abs(*out) <= FLT_MAX) return {};
  return invalid(text("option ", name, " is '", value,
                      "', which float32 does not hold; allowed are ", option.allowed));
}

}  // namespace

Status check_kda_extents(const Extents& extents, bool packed) {
  const int64_t heads = extents[Letter::H], value_heads = extents[Letter::HV];
  if (heads != kUnknown && value_heads != kUnknown &&
      (heads == 0 ? value_heads != 0 : value_heads % heads != 0)) {
    return invalid(text("v has HV = ", value_heads, " and q has H = ", heads,
                        "; allowed are HV that are a multiple of H"));
  }
  const int64_t bias = extents[Letter::HVK], keys = extents[Letter::K];
  if (bias != kUnknown && value_heads != kUnknown && keys != kUnknown &&
      bias != value_heads * keys) {
    return invalid(text("dt_bias has extent ", bias, "; allowed is HV * K = ", value_heads, " * ",
                        keys, " = ", value_heads * keys));
  }
  const int64_t tokens = extents[Letter::T], columns = extents[Letter::spec];
  if (!packed && tokens != kUnknown && columns != kUnknown && tokens > columns) {
    return invalid(text("q has T = ", tokens, " and state_indices has spec = ", columns,
                        "; allowed are T up to spec, a column for each token"));
  }
  return {};
}

Status check_kda_output(const lathe_problem& problem, const char* option, const char* tensor) {
  const bool wanted = has(problem, tensor);
  const auto& value = problem.options[find_option(*problem.op, option)];
  if (!value || (*value == "1") == wanted) return {};
  return invalid(text("option ", option, " is ", *value, ", but ", tensor, " is ",
                      wanted ? "" : "not ", "declared"));
}

Status check_kda_inputs(const lathe_problem& problem, const Extents& promised) {
  LATHE_TRY(check_width("q", "K", promised[Letter::K]));
  LATHE_TRY(check_width("v", "V", promised[Letter::V]));
  LATHE_TRY(check_kda_extents(promised, has(problem, "cu_seqlens")));
  LATHE_TRY(check_transforms(problem));
  return check_kda_output(problem, "output_final_state", "final_state");
}

Status check_kda_recurrent(const lathe_problem& problem, const Extents& promised) {
  LATHE_TRY(check_kda_inputs(problem, promised));
  return check_pool(problem);
}

Status read_kda_inputs(const lathe_problem& problem, const Extents& promised, KdaRequest* out) {
  if (problem.option("scale") == "K^-0.5") {
    out->scale = static_cast<float>(1.0 / std::sqrt(promised[Letter::K]));
  } else {
    LATHE_TRY(to_float(problem, "scale", &out->scale));
  }
  if (has_lower_bound(problem)) {
    LATHE_TRY(to_float(problem, "lower_bound", &out->lower_bound));
  }
  out->beta_factor = is_set(problem, "allow_neg_eigval") ? 2.0f : 1.0f;
  out->initial_state = has(problem, "initial_state");
  out->final_state = has(problem, "final_state");
  const auto dtype = [&](const char* tensor) {
    return problem.tensors[index_of(problem, tensor)].dtype;
  };
  KdaProblem& asked = out->problem;
  asked.element = dtype("q");
  asked.gate = dtype("g");
  asked.beta = dtype("beta");
  asked.packed = has(problem, "cu_seqlens");
  if (asked.packed) asked.cu_seqlens = dtype("cu_seqlens");
  asked.key_dim = static_cast<int>(promised[Letter::K]);
  asked.value_dim = static_cast<int>(promised[Letter::V]);
  asked.l2norm = is_set(problem, "use_qk_l2norm_in_kernel");
  if (is_set(problem, "use_gate_in_kernel")) {
    asked.gate_kind = has_lower_bound(problem) ? kKdaGateBounded : kKdaGateSoftplus;
  }
  asked.A_log = has(problem, "A_log");
  asked.dt_bias = has(problem, "dt_bias");
  asked.sigmoid = is_set(problem, "use_beta_sigmoid_in_kernel");
  asked.state_v_first = is_set(problem, "state_v_first");
  return {};
}

Result<KdaRequest> kda_recurrent_request(const lathe_problem& problem, const Extents& promised) {
  if (problem.alignment < kRowAlignment) {
    return Status(Code::unsupported,
                  text("alignment is ", problem.alignment, "; ", problem.op->info.name, " needs ",
                       kRowAlignment, " bytes (lathe_problem_alignment)"));
  }
  namespace of = kda_recurrent;
  KdaRequest out;
  LATHE_TRY(read_kda_inputs(problem, promised, &out));
  KdaProblem& asked = out.problem;
  asked.recurrent = true;
  if (problem.has(of::state_pool)) {
    const Declared& indices = problem.tensors[of::state_indices];
    asked.index = indices.dtype;
    asked.states = indices.shape.rank == 2 ? kKdaStatesColumns : kKdaStatesPool;
  }
  return out;
}

}  // namespace lathe
