// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Converts a problem of flash_attention to integers and flags, and refuses unsupported ones.
#include "ops/attention/request.h"

#include <cmath>

#include "codegen/base/invalid.h"
#include "codegen/mods.h"

namespace lathe {
namespace {

constexpr int64_t kWidthStep = 8, kMostWidth = 256;

// A backward gives at least one gradient.
Status check_backward(const Resolved& resolved) {
  using namespace attention;
  if (!resolved.has(dout)) return {};
  for (const int tensor : {dq, dk, dv, dsinks}) {
    if (resolved.has(tensor)) return {};
  }
  return invalid(
      "dout is declared, but no gradient is: declare at least one of dq, dk, dv, dsinks");
}

// Reads the mods' texts, scalars and types of captured arrays into the request. Returns
// INVALID_ARGUMENT for captures that no mod reads, and for gradients through a score_mod that has
// none.
Status read_mods(const Resolved& resolved, int capture_0, AttentionRequest* request) {
  const lathe_problem& problem = resolved.problem;
  const auto& options = resolved.options_as<ScoreOptions>();
  AttentionProblem& asked = request->problem;
  request->scalars = {options.scalar_0, options.scalar_1, options.scalar_2, options.scalar_3};
  for (const char* name : {"score_mod", "mask_mod"}) {  // in this order, however they were set
    for (const Mod& mod : problem.mods) {
      if (mod.name == name) asked.mods.push_back(mod);
    }
  }
  for (size_t i = 0; i < request->captured.size(); ++i) {
    const int tensor = capture_0 + static_cast<int>(i);
    if (!problem.has(tensor)) continue;
    request->captured[i] = tensor;
    asked.captures[i] = resolved.dtype(tensor);
    if (asked.mods.empty()) {
      return invalid(text(problem.op->tensors[tensor].name,
                          " is declared, but nothing reads it: neither score_mod nor mask_mod is "
                          "given"));
    }
  }
  const Mod* score_mod = asked.mod("score_mod");
  const int dout = find_tensor(*problem.op, "dout");
  if (dout >= 0 && problem.has(dout) && score_mod != nullptr &&
      !mod_mentions(score_mod->text, "score_mod_bwd")) {
    return invalid(text("dout is declared and option score_mod is ", score_mod->file,
                        ", which has no gradient; it must define __device__ float score_mod_bwd("
                        "float dscore, float score, int batch, int head, int q_idx, int kv_idx)"));
  }
  return {};
}

}  // namespace

Status check_without_ranks(const AttentionRequest& request) {
  for (const auto& [name, value] : {std::pair("sm_margin", request.sm_margin),
                                    std::pair("gather_heads", request.options.gather_heads)}) {
    if (value == 0) continue;
    return invalid(text("option ", name, " is ", value,
                        "; allowed is 0, but over a group of ranks (lathe_problem_group)"));
  }
  return {};
}

Status check_head_width(const char* tensor, const char* dim, int64_t width) {
  return check_width(tensor, dim, width, kWidthStep, kWidthStep, kMostWidth);
}

Status check_scale(const char* tensor, int64_t found, const char* dim, int64_t heads) {
  if (found == kUnknown || found == 1 || found == heads) return {};
  return invalid(text(tensor, " has ", found, " entries; allowed are 1 and ", dim, " = ", heads));
}

namespace {

// Codes of e4m3 have scales, and a forward alone on one rank; out has q's dtype or out_dtype.
Status check_codes(const Resolved& resolved) {
  using namespace attention;
  const bool codes = resolved.dtype(q) == Dtype::f8_e4m3;
  using Choice = AttentionOptions::OutDtype;
  const Choice wanted = resolved.options_as<AttentionOptions>().out_dtype;
  if (resolved.has(q_scale) != codes) {
    return invalid(text("q_scale is ", codes ? "not " : "", "declared and q has dtype ",
                        word(resolved.dtype(q)), "; ",
                        codes ? "f8_e4m3 needs it" : "it belongs to f8_e4m3"));
  }
  if (!codes && wanted != Choice::none) {
    return invalid(text("option out_dtype is set and q has dtype ", word(resolved.dtype(q)),
                        "; allowed without f8_e4m3 is none: out has q's dtype"));
  }
  const Dtype expected = !codes                  ? resolved.dtype(q)
                         : wanted == Choice::f16 ? Dtype::f16
                         : wanted == Choice::f32 ? Dtype::f32
                                                 : Dtype::bf16;
  if (resolved.has(out) && resolved.dtype(out) != expected) {
    return invalid(text("out has dtype ", word(resolved.dtype(out)), "; allowed is ",
                        word(expected), codes ? ", that of out_dtype" : ", that of q"));
  }
  if (!codes) return {};
  if (resolved.has(dout)) {
    return invalid("dout is declared and q has dtype f8_e4m3; allowed is a forward alone");
  }
  if (resolved.problem.group != nullptr) {
    return unsupported("the problem has a group and q has dtype f8_e4m3; allowed is one rank");
  }
  for (const Dim width : {Dim::D, Dim::DV}) {
    if (resolved[width] % 16 == 0) continue;
    return invalid(text("q has dtype f8_e4m3 and ", name_of(width), " = ", resolved[width],
                        "; allowed are multiples of 16"));
  }
  return {};
}

}  // namespace

Status check_attention(const Resolved& resolved) {
  const bool packed = resolved.has(attention::cu_seqlens_q);
  LATHE_TRY(check_form(resolved.problem, packed,
                       text(packed ? "with" : "without", " cu_seqlens_q and cu_seqlens_k")));
  LATHE_TRY(check_head_width("q", "D", resolved[Dim::D]));
  LATHE_TRY(check_head_width("v", "DV", resolved[Dim::DV]));
  LATHE_TRY(check_backward(resolved));
  LATHE_TRY(check_codes(resolved));
  return check_heads(resolved[Dim::H], resolved[Dim::HK]);
}

AttentionShape attention_shape(const Extents& extents, bool packed) {
  return {extents[packed ? Dim::N : Dim::B], extents[Dim::H], extents[Dim::HK],
          extents[packed ? Dim::Tq : Dim::Sq], extents[packed ? Dim::Tk : Dim::Sk]};
}

Result<AttentionRequest> score_request(const Resolved& resolved, int element, int capture_0,
                                       int alibi_slopes) {
  AttentionRequest out;
  LATHE_TRY(read_mods(resolved, capture_0, &out));
  const auto& options = resolved.options_as<ScoreOptions>();
  const int64_t head_dim = resolved[Dim::D];
  out.softmax_scale = options.softmax_scale ? *options.softmax_scale
                                            : static_cast<float>(1.0 / std::sqrt(head_dim));
  out.softcap = options.softcap;
  out.window_left = options.window_left;
  out.window_right = options.causal ? 0 : options.window_right;
  AttentionProblem& asked = out.problem;
  asked.element = resolved.dtype(element);
  asked.head_dim = static_cast<int>(head_dim);
  asked.value_dim = static_cast<int>(resolved[Dim::DV]);
  asked.alignment = row_alignment(resolved);
  asked.local = out.window_left >= 0 || out.window_right >= 0;
  asked.softcap = out.softcap > 0;
  asked.alibi = resolved.has(alibi_slopes);
  out.alibi_rows = asked.alibi && resolved.problem.tensors[alibi_slopes].shape.rank == 2;
  const int64_t heads = resolved[Dim::H], kv_heads = resolved[Dim::HK];
  if (heads != kUnknown && kv_heads > 0) out.ratio = heads / kv_heads;
  return out;
}

Result<AttentionRequest> attention_request(const Resolved& resolved) {
  using namespace attention;
  LATHE_ASSIGN(AttentionRequest asked, score_request(resolved, q, capture_0, alibi_slopes));
  asked.options = resolved.options_as<AttentionOptions>();
  asked.sm_margin = asked.options.sm_margin;
  if (resolved.problem.group == nullptr) LATHE_TRY(check_without_ranks(asked));
  AttentionProblem& problem = asked.problem;
  problem.packed = resolved.has(cu_seqlens_q);
  if (problem.packed) problem.cu_seqlens = resolved.dtype(cu_seqlens_q);
  problem.sinks = resolved.has(sinks);
  problem.forward = resolved.has(out) && resolved.problem.writes(out);
  asked.gradients = {resolved.has(dq), resolved.has(dk), resolved.has(dv), resolved.has(dsinks)};
  problem.backward = asked.gradients.dq || asked.gradients.dk || asked.gradients.dv;
  problem.dsinks = asked.gradients.dsinks;
  problem.dlse = resolved.has(dlse);
  problem.deterministic = asked.options.deterministic;
  // Codes are computed in out's dtype.
  if (problem.element == Dtype::f8_e4m3) problem.element = resolved.dtype(out);
  asked.declared = attention_shape(resolved.extents, problem.packed);
  return asked;
}

}  // namespace lathe
