// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The C functions that declare a problem, complete it and say what it holds.
#include "ops/problem.h"

#include <charconv>
#include <cmath>
#include <memory>

#include "api/boundary.h"
#include "ops/infer.h"

namespace lathe {
namespace {

// Fills in which dimension is cut over ranks, and by whose tokens.
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

using namespace lathe;

extern "C" {

lathe_status lathe_problem_create(lathe_problem** out, const char* op) {
  return boundary({{out, "out"}, {op, "op"}}, [&]() -> Status {
    const Operator* found = find_operator(op);
    if (!found) return invalid(no_such_operator(op));
    auto problem = std::make_unique<lathe_problem>();
    problem->op = found;
    problem->options.resize(found->options.size());
    *out = problem.release();
    return {};
  });
}

void lathe_problem_destroy(lathe_problem* problem) { delete problem; }

lathe_status lathe_problem_tensor(lathe_problem* problem, const char* name, lathe_dtype dtype,
                                  int rank, const int64_t* shape) {
  return boundary({{problem, "problem"}, {name, "name"}},
                  [&] { return declare(*problem, name, dtype, rank, shape); });
}

lathe_status lathe_problem_alignment(lathe_problem* problem, int bytes) {
  return boundary({{problem, "problem"}}, [&] { return set_alignment(*problem, bytes); });
}

lathe_status lathe_problem_set_int(lathe_problem* problem, const char* option, int64_t value) {
  return boundary(
      [&] { return set_option(problem, option, OptionType::integer, std::to_string(value)); });
}

lathe_status lathe_problem_set_double(lathe_problem* problem, const char* option, double value) {
  return boundary({{option, "option"}}, [&]() -> Status {
    if (!std::isfinite(value)) {
      return invalid(text("option ", option, " is ", value, ", but must be finite"));
    }
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    return set_option(problem, option, OptionType::number, std::string(digits, end));
  });
}

lathe_status lathe_problem_set_string(lathe_problem* problem, const char* option,
                                      const char* value) {
  return boundary({{value, "value"}},
                  [&] { return set_option(problem, option, OptionType::word, value); });
}

lathe_status lathe_problem_set_text(lathe_problem* problem, const char* option, const char* bytes,
                                    size_t size) {
  return boundary({{problem, "problem"}, {option, "option"}, {bytes, "text"}},
                  [&] { return set_option_text(problem, option, std::string(bytes, size)); });
}

lathe_status lathe_problem_group(lathe_problem* problem, lathe_group* group, unsigned flags) {
  return boundary({{problem, "problem"}, {group, "group"}}, [&]() -> Status {
    LATHE_TRY(check_group_flags(*problem->op, flags));
    problem->group = group;
    problem->group_flags = flags;
    return {};
  });
}

lathe_status lathe_problem_infer(lathe_problem* problem, const DLTensor* const* values) {
  return boundary({{problem, "problem"}}, [&] { return infer(problem, values); });
}

lathe_status lathe_problem_open(lathe_problem* problem) {
  return boundary({{problem, "problem"}}, [&] { open_extents(problem); });
}

lathe_status lathe_problem_tensor_info(const lathe_problem* problem, size_t index,
                                       lathe_tensor_info* out) {
  return boundary({{problem, "problem"}}, [&]() -> Status {
    const size_t count = problem->op->tensors.size();
    if (index >= count) {
      return invalid(text("index is ", index, "; ", problem->op->name, " has ", count,
                          " tensors, counted from 0"));
    }
    return give_sized(tensor_info(*problem, index), out);
  });
}

}  // extern "C"
