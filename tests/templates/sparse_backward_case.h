// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One backward of sparse attention on the simulator: its launches, their workspace, and what is
// expected of the gradients.
#pragma once

#include "ops/sparse/backward_kernels.h"
#include "tests/templates/sparse_case.h"

namespace sparse_case {

struct BackwardSetup {
  lathe::Dtype element;
  int head_dim, rope_dim, value_dim;
  lathe::SparseBackwardTile tile;
  std::string flags;  // of packed, sinks, wide, values_in_keys, ordered
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }

  lathe_dtype dtype() const { return static_cast<lathe_dtype>(element); }
  lathe::SparseProblem problem() const;
  Shape shape() const;  // without rows, keys, heads and lists
};

// The bits of gradients, so that two runs can be compared, and their numbers. With values in keys
// dk has their gradients in it and dv is empty.
struct BackwardFound {
  ref::SparseBackward numbers;
  std::vector<std::vector<char>> bits;  // dq, dq_rope, dk, dk_rope, dv, dsinks
  sim::Counters main;                   // of all chunks
};

struct BackwardRun {
  std::string arch = "sm_80";
  uint64_t seed = 1;
  sim::AsyncPolicy async = sim::AsyncPolicy::lazy;
  sim::TensorSum tensor_sum = sim::TensorSum::exact;
  int64_t chunk = 0;  // rows, if not those that the workspace has room for
  bool dq = true, dk = true, dv = true;
};

// `forward` is that of the reference; out is rounded to the type, lse to float32.
BackwardFound run_backward(const lathe::Compiler& nvrtc, const BackwardSetup& setup,
                           const Shape& shape, const ref::SparseAttention& a,
                           const ref::SparseForward& forward, const BackwardRun& how);

// Each within the bound of a plain computation in the element type, and in its direction.
void expect_gradients(const BackwardSetup& setup, const Shape& shape, const ref::SparseAttention& a,
                      const ref::SparseForward& forward, const BackwardFound& found);

}  // namespace sparse_case
