// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/merge_kernels.h"

#include <cstddef>

#include "templates/params/attention_merge.h"

namespace lathe {
namespace {

constexpr int kThreads = 128;
constexpr int kColumns = 4;  // of one lane at a time: 16 bytes of float32

// As many lanes for a row as its columns keep busy, so that no warp loads less than it could.
int lanes_for(int value_dim) {
  int lanes = 2;
  while (lanes < 32 && lanes * kColumns < value_dim) lanes *= 2;
  return lanes;
}

}  // namespace

KernelSpec lse_merge_spec(const LseMergeProblem& problem) {
  KernelSpec spec =
      KernelSpec::of(LATHE_TEMPLATE("attention", "lse_merge", LseMergeParams, value_dim), kThreads);
  spec.constants = {
      // Without a block its type changes nothing: one word for all.
      Constant::type("block_out", "Block", problem.block ? problem.block_out : Dtype::f32),
      Constant::type("rounded_type", "Rounded",
                     problem.rounded ? problem.rounded_type : Dtype::bf16),
      Constant::integer("lanes", "kLanes", lanes_for(problem.value_dim)),
      Constant::flag("block", "kBlock", problem.block),
      Constant::flag("sinks", "kSinks", problem.sinks),
      Constant::flag("rounded", "kRounded", problem.rounded),
  };
  return spec;
}

int64_t lse_merge_blocks(const KernelSpec& spec, int64_t rows) {
  const int64_t rows_of_block = spec.threads / spec.constant("lanes");
  return (rows + rows_of_block - 1) / rows_of_block;
}

Cost lse_merge_cost(const LseMergeProblem& problem, int64_t rows, int64_t heads) {
  const int64_t width = problem.value_dim;
  const int64_t own = 2 * 4 * (width + 1);  // read and written
  const int64_t block = problem.block ? bytes_of(problem.block_out) * width + 4 : 0;
  const int64_t rounded = problem.rounded ? bytes_of(problem.rounded_type) * width : 0;
  Cost cost;
  cost.minimum_bytes = rows * (own + block + rounded) + (problem.sinks ? 4 * heads : 0);
  cost.bytes = cost.minimum_bytes;
  cost.flops = 3 * rows * width;
  return cost;
}

}  // namespace lathe
