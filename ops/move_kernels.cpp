// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/move_kernels.h"

#include <cstddef>

#include "templates/params/moves.h"

namespace lathe {
namespace {

constexpr int kThreads = 256;
constexpr int kItems = 4;    // words of one thread: loads that do not wait for each other
constexpr int kColumns = 4;  // of one thread of a sum

}  // namespace

KernelSpec move_rows_spec(int word_bytes) {
  KernelSpec spec;
  spec.kernel = "move_rows";
  spec.source = "moves/move_rows.cuh";
  spec.params = "MoveRowsParams";
  spec.params_bytes = sizeof(MoveRowsParams);
  spec.last_field = "unused";
  spec.last_field_offset = offsetof(MoveRowsParams, unused);
  spec.threads = kThreads;
  spec.constants = {Constant::integer("word", "kWordBytes", word_bytes),
                    Constant::integer("items", "kItems", kItems)};
  return spec;
}

KernelSpec sum_rows_spec(Dtype in, Dtype out, bool listed) {
  KernelSpec spec;
  spec.kernel = "sum_rows";
  spec.source = "moves/sum_rows.cuh";
  spec.params = "SumRowsParams";
  spec.params_bytes = sizeof(SumRowsParams);
  spec.last_field = "unused";
  spec.last_field_offset = offsetof(SumRowsParams, unused);
  spec.threads = kThreads;
  spec.constants = {Constant::type("in", "In", in), Constant::type("out", "Out", out),
                    Constant::flag("listed", "kListed", listed)};
  return spec;
}

int64_t move_rows_blocks(const KernelSpec& spec, int64_t words) {
  const int64_t of_block = spec.threads * spec.constant("items");
  return (words + of_block - 1) / of_block;
}

int64_t sum_rows_blocks(const KernelSpec& spec, int64_t columns) {
  const int64_t of_block = int64_t{spec.threads} * kColumns;
  return (columns + of_block - 1) / of_block;
}

}  // namespace lathe
