// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sample_specs.h"

#include "ops/sparse/run.h"

using namespace lathe;

namespace {

std::vector<KernelSpec> sparse_specs(const DeviceFacts& facts) {
  SparseProblem lists;
  lists.forward = lists.backward = lists.deterministic = true;
  const auto kernels = sparse_kernels(lists, facts);
  lists.exact = lists.dsinks = true;
  const auto exact = sparse_backward_kernels(lists, facts);
  const SparseBackwardKernels& backward = kernels->backward;
  return {*kernels->forward->kernel,
          *kernels->combine,
          *backward.prepare,
          *backward.main->kernel,
          *backward.ranges,
          *backward.fill,
          *backward.gather,
          *backward.finish,
          sparse_join_spec(Dtype::bf16, Dtype::f32),
          *exact->prepare,
          *exact->gather,
          sparse_join_spec(Dtype::bf16, Dtype::f32, true)};
}

const templates_test::AddSampleSpecs kSamples("sparse", sparse_specs);

}  // namespace
