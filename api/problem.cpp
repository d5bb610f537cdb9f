// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The C functions that declare a problem.
#include "ops/problem.h"

#include <charconv>
#include <cmath>
#include <memory>

#include "api/boundary.h"
#include "ops/option_text.h"

using lathe::boundary;
using lathe::invalid;
using lathe::require;
using lathe::Status;

extern "C" {

lathe_status lathe_problem_create(lathe_problem** out, const char* op) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(out, "out"));
    LATHE_TRY(require(op, "op"));
    const lathe::Operator* found = lathe::find_operator(op);
    if (!found) {
      return invalid(lathe::no_such_operator(op));
    }
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
  return boundary([&]() -> Status {
    LATHE_TRY(require(problem, "problem"));
    LATHE_TRY(require(name, "name"));
    return lathe::declare(*problem, name, dtype, rank, shape);
  });
}

lathe_status lathe_problem_alignment(lathe_problem* problem, int bytes) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(problem, "problem"));
    return lathe::set_alignment(*problem, bytes);
  });
}

lathe_status lathe_problem_set_int(lathe_problem* problem, const char* option, int64_t value) {
  return boundary([&] {
    return lathe::set_option(problem, option, lathe::OptionType::integer, std::to_string(value));
  });
}

lathe_status lathe_problem_set_double(lathe_problem* problem, const char* option, double value) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(option, "option"));
    if (!std::isfinite(value)) {
      return invalid(lathe::text("option ", option, " is ", value, ", but must be finite"));
    }
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    return lathe::set_option(problem, option, lathe::OptionType::number, std::string(digits, end));
  });
}

lathe_status lathe_problem_set_string(lathe_problem* problem, const char* option,
                                      const char* value) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(value, "value"));
    return lathe::set_option(problem, option, lathe::OptionType::word, value);
  });
}

lathe_status lathe_problem_set_text(lathe_problem* problem, const char* option, const char* bytes,
                                    size_t size) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(problem, "problem"));
    LATHE_TRY(require(option, "option"));
    LATHE_TRY(require(bytes, "text"));
    return lathe::set_option_text(problem, option, std::string(bytes, size));
  });
}

lathe_status lathe_problem_group(lathe_problem* problem, lathe_group* group, unsigned flags) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(problem, "problem"));
    LATHE_TRY(require(group, "group"));
    LATHE_TRY(lathe::check_group_flags(*problem->op, flags));
    problem->group = group;
    problem->group_flags = flags;
    return {};
  });
}

}  // extern "C"
