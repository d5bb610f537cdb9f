// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a problem of flash_attention to integers and flags, with its refusals.
#include <cfloat>
#include <charconv>
#include <cmath>

#include "codegen/base/invalid.h"
#include "ops/attention/run.h"
#include "ops/attention/snippets.h"

namespace lathe {
namespace {

constexpr int64_t kWidthStep = 8, kMostWidth = 256;
constexpr int kRowAlignment = 16;  // kernels copy rows in 16-byte pieces

bool is_packed_shape(const Shape& shape) {
  return has_letter(shape, Letter::Tq) || has_letter(shape, Letter::Tk);
}
bool is_batched_shape(const Shape& shape) {
  return has_letter(shape, Letter::Sq) || has_letter(shape, Letter::Sk);
}

// With offsets every tensor with tokens is packed, and without none is.
Status check_form(const lathe_problem& problem) {
  const bool packed = problem.has(attention::cu_seqlens_q);
  for (int i = 0; i < attention::count; ++i) {
    const Declared& declared = problem.tensors[i];
    if (!declared.given || !(packed ? is_batched_shape : is_packed_shape)(declared.shape)) continue;
    const lathe_operator_tensor& tensor = problem.op->info.tensors[i];
    for (std::string_view each : split(tensor.shape, '|')) {
      const Shape allowed = parse_shape(each);
      if (allowed.rank == declared.shape.rank) continue;
      return invalid(text(tensor.name, " has rank ", declared.shape.rank, ", ",
                          shape_text(declared.shape), "; allowed is ", shape_text(allowed), ", ",
                          packed ? "with" : "without", " cu_seqlens_q and cu_seqlens_k"));
    }
  }
  return {};
}

// An option's value as float32, which must not make it 0 or infinite.
Status to_float(const lathe_problem& problem, const char* name, float* out) {
  const std::string value = problem.option(name);
  double number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  const lathe_operator_option& option = problem.op->info.options[find_option(*problem.op, name)];
  *out = number > FLT_MAX ? HUGE_VALF : static_cast<float>(number);
  if (number == 0 || (*out > 0 && *out <= FLT_MAX)) return {};
  return invalid(text("option ", name, " is '", value,
                      "', which float32 does not hold; allowed are ", option.allowed));
}

Status unsupported(std::string what) { return Status(Code::unsupported, std::move(what)); }

// A backward gives something, and what it reads of an earlier forward is for a backward.
Status check_backward(const lathe_problem& problem) {
  bool any = false;
  for (int tensor : {attention::dq, attention::dk, attention::dv, attention::dsinks}) {
    any = any || problem.has(tensor);
  }
  if (problem.has(attention::dout) && !any) {
    return invalid(
        "dout is declared, but no gradient is: declare at least one of dq, dk, dv, dsinks");
  }
  return {};
}

// What is legal and has no kernels.
Status check_covered(const lathe_problem& problem) {
  if (problem.alignment < kRowAlignment) {
    return unsupported(text("alignment is ", problem.alignment, "; flash_attention needs ",
                            kRowAlignment, " bytes (lathe_problem_alignment)"));
  }
  return {};
}

}  // namespace

Status check_without_ranks(const AttentionRequest& request) {
  for (const auto& [name, value] : {std::pair("sm_margin", request.sm_margin),
                                    std::pair("gather_heads", request.gather_heads)}) {
    if (value == 0) continue;
    return invalid(text("option ", name, " is ", value,
                        "; allowed is 0, but over a group of ranks (lathe_problem_group)"));
  }
  return {};
}

int64_t integer_option(const lathe_problem& problem, const char* name) {
  const std::string value = problem.option(name);
  int64_t number = kUnknown;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

Status check_head_width(const char* tensor, const char* letter, int64_t width) {
  if (width != kUnknown && width >= kWidthStep && width <= kMostWidth && width % kWidthStep == 0) {
    return {};
  }
  return invalid(
      text(tensor, " has ", letter, " = ", width,
           width == kUnknown ? "; it changes the code and must be given" : "; allowed are",
           width == kUnknown ? ", a multiple" : " multiples", " of ", kWidthStep, " up to ",
           kMostWidth));
}

Status check_attention(const lathe_problem& problem, const Extents& promised) {
  LATHE_TRY(check_form(problem));
  LATHE_TRY(check_head_width("q", "D", promised[Letter::D]));
  LATHE_TRY(check_head_width("v", "DV", promised[Letter::DV]));
  LATHE_TRY(check_backward(problem));
  return check_heads(promised[Letter::H], promised[Letter::HK]);
}

AttentionShape attention_shape(const Extents& extents, bool packed) {
  return {extents[packed ? Letter::N : Letter::B], extents[Letter::H], extents[Letter::HK],
          extents[packed ? Letter::Tq : Letter::Sq], extents[packed ? Letter::Tk : Letter::Sk]};
}

Status read_score_options(const lathe_problem& problem, int64_t head_dim, AttentionRequest* out) {
  out->window_left = integer_option(problem, "window_left");
  out->window_right = problem.option("causal") == "1" ? 0 : integer_option(problem, "window_right");
  LATHE_TRY(to_float(problem, "softcap", &out->softcap));
  if (problem.option("softmax_scale") != "D^-0.5") {
    return to_float(problem, "softmax_scale", &out->softmax_scale);
  }
  out->softmax_scale = static_cast<float>(1.0 / std::sqrt(head_dim));
  return {};
}

Result<AttentionRequest> attention_request(const lathe_problem& problem, const Extents& promised) {
  AttentionRequest out;
  LATHE_TRY(read_snippets(problem, &out));
  LATHE_TRY(check_covered(problem));
  out.sm_margin = integer_option(problem, "sm_margin");
  out.gather_heads = integer_option(problem, "gather_heads");
  if (problem.group == nullptr) LATHE_TRY(check_without_ranks(out));
  LATHE_TRY(read_score_options(problem, promised[Letter::D], &out));
  AttentionProblem& asked = out.problem;
  asked.element = problem.tensors[attention::q].dtype;
  asked.packed = problem.has(attention::cu_seqlens_q);
  if (asked.packed) asked.cu_seqlens = problem.tensors[attention::cu_seqlens_q].dtype;
  asked.head_dim = static_cast<int>(promised[Letter::D]);
  asked.value_dim = static_cast<int>(promised[Letter::DV]);
  asked.local = out.window_left >= 0 || out.window_right >= 0;
  asked.softcap = out.softcap > 0;
  asked.alibi = problem.has(attention::alibi_slopes);
  asked.sinks = problem.has(attention::sinks);
  asked.forward = problem.has(attention::out) && problem.writes(attention::out);
  out.gradients = {problem.has(attention::dq), problem.has(attention::dk),
                   problem.has(attention::dv), problem.has(attention::dsinks)};
  asked.backward = out.gradients.dq || out.gradients.dk || out.gradients.dv;
  asked.dsinks = out.gradients.dsinks;
  asked.dlse = problem.has(attention::dlse);
  asked.deterministic = problem.option("deterministic") == "1";
  out.alibi_rows = problem.tensors[attention::alibi_slopes].shape.rank == 2;
  out.promised = attention_shape(promised, asked.packed);
  const int64_t heads = out.promised.heads, kv_heads = out.promised.kv_heads;
  if (heads != kUnknown && kv_heads > 0) out.ratio = heads / kv_heads;
  return out;
}

}  // namespace lathe
