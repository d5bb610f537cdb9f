// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a problem of the convolutions to integers and flags, with its refusals.
#include "codegen/base/invalid.h"
#include "ops/check.h"
#include "ops/conv/run.h"

namespace lathe {
namespace {

constexpr int64_t kMinWidth = 2, kMaxWidth = 8;

}  // namespace

Status check_conv(const lathe_problem&, const Extents& extents) {
  const int64_t width = extents[Letter::W];
  if (width == kUnknown) {
    return invalid("weight has W = -1; it changes the code and must be given, 2 to 8");
  }
  if (width < kMinWidth || width > kMaxWidth) {
    return invalid(text("weight has W = ", width, "; allowed are ", kMinWidth, " to ", kMaxWidth));
  }
  return {};
}

Result<ConvProblem> conv_problem(const lathe_problem& problem, const Extents& promised, int world) {
  ConvProblem asked;
  asked.x = problem.tensors[conv::x].dtype;
  asked.weight = problem.tensors[conv::weight].dtype;
  asked.width = static_cast<int>(promised[Letter::W]);
  asked.vector_bytes = vector_bytes(asked.x, problem.alignment, promised[Letter::D]);
  asked.silu = problem.option("activation") == "silu";
  asked.bias = problem.has(conv::bias);
  asked.residual = problem.has(conv::residual);
  if (find_tensor(*problem.op, "state") >= 0) {
    asked.update = true;
    return asked;
  }
  asked.initial_state = problem.has(conv::initial_state);
  asked.packed = problem.has(conv::cu_seqlens);
  if (asked.packed) asked.cu_seqlens = problem.tensors[conv::cu_seqlens].dtype;
  asked.halo = world > 1;
  asked.forward = problem.has(conv::y);
  asked.final_state = problem.has(conv::final_state);
  asked.backward = problem.has(conv::dx);
  asked.weight_grad = problem.has(conv::dweight);
  asked.dfinal_state = problem.has(conv::dfinal_state);
  asked.dinitial_state = problem.has(conv::dinitial_state);
  const auto& wanted = problem.options[find_option(*problem.op, "output_final_state")];
  if (wanted && (*wanted == "1") != asked.final_state) {
    return invalid(text("option output_final_state is ", *wanted, ", but final_state is ",
                        asked.final_state ? "" : "not ", "declared"));
  }
  return asked;
}

}  // namespace lathe
