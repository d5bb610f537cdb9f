// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/row_kernels.h"

#include <cstddef>

#include "templates/params/rows.h"

namespace lathe {
namespace {

constexpr int kThreads = 256;
// Items of one thread: vectors that a thread of copy_rows has under way, words of move_rows,
// elements of add_rows, columns of sum_rows.
constexpr int kItems = 4;

int64_t blocks_of(int64_t items, int64_t each) { return (items + each - 1) / each; }

}  // namespace

KernelSpec copy_rows_spec(RowIndex index, int vector_bytes) {
  KernelSpec spec =
      KernelSpec::of(LATHE_TEMPLATE("rows", "copy_rows", CopyRowsParams, reserved), kThreads);
  spec.constants = {
      Constant::integer("vector", "kVectorBytes", vector_bytes),
      Constant::flag("gather", "kGather", index == RowIndex::gather),
      Constant::flag("scatter", "kScatter", index == RowIndex::scatter),
  };
  return spec;
}

KernelSpec move_rows_spec(int word_bytes) {
  KernelSpec spec =
      KernelSpec::of(LATHE_TEMPLATE("rows", "move_rows", MoveRowsParams, unused), kThreads);
  spec.constants = {Constant::integer("word", "kWordBytes", word_bytes),
                    Constant::integer("items", "kItems", kItems)};
  return spec;
}

KernelSpec add_rows_spec(Dtype a, Dtype out) {
  KernelSpec spec =
      KernelSpec::of(LATHE_TEMPLATE("rows", "add_rows", AddRowsParams, count), kThreads);
  spec.constants = {Constant::type("a", "A", a), Constant::type("out", "Out", out)};
  return spec;
}

KernelSpec sum_parts_spec(Dtype part, Dtype out, int vector) {
  KernelSpec spec =
      KernelSpec::of(LATHE_TEMPLATE("rows", "sum_parts", SumPartsParams, reserved), kThreads);
  spec.constants = {Constant::type("part", "Part", part), Constant::type("out", "Out", out),
                    Constant::integer("vector", "kVector", vector)};
  return spec;
}

KernelSpec sum_rows_spec(Dtype in, Dtype out, bool listed) {
  KernelSpec spec =
      KernelSpec::of(LATHE_TEMPLATE("rows", "sum_rows", SumRowsParams, unused), kThreads);
  spec.constants = {Constant::type("in", "In", in), Constant::type("out", "Out", out),
                    Constant::flag("listed", "kListed", listed)};
  return spec;
}

int lane_bits_of(const KernelSpec& spec, int64_t vectors) {
  const int ahead = spec.kernel == "copy_rows" ? kItems : 1;
  int bits = 0;
  while ((int64_t{ahead} << bits) < vectors && (2 << bits) <= spec.threads) ++bits;
  return bits;
}

int64_t row_blocks(const KernelSpec& spec, int64_t cells, int lane_bits) {
  return blocks_of(cells, spec.threads >> lane_bits);
}

int64_t item_blocks(const KernelSpec& spec, int64_t items) {
  return blocks_of(items, int64_t{spec.threads} * kItems);
}

}  // namespace lathe
