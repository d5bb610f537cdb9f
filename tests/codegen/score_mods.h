// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes a score_mod of any text, and the problem that it belongs to.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/mods.h"
#include "tests/ops/attention/kernel_problems.h"

namespace score_mods {

inline lathe::Mod score_mod(const std::string& text) { return {"score_mod", "dir/mine.cuh", text}; }

// `body` is that of a score_mod.
inline std::string body(const std::string& text) {
  return "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx) {" +
         text + "}\n";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

inline lathe::AttentionProblem problem_with(std::vector<lathe::Mod> mods) {
  lathe::AttentionProblem problem;
  problem.forward = problem.backward = true;
  problem.head_dim = problem.value_dim = 64;
  problem.mods = std::move(mods);
  return problem;
}

}  // namespace score_mods
