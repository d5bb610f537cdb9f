// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds one case of sparse_flash_attention, described in a line: the call through
// lathe.h, and the comparison with float64.
#pragma once

#include "tests/harness/call.h"
#include "tests/sparse_inputs.h"

namespace apitest {

struct SparseCase {
  sparse_case::Shape shape;
  lathe_dtype dtype = LATHE_BF16, cu_dtype = LATHE_I32;
  bool tokens = false;     // rows and keys on one axis without offsets; one sequence
  int64_t splits = 0;      // 0: chosen
  Placement placement;     // of q, k, v, rotary parts, out and their gradients
  bool statistics = true;  // softmax_max and softmax_sum are asked for
  bool backward = false;   // all gradients that there are, of those named here
  std::string gradients = "dq,dk,dv,dsinks";  // dq and dk with their rotary parts
  bool deterministic = false;
  bool saved_forward = false;   // forward and backward as two plans
  bool given_forward = false;   // the backward alone, of the reference's out and lse
  bool fixed = false;           // the problem declares the lengths
  std::string tile, main_tile;  // of the forward and of the backward; "": the default
  uint32_t seed = 1;

  bool wants(const std::string& name) const {
    return backward && ("," + gradients + ",").find("," + name + ",") != std::string::npos;
  }
  std::string text() const;
};

ref::SparseAttention make_sparse(const SparseCase& sparse);

// Says what a call computes: a forward with its outputs, the whole step, or a backward that reads
// `saved`.
enum class SparsePart { forward, both, backward };
Call sparse_call(const SparseCase& sparse, const ref::SparseAttention& inputs, SparsePart part,
                 const Outputs& saved = {});
// Runs the call or, with a saved forward, the two calls of a case.
Answer run_sparse(lathe_context* context, const SparseCase& sparse,
                  const ref::SparseAttention& inputs);

// Makes doctest CHECKs: outputs against float64, max|a-r| at most twice that of a plain computation
// of the same precision; no finding of the simulator.
void check_sparse(const SparseCase& sparse, const ref::SparseAttention& inputs,
                  const Answer& answer);
// Runs and checks it in the context that all tests of a program share.
Answer checked(const SparseCase& sparse, const ref::SparseAttention& inputs);

}  // namespace apitest
