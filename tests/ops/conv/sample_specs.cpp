// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sample_specs.h"

#include "ops/conv/update/step.h"

using namespace lathe;

namespace {

std::vector<KernelSpec> conv_specs(const DeviceFacts& facts) {
  ConvProblem problem;
  problem.forward = problem.backward = problem.weight_grad = problem.halo = true;
  const ConvKernels kernels = *conv_kernels(problem, facts, true);
  std::vector<KernelSpec> specs = {
      *kernels.forward,   *kernels.backward, *kernels.weight_grad,     *kernels.halo_pack,
      *kernels.halo_join, *kernels.halo_add, *kernels.weight_grad_cast};
  specs.push_back(conv_lines_spec(Dtype::bf16));
  ConvProblem pieces = problem;
  pieces.halo = false, pieces.packed = pieces.by_pieces = true;
  specs.push_back(*conv_kernels(pieces, facts, false)->backward);
  ConvProblem pool;
  pool.forward = pool.packed = pool.pool = pool.checkpoints = pool.silu = true;
  pool.columns = 3, pool.parts = 3;
  specs.push_back(*conv_kernels(pool, facts, false)->forward);
  problem.columns = 3;
  for (const ConvUpdateStep* update : conv_updates()) {
    specs.push_back(update->candidates(problem, facts).front());
  }
  return specs;
}

const templates_test::AddSampleSpecs kSamples("conv", conv_specs);

}  // namespace
