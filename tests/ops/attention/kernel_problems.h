// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes problems of flash attention by their widths, and the kernels that they get.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "codegen/choice.h"
#include "ops/attention/backward/portable.h"
#include "ops/attention/block/portable.h"
#include "ops/attention/decode/portable.h"
#include "ops/attention/forward/portable.h"

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

// Stands for measurements: the first candidate that begins so is the best.
class TakesTile : public lathe::Choices {
 public:
  explicit TakesTile(std::string begin) : begin_(std::move(begin)) {}
  size_t choose(const lathe::TuningKey& tuning_key) const override {
    heard = tuning_key;
    const auto holds = [&](const std::string& each) { return each.starts_with(begin_); };
    return static_cast<size_t>(std::ranges::find_if(tuning_key.candidates, holds) -
                               tuning_key.candidates.begin());
  }
  mutable lathe::TuningKey heard;

 private:
  std::string begin_;
};

// Return what a plan takes. The problem is one that some implementation covers.
inline std::unique_ptr<lathe::AttentionForward> forward_kernels(
    const lathe::AttentionProblem& problem, const lathe::DeviceFacts& facts) {
  return std::move(*lathe::make_step(lathe::attention_forwards(), problem, facts));
}
inline std::unique_ptr<lathe::AttentionBackward> backward_kernels(
    const lathe::AttentionProblem& problem, const lathe::DeviceFacts& facts,
    lathe::AttentionHeadChoice heads) {
  return std::move(*lathe::make_attention_backward({problem, heads}, facts));
}
inline lathe::KernelSpec block_spec(const lathe::AttentionProblem& problem,
                                    const lathe::DeviceFacts& facts) {
  return *(*lathe::make_step(lathe::attention_blocks(), problem, facts))->kernel;
}
inline lathe::KernelSpec block_backward_spec(const lathe::AttentionProblem& problem,
                                             const lathe::DeviceFacts& facts) {
  return *(*lathe::make_step(lathe::attention_block_backwards(), problem, facts))->kernel;
}
inline std::vector<std::unique_ptr<lathe::AttentionDecode>> decode_kernels(
    const lathe::AttentionProblem& problem, const lathe::DeviceFacts& facts,
    const lathe::AttentionDecodeRows& rows) {
  return std::move(*lathe::make_attention_decodes({problem, rows}, facts));
}

inline lathe::KernelSpec spec_of(const lathe::AttentionProblem& problem,
                                 const char* arch = "sm_80") {
  return *forward_kernels(problem, facts(arch))->kernel;
}
inline std::unique_ptr<lathe::AttentionBackward> kernels_of(const lathe::AttentionProblem& problem,
                                                            const char* arch = "sm_80",
                                                            lathe::AttentionHeadChoice heads = {
                                                                true, true}) {
  return backward_kernels(problem, facts(arch), heads);
}
// Return the portable tile to begin with.
inline lathe::AttentionTile first_tile(const lathe::AttentionProblem& problem,
                                       const lathe::DeviceFacts& facts) {
  return lathe::attention_candidates(problem, facts).at(0);
}
inline lathe::AttentionBackwardTile first_backward_tile(const lathe::AttentionProblem& problem,
                                                        const lathe::DeviceFacts& facts) {
  return lathe::attention_backward_candidates(problem, facts).at(0);
}

inline constexpr lathe::AttentionGradients kAll = {true, true, true, true};

}  // namespace kernel_problems
