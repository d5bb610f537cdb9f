// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/sparse/ranks_kernels.h"

#include <cstddef>

#include "codegen/base/integers.h"
#include "templates/params/sparse_ranks.h"

namespace lathe {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kColumnsOfThread = 8;

}  // namespace

KernelSpec sparse_join_spec(Dtype element, Dtype part) {
  KernelSpec spec = KernelSpec::of(
      LATHE_TEMPLATE("sparse", "sparse_gradient_join", SparseJoinParams, rank), kThreads);
  spec.constants = {Constant::type("element", "Element", element),
                    Constant::type("part", "Part", part)};
  return spec;
}

int64_t sparse_join_blocks(const KernelSpec& spec, int64_t rows, int64_t width) {
  return ceil_div(rows * (width / kColumnsOfThread), spec.threads);
}
int64_t sparse_join_sinks_blocks(const KernelSpec& spec, int64_t heads) {
  return ceil_div(heads, spec.threads);
}

}  // namespace lathe
