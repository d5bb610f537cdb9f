// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The C functions that complete a problem and say what it holds.
#include "api/boundary.h"
#include "ops/infer.h"

using lathe::boundary;
using lathe::require;
using lathe::Status;

namespace lathe {
namespace {

// Which dimension is cut over ranks, and by whose tokens.
void say_axis(const Shape& shape, lathe_tensor_info* info) {
  info->token_dim = -1;
  for (int d = 0; d < shape.rank && info->token_dim < 0; ++d) {
    const TokenAxis axis = info_of(shape.dims[d].dim).axis;
    if (axis == TokenAxis::none || axis == TokenAxis::slots) continue;
    info->token_dim = d;
    info->token_axis = axis == TokenAxis::keys ? LATHE_KEYS : LATHE_QUERIES;
    info->counts_chunks = axis == TokenAxis::chunks;
  }
}

lathe_tensor_info tensor_info(const lathe_problem& problem, size_t index) {
  const TensorInfo& tensor = problem.op->tensors[index];
  const Declared& declared = problem.tensors[index];
  lathe_tensor_info info = {};
  info.name = tensor.name;
  info.declared = declared.given;
  info.alias_of = declared.aliased ? tensor.alias_of : nullptr;
  info.token_dim = -1;
  if (!declared.given) return info;
  info.written = problem.writes(static_cast<int>(index));
  info.read = tensor.role != Role::output || !info.written;
  info.dtype = static_cast<lathe_dtype>(declared.dtype);
  const Shape shape = problem.shape(static_cast<int>(index));
  info.rank = shape.rank;
  for (int d = 0; d < shape.rank; ++d) {
    const DimInfo& dim = info_of(shape.dims[d].dim);
    info.shape[d] = declared.extents[d];
    info.dims[d] = dim.name;
    info.added[d] = shape.dims[d].plus;
    info.varies[d] = dim.varies;
  }
  say_axis(shape, &info);
  return info;
}

}  // namespace
}  // namespace lathe

extern "C" {

lathe_status lathe_problem_infer(lathe_problem* problem, const DLTensor* const* values) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(problem, "problem"));
    return lathe::infer(problem, values);
  });
}

lathe_status lathe_problem_open(lathe_problem* problem) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(problem, "problem"));
    lathe::open_extents(problem);
    return {};
  });
}

lathe_status lathe_problem_tensor_info(const lathe_problem* problem, size_t index,
                                       lathe_tensor_info* out) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(problem, "problem"));
    LATHE_TRY(lathe::check_sized(out));
    const size_t count = problem->op->tensors.size();
    if (index >= count) {
      return lathe::invalid(lathe::text("index is ", index, "; ", problem->op->name, " has ", count,
                                        " tensors, counted from 0"));
    }
    lathe::give_sized(lathe::tensor_info(*problem, index), out);
    return {};
  });
}

}  // extern "C"
