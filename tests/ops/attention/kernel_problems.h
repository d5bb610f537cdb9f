// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes problems of flash attention by their widths, and the kernels that they get.
#pragma once

#include <doctest/doctest.h>

#include "ops/attention/backward/kernels.h"
#include "ops/attention/kernels.h"

namespace kernel_problems {

inline lathe::DeviceFacts facts(const char* arch) { return *lathe::facts_of_arch(arch); }

inline lathe::AttentionProblem forward_of(int head_dim, int value_dim) {
  lathe::AttentionProblem problem;
  problem.forward = true;
  problem.head_dim = head_dim;
  problem.value_dim = value_dim;
  return problem;
}
inline lathe::AttentionProblem backward_of(int head_dim, int value_dim) {
  lathe::AttentionProblem problem = forward_of(head_dim, value_dim);
  problem.forward = false, problem.backward = true;
  return problem;
}

inline lathe::KernelSpec spec_of(const lathe::AttentionProblem& problem,
                                 const char* arch = "sm_80") {
  return *lathe::attention_kernels(problem, facts(arch))->forward;
}
inline lathe::AttentionBackwardKernels kernels_of(const lathe::AttentionProblem& problem,
                                                  const char* arch = "sm_80",
                                                  lathe::AttentionHeadChoice heads = {true, true}) {
  return *lathe::attention_backward_kernels(problem, facts(arch), heads);
}

inline constexpr lathe::AttentionGradients kAll = {true, true, true, true};

}  // namespace kernel_problems
