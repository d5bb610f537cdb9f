// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One case of sparse_flash_attention, described in a line: the call through lathe.h, and the
// comparison with float64.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/api/session.h"
#include "tests/ref/sparse_inputs.h"

namespace apitest {

struct SparseCase {
  sparse_case::Shape shape;
  lathe_dtype dtype = LATHE_BF16, cu_dtype = LATHE_I32;
  bool tokens = false;     // rows and keys on one axis without offsets; one sequence
  int64_t splits = 0;      // 0: chosen
  Placement placement;     // of q, k, v, rotary parts, out and their gradients
  bool statistics = true;  // softmax_max and softmax_sum are asked for
  bool backward = false;   // all gradients that there are
  bool deterministic = false;
  bool saved_forward = false;  // forward and backward as two plans
  bool fixed = false;          // the problem promises the lengths
  uint32_t seed = 1;

  std::string text() const;
};

using SparseValues = std::map<std::string, std::vector<double>>;

ref::SparseAttention make_sparse(const SparseCase& sparse);

struct SparseAnswer {
  SparseValues outputs;
  uint64_t compiled = 0;             // kernels
  std::vector<std::string> kernels;  // canonical texts
};
// Runs a case: the outputs by name.
SparseAnswer run_sparse(lathe_context* context, const SparseCase& sparse,
                        const ref::SparseAttention& inputs);

// doctest CHECKs: outputs against float64, max|a-r| at most twice that of a plain computation of
// the same precision; no finding of the simulator.
void check_sparse(const SparseCase& sparse, const ref::SparseAttention& inputs,
                  const SparseValues& actual);

}  // namespace apitest
