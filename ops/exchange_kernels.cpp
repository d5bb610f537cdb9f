// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/exchange_kernels.h"

#include <cstddef>

#include "templates/params/exchange.h"

namespace lathe {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;      // vectors that a thread of copy_rows has under way
constexpr int kAddVector = 4;  // elements of a thread of add_rows

KernelSpec base_spec(const char* kernel, const char* params) {
  KernelSpec spec;
  spec.kernel = kernel;
  spec.source = "exchange/" + spec.kernel + ".cuh";
  spec.params = params;
  spec.threads = kThreads;
  return spec;
}

}  // namespace

KernelSpec copy_rows_spec(RowIndex index, int vector_bytes) {
  KernelSpec spec = base_spec("copy_rows", "CopyRowsParams");
  spec.params_bytes = sizeof(CopyRowsParams);
  spec.last_field = "reserved";
  spec.last_field_offset = offsetof(CopyRowsParams, reserved);
  spec.constants = {
      Constant::integer("vector", "kVectorBytes", vector_bytes),
      Constant::flag("gather", "kGather", index == RowIndex::gather),
      Constant::flag("scatter", "kScatter", index == RowIndex::scatter),
  };
  return spec;
}

KernelSpec add_rows_spec(Dtype a, Dtype out) {
  KernelSpec spec = base_spec("add_rows", "AddRowsParams");
  spec.params_bytes = sizeof(AddRowsParams);
  spec.last_field = "count";
  spec.last_field_offset = offsetof(AddRowsParams, count);
  spec.constants = {Constant::type("a", "A", a), Constant::type("out", "Out", out)};
  return spec;
}

KernelSpec sum_parts_spec(Dtype part, Dtype out, int vector) {
  KernelSpec spec = base_spec("sum_parts", "SumPartsParams");
  spec.params_bytes = sizeof(SumPartsParams);
  spec.last_field = "reserved";
  spec.last_field_offset = offsetof(SumPartsParams, reserved);
  spec.constants = {Constant::type("part", "Part", part), Constant::type("out", "Out", out),
                    Constant::integer("vector", "kVector", vector)};
  return spec;
}

int vector_bytes_of(int64_t bytes, int most) {
  int vector = most;
  while (vector > 2 && bytes % vector != 0) vector /= 2;
  return vector;
}

int lane_bits_of(const KernelSpec& spec, int64_t vectors) {
  const int ahead = spec.kernel == "copy_rows" ? kAhead : 1;
  int bits = 0;
  while ((int64_t{ahead} << bits) < vectors && (2 << bits) <= spec.threads) ++bits;
  return bits;
}

int64_t row_blocks(const KernelSpec& spec, int64_t cells, int lane_bits) {
  const int64_t each = spec.threads >> lane_bits;
  return (cells + each - 1) / each;
}

int64_t add_rows_blocks(const KernelSpec& spec, int64_t count) {
  const int64_t each = int64_t{spec.threads} * kAddVector;
  return (count + each - 1) / each;
}

}  // namespace lathe
