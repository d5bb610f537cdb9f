// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements causal_conv1d_update with the warps of a block along the channels of one sequence.
#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "ops/conv/kernels.h"

namespace lathe {
namespace {

constexpr int kRowWarps[] = {4, 8, 1};

KernelSpec row_spec(const ConvProblem& problem, int warps) {
  KernelSpec spec = conv_update_spec(problem);
  const ConvUpdateShared shared = conv_update_shared(problem);
  spec.kernel = "causal_conv1d_update_row";
  spec.source = "conv/causal_conv1d_update_row.cuh";
  spec.smem = "ConvUpdateRowSmem";
  spec.smem_bytes = warps * (shared.filter + shared.slots);
  spec.threads = 32 * warps;
  return spec;
}

std::vector<KernelSpec> row_candidates(const ConvProblem& problem, const DeviceFacts& facts) {
  std::vector<KernelSpec> specs;
  for (const int warps : kRowWarps) {
    KernelSpec spec = row_spec(problem, warps);
    if (spec.smem_bytes <= conv_shared_limit(facts)) specs.push_back(std::move(spec));
  }
  return specs;
}

Status row_supports(const ConvProblem& problem, const DeviceFacts& facts) {
  if (!row_candidates(problem, facts).empty()) return {};
  return unsupported(text("causal_conv1d_update_row: a warp needs more shared memory than ",
                          facts.arch, " allows a block"));
}

Grid row_grid(const ConvUpdateWalk& walk, const ConvShape& shape) {
  const int64_t channels = walk.warps * walk.channels;
  return {static_cast<unsigned>(ceil_div(shape.channels, channels) * shape.batch), 1, 1};
}

}  // namespace

const ConvUpdate conv_update_row = {row_supports, row_candidates, {}, row_grid};

}  // namespace lathe
