// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/maps.h"

#include <charconv>

#include "codegen/base/invalid.h"

namespace lathe::own {
namespace {

constexpr int64_t kMostBox = 256, kChunk = 16;  // bytes
constexpr int64_t kMostStride = int64_t{1} << 40;
constexpr int kFirstArch = 90;

Status prefixed(const std::string& what, const Status& status) {
  return status.ok() ? status : Status(status.code(), what + status.text());
}

// The value of an expression that is compiled in, whose text stands before what is wrong.
Result<int64_t> value_of(const std::string& what, const Expression& expression,
                         const KnownValues& known, Status (*check)(int64_t)) {
  LATHE_ASSIGN(const std::optional<int64_t> value, evaluate_known(expression, known));
  const std::string begin = text(what, " = ", expression.text(), " ");
  if (!value) return invalid(begin + "is not known");
  LATHE_TRY(prefixed(begin, check(*value)));
  return *value;
}

// The innermost extent of a box is one row of the tile in shared memory.
Status check_row(const std::string& what, int64_t bytes, int64_t swizzle) {
  if (bytes % kChunk == 0 && (swizzle == 0 || bytes <= swizzle)) return {};
  const std::string most = swizzle == 0 ? "" : text(" up to the swizzle's ", swizzle);
  return invalid(text(what, " has rows of ", bytes, " bytes (its first extent); allowed are ",
                      "multiples of ", kChunk, most));
}

Result<TensorMapRecipe> recipe_of(const lathe_problem& problem, size_t index,
                                  const KnownValues& known) {
  const TensorText& tensor = OwnOperator::of(problem).description->tensors[index];
  const std::string what = text(problem.op->name, ": the map of ", tensor.name);
  TensorMapRecipe out{tensor.name, problem.tensors[index].dtype, {}, 0};
  for (const Expression& each : tensor.box) {
    LATHE_ASSIGN(const int64_t extent, value_of(what + ": box", each, known, check_box_extent));
    out.box.push_back(static_cast<int>(extent));
  }
  if (tensor.swizzle) {
    LATHE_ASSIGN(const int64_t swizzle,
                 value_of(what + ": swizzle", tensor.swizzle, known, check_swizzle));
    out.swizzle_bytes = static_cast<int>(swizzle);
  }
  LATHE_TRY(check_row(what, int64_t{out.box[0]} * bytes_of(out.dtype), out.swizzle_bytes));
  return out;
}

}  // namespace

int64_t arch_number(const std::string& arch) {
  int64_t number = 0;
  if (arch.size() > 3) std::from_chars(arch.data() + 3, arch.data() + arch.size(), number);
  return number;
}

Status check_box_extent(int64_t extent) {
  if (extent >= 1 && extent <= kMostBox) return {};
  return invalid(text("is ", extent, "; allowed are 1 to ", kMostBox));
}

Status check_swizzle(int64_t bytes) {
  if (bytes == 0 || bytes == 32 || bytes == 64 || bytes == 128) return {};
  return invalid(text("is ", bytes, "; allowed are 0, 32, 64 and 128 bytes"));
}

Result<std::vector<TensorMapRecipe>> map_recipes(const lathe_problem& problem,
                                                 const KnownValues& known,
                                                 const std::string& arch) {
  const Description& from = *OwnOperator::of(problem).description;
  std::vector<TensorMapRecipe> out;
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    if (!from.tensors[i].has_map || !problem.tensors[i].given) continue;
    if (arch_number(arch) < kFirstArch) {
      return unsupported(text(problem.op->name, ": ", from.tensors[i].name, " has a tensor map, ",
                              "and ", arch, " has none; allowed are sm_", kFirstArch,
                              " and later"));
    }
    LATHE_ASSIGN(TensorMapRecipe recipe, recipe_of(problem, i, known));
    out.push_back(std::move(recipe));
  }
  return out;
}

Status check_mapped_stride(const std::string& tensor, int dim, int64_t stride, int element_bytes) {
  int64_t bytes = 0;
  const bool fits = !__builtin_mul_overflow(stride, int64_t{element_bytes}, &bytes);
  if (fits && bytes > 0 && bytes < kMostStride && bytes % kChunk == 0) return {};
  return invalid(text(tensor, " has a tensor map and a stride of ", stride, " elements of ",
                      element_bytes, " bytes at ", dim, "; allowed are multiples of ", kChunk,
                      " bytes below 2^40"));
}

Status check_mapped_rows(const lathe_problem& problem) {
  const Description& from = *OwnOperator::of(problem).description;
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    const Declared& declared = problem.tensors[i];
    if (!from.tensors[i].has_map || from.tensors[i].strided || !declared.given) continue;
    int64_t stride = 1;
    for (int d = declared.shape.rank - 1; d > 0; --d) {
      const int64_t extent = declared.extents[static_cast<size_t>(d)];
      if (extent == kUnknown || extent == 0) break;
      if (__builtin_mul_overflow(stride, extent, &stride)) stride = INT64_MAX;
      if (declared.extents[static_cast<size_t>(d - 1)] == 1) continue;
      LATHE_TRY(check_mapped_stride(from.tensors[i].name, d - 1, stride, bytes_of(declared.dtype)));
    }
  }
  return {};
}

}  // namespace lathe::own
