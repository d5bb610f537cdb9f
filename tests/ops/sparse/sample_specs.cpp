// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sample_specs.h"

#include "ops/sparse/backward_kernels.h"
#include "ops/sparse/kernels.h"

using namespace lathe;

namespace {

std::vector<KernelSpec> sparse_specs(const DeviceFacts& facts) {
  SparseProblem lists;
  lists.forward = lists.backward = lists.deterministic = true;
  const SparseKernels forward = *sparse_kernels(lists, facts);
  const SparseBackwardKernels backward = *sparse_backward_kernels(lists, facts);
  lists.exact = lists.dsinks = true;
  const SparseBackwardKernels exact = *sparse_backward_kernels(lists, facts);
  return {*forward.forward, *forward.combine, *backward.prepare,
          *backward.main,   *backward.ranges, *backward.fill,
          *backward.gather, *backward.finish, sparse_join_spec(Dtype::bf16, Dtype::f32),
          *exact.prepare,   *exact.gather,    sparse_join_spec(Dtype::bf16, Dtype::f32, true)};
}

const templates_test::AddSampleSpecs kSamples("sparse", sparse_specs);

}  // namespace
