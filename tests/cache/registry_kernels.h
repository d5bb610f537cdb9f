// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds small kernels for the registry's tests, and says whether anything can compile
// them here.
#pragma once

#include <doctest/doctest.h>

#include "codegen/nvrtc.h"
#include "ops/conv/kernels.h"

namespace lathe::test {

inline constexpr const char* kArch = "sm_90a";

inline KernelSpec conv_spec(int width = 4) {
  ConvProblem problem;
  problem.width = width;
  problem.forward = true;
  return *conv_kernels(problem, *facts_of_arch(kArch), false)->forward;
}

inline bool no_compiler() {
  const auto compiler = Compiler::open();
  if (compiler.ok()) return false;
  MESSAGE("skipped: " << compiler.status().text());
  return true;
}

}  // namespace lathe::test
