// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Adds float32 values over rows, and over ranks, without an error in between: the result is the
// rounded sum of all terms, whichever rank has which of them and in whatever order.
#pragma once

#include "collective/group.h"
#include "ops/kernel.h"

namespace lathe {

// Holds the kernels of exact sums, for an executor that lists them.
struct ExactSumKernels {
  KernelSlot add, round;

  static ExactSumKernels make();
};
KernelSpec exact_sums_spec();
KernelSpec exact_round_spec();

// Describes the sums of one call. Addresses are of the device.
struct ExactSum {
  const void* terms = nullptr;  // float32 [rows, row_stride], of which `columns` are added
  int64_t rows = 0, row_stride = 0, columns = 0;
  char* words = nullptr;  // of the workspace: exact_sum_bytes(columns)
  void* out = nullptr;    // float32 [columns]
};
int64_t exact_sum_bytes(int64_t columns);
// Makes the sums. With a group they are those of all its ranks, in one collective; null: this
// rank's.
Status make_exact_sums(const ExactSumKernels& kernels, const ExactSum& sum, Group* group,
                       CUstream_st* stream);

}  // namespace lathe
