// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The C functions that list the operators, the tables of ops/ as structs of lathe.h, and those that
// declare a problem, complete it and say what it holds.
#include "ops/problem.h"

#include <charconv>
#include <cmath>
#include <memory>

#include "api/boundary.h"
#include "api/cache/manifest.h"
#include "ops/infer.h"

namespace lathe {
namespace {

static_assert(static_cast<int>(Role::inout) == LATHE_INOUT);
static_assert(static_cast<int>(OptionType::word) == LATHE_OPTION_STRING);

lathe_operator_tensor to_c(const TensorInfo& tensor) {
  return {.name = tensor.name,
          .shape = tensor.shape,
          .role = static_cast<lathe_role>(tensor.role),
          .optional = tensor.is_optional,
          .dtypes = tensor.dtypes,
          .alias_of = tensor.alias_of,
          .sentence = tensor.sentence,
          .given_if = tensor.given_if,
          .changed_by = tensor.changed_by,
          .wide = is_wide(tensor)};
}

lathe_operator_option to_c(const OptionInfo& option) {
  return {.name = option.name,
          .type = static_cast<lathe_option_type>(option.type),
          .fallback = option.fallback,
          .allowed = option.allowed,
          .sentence = option.sentence};
}

// An operator's rows and the struct that points to them.
struct Listed {
  std::vector<lathe_operator_tensor> tensors;
  std::vector<lathe_operator_option> options;
  lathe_operator_info info;

  explicit Listed(const Operator& op) {
    for (const TensorInfo& tensor : op.tensors) tensors.push_back(to_c(tensor));
    for (const OptionInfo& option : op.options) options.push_back(to_c(option));
    info = {.name = op.name,
            .sentence = op.sentence,
            .tensors = tensors.data(),
            .tensor_count = tensors.size(),
            .options = options.data(),
            .option_count = options.size(),
            .ranks = op.ranks,
            .least_alignment = op.least_alignment,
            .reference = op.reference};
  }
};

const std::vector<Listed>& listed_operators() {
  static const std::vector<Listed> all(operators().begin(), operators().end());
  return all;
}

// Returns what the C API lends of an operator, as long as that one is there.
const lathe_operator_info* listed(const Operator& op) {
  if (op.listed) return &static_cast<const Listed*>(op.listed)->info;
  return lathe_operator_at(static_cast<size_t>(&op - operators().data()));
}

lathe_tensor_info tensor_info(const lathe_problem& problem, size_t index) {
  const TensorInfo& tensor = problem.op->tensors[index];
  const Declared& declared = problem.tensors[index];
  lathe_tensor_info info = {.name = tensor.name,
                            .declared = declared.given,
                            .alias_of = declared.aliased ? tensor.alias_of : nullptr,
                            .token_dim = -1};
  if (!declared.given) return info;
  info.written = problem.writes(static_cast<int>(index));
  info.read = tensor.role != Role::output || !info.written;
  info.dtype = static_cast<lathe_dtype>(declared.dtype);
  const Shape shape = problem.shape(static_cast<int>(index));
  info.rank = shape.rank;
  for (int d = 0; d < shape.rank; ++d) {
    const DimInfo& dim = shape.info(shape.dims[d].dim);
    info.shape[d] = declared.extents[d];
    info.dims[d] = dim.name;
    info.added[d] = shape.dims[d].plus;
    info.varies[d] = dim.varies;
    // The first dimension that counts tokens, or chunks of them, is cut over ranks.
    const bool cut = dim.axis != TokenAxis::none && dim.axis != TokenAxis::slots;
    if (!cut || info.token_dim >= 0) continue;
    info.token_dim = d;
    info.token_axis = dim.axis == TokenAxis::keys ? LATHE_KEYS : LATHE_QUERIES;
    info.counts_chunks = dim.axis == TokenAxis::chunks;
  }
  return info;
}

}  // namespace

Result<OperatorPointer> made_operator(std::string from, const std::string& file) {
  LATHE_ASSIGN(std::shared_ptr<Operator> parsed, parse_operator(std::move(from), file));
  struct Made {
    explicit Made(std::shared_ptr<Operator> of) : op(std::move(of)), listed(*op) {}
    std::shared_ptr<Operator> op;
    Listed listed;  // points into itself: it stays where it is
  };
  const auto made = std::make_shared<Made>(std::move(parsed));
  made->op->listed = &made->listed;
  OperatorPointer known = register_operator({made, made->op.get()});
  if (*known->text == *made->op->text) return known;
  return invalid(text(file, " has the name ", made->op->name,
                      " of another text: allowed is a change of either"));
}

}  // namespace lathe

struct lathe_operator {
  lathe::OperatorPointer op;
};

using namespace lathe;

extern "C" {

size_t lathe_operator_count(void) { return operators().size(); }

const lathe_operator_info* lathe_operator_at(size_t index) {
  return index < operators().size() ? &listed_operators()[index].info : nullptr;
}

const lathe_operator_info* lathe_operator_find(const char* name) {
  const OperatorPointer op = name ? find_operator(name) : nullptr;
  return op ? listed(*op) : nullptr;
}

lathe_status lathe_operator_parse(lathe_operator** out, const char* text, size_t bytes,
                                  const char* file) {
  return boundary({{out, "out"}, {text, "text"}}, [&]() -> Status {
    LATHE_ASSIGN(OperatorPointer made,
                 made_operator(std::string(text, bytes), file ? file : "kernel.cuh"));
    *out = new lathe_operator{std::move(made)};
    return {};
  });
}

const lathe_operator_info* lathe_operator_describe(const lathe_operator* op) {
  return op ? listed(*op->op) : nullptr;
}

void lathe_operator_destroy(lathe_operator* op) { delete op; }

lathe_status lathe_problem_create(lathe_problem** out, const char* op) {
  return boundary({{out, "out"}, {op, "op"}}, [&]() -> Status {
    OperatorPointer found = find_operator(op);
    if (!found) return invalid(no_such_operator(op));
    auto problem = std::make_unique<lathe_problem>();
    problem->options.resize(found->options.size());
    problem->op = std::move(found);
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

lathe_status lathe_problem_parse(lathe_problem** out, const char* line, size_t bytes) {
  return boundary({{out, "out"}, {line, "line"}}, [&]() -> Status {
    LATHE_ASSIGN(auto problem, parse_problem(std::string_view(line, bytes)));
    *out = problem.release();
    return {};
  });
}

lathe_status lathe_problem_text(const lathe_problem* problem, char* out, size_t bytes,
                                size_t* needed) {
  return boundary({{problem, "problem"}}, [&]() -> Status {
    if (bytes > 0) LATHE_TRY(require(out, "text"));
    return give_text(problem_text(*problem), out, bytes, needed);
  });
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
