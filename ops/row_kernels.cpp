// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/row_kernels.h"

#include "codegen/base/integers.h"
#include "templates/params/rows.h"

namespace lathe {
namespace {

constexpr int kThreads = 256;
// Items of one thread: vectors that a thread of copy_rows has under way, words of move_rows,
// elements of add_rows, columns of sum_rows.
constexpr int kItems = 4;

}  // namespace

KernelSpec copy_rows_spec(RowIndex index, int vector_bytes) {
  return KernelSpec::of(LATHE_TEMPLATE("rows", "copy_rows", CopyRowsParams, reserved), kThreads,
                        {Constant::integer("vector", "kVectorBytes", vector_bytes),
                         Constant::flag("gather", "kGather", index == RowIndex::gather),
                         Constant::flag("scatter", "kScatter", index == RowIndex::scatter)});
}

KernelSpec move_rows_spec(int word_bytes) {
  return KernelSpec::of(LATHE_TEMPLATE("rows", "move_rows", MoveRowsParams, unused), kThreads,
                        {Constant::integer("word", "kWordBytes", word_bytes),
                         Constant::integer("items", "kItems", kItems)});
}

KernelSpec add_rows_spec(Dtype a, Dtype out) {
  return KernelSpec::of(LATHE_TEMPLATE("rows", "add_rows", AddRowsParams, count), kThreads,
                        {Constant::type("a", "A", a), Constant::type("out", "Out", out)});
}

KernelSpec sum_parts_spec(Dtype part, Dtype out, int vector) {
  return KernelSpec::of(LATHE_TEMPLATE("rows", "sum_parts", SumPartsParams, reserved), kThreads,
                        {Constant::type("part", "Part", part), Constant::type("out", "Out", out),
                         Constant::integer("vector", "kVector", vector)});
}

KernelSpec sum_rows_spec(Dtype in, Dtype out, bool listed) {
  return KernelSpec::of(LATHE_TEMPLATE("rows", "sum_rows", SumRowsParams, unused), kThreads,
                        {Constant::type("in", "In", in), Constant::type("out", "Out", out),
                         Constant::flag("listed", "kListed", listed)});
}

KernelSpec repeat_offsets_spec() {
  return KernelSpec::of(LATHE_TEMPLATE("rows", "repeat_offsets", RepeatOffsetsParams, reserved),
                        kThreads, {});
}

int lane_bits_of(const KernelSpec& spec, int64_t vectors) {
  const int ahead = spec.kernel == "copy_rows" ? kItems : 1;
  int bits = 0;
  while ((int64_t{ahead} << bits) < vectors && (2 << bits) <= spec.threads) ++bits;
  return bits;
}

int64_t row_blocks(const KernelSpec& spec, int64_t cells, int lane_bits) {
  return ceil_div(cells, spec.threads >> lane_bits);
}

int64_t item_blocks(const KernelSpec& spec, int64_t items) {
  return ceil_div(items, int64_t{spec.threads} * kItems);
}

}  // namespace lathe
