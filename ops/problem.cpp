// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declaring a problem: every refusal names the tensor or option, what was found and what is
// allowed.
#include "ops/problem.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"
#include "ops/option_text.h"

namespace lathe {
namespace {

constexpr unsigned kMethods = LATHE_ALLGATHER | LATHE_DISPATCH | LATHE_EXCHANGE_HEADS;
constexpr unsigned kGroupFlags = LATHE_REDUCE_PARAMETER_GRADS | kMethods | LATHE_NARROW_GRADIENTS;

std::string extents_text(int rank, const int64_t* shape) {
  std::string out = "[";
  for (int i = 0; i < rank; ++i) out += text(i ? ", " : "", shape[i]);
  return out + "]";
}

std::string dtype_text(lathe_dtype dtype) {
  const int index = static_cast<int>(dtype);
  if (index < 0 || index > LATHE_I64) return text("dtype number ", index);
  return word(static_cast<Dtype>(index));
}

// "its shape is [B,T,D], rank 3"; where there are several, "[B,H,Sq], rank 3, or [H,Tq], rank 2".
std::string shapes_text(const lathe_operator_tensor& tensor) {
  std::string out;
  for (std::string_view each : split(tensor.shape, '|')) {
    const Shape shape = parse_shape(each);
    out += text(out.empty() ? "its shape is " : ", or ", shape_text(shape), ", rank ", shape.rank);
  }
  return out;
}

}  // namespace

Status declare(lathe_problem& problem, const char* name, lathe_dtype dtype, int rank,
               const int64_t* shape) {
  const Operator& op = *problem.op;
  const int index = find_tensor(op, name);
  if (index < 0) {
    return invalid(
        text(op.info.name, " has no tensor ", in_quotes(name), "; it has ", tensor_names(op)));
  }
  const lathe_operator_tensor& tensor = op.info.tensors[index];
  if (tensor.alias_of) {
    return invalid(text(name, " always equals ", tensor.alias_of, " and is never written: use ",
                        tensor.alias_of, " in its place"));
  }
  Declared& declared = problem.tensors[index];
  if (declared.given) return invalid(text(name, " is declared twice"));

  const bool same = tensor.dtypes[0] == '=';
  const char* allowed =
      same ? op.info.tensors[find_tensor(op, tensor.dtypes + 1)].dtypes : tensor.dtypes;
  if (!listed(allowed, '|', dtype_text(dtype))) {
    return invalid(text(name, " has dtype ", dtype_text(dtype), "; allowed are ", allowed,
                        same ? ", that of " : "", same ? tensor.dtypes + 1 : ""));
  }
  const Shape law = shape_of_rank(tensor.shape, rank);
  if (law.rank == 0) return invalid(text(name, " has rank ", rank, "; ", shapes_text(tensor)));
  LATHE_TRY(require(shape, "shape"));
  for (int i = 0; i < rank; ++i) {
    const int64_t least = law.dims[i].plus;
    const bool fixed = law.dims[i].letter == Letter::fixed;
    if (shape[i] == kUnknown) continue;
    if (fixed && shape[i] != least) {
      return invalid(text(name, " has shape ", extents_text(rank, shape), "; extent ", i, " of ",
                          shape_text(law), " must be ", least));
    }
    if (shape[i] < least || shape[i] > kMaxExtent) {
      return invalid(text(name, " has shape ", extents_text(rank, shape), "; extent ", i, " of ",
                          shape_text(law), " must be ", least, " to ", kMaxExtent,
                          ", or -1 where it varies"));
    }
  }
  declared.given = true;
  declared.dtype = static_cast<Dtype>(dtype);
  declared.shape = law;
  for (int i = 0; i < rank; ++i) declared.extents[i] = shape[i];
  return {};
}

namespace {

const char* type_text(lathe_option_type type) {
  switch (type) {
    case LATHE_OPTION_INT:
      return "an integer";
    case LATHE_OPTION_DOUBLE:
      return "a number";
    case LATHE_OPTION_STRING:
      return "text";
  }
  return "unknown";
}

template <typename Number>
bool parses(std::string_view value, Number* number) {
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, *number);
  return error == std::errc() && stop == end;
}

// "[-5,0)": from the first to below the second.
template <typename Number>
bool in_range(std::string_view range, Number number) {
  const size_t comma = range.find(',');
  Number from = 0, below = 0;
  return range.starts_with('[') && parses(range.substr(1, comma - 1), &from) &&
         parses(range.substr(comma + 1, range.size() - comma - 2), &below) && from <= number &&
         number < below;
}

// Whether a number is in the list: a number itself, ">0", ">=0" or a range.
template <typename Number>
bool number_allowed(std::string_view allowed, Number number) {
  for (std::string_view each : split(allowed, '|')) {
    if (each == "any") return true;
    if (in_range(each, number)) return true;
    Number word = 0;
    const bool above = each.starts_with('>'), from = each.starts_with(">=");
    if (!parses(each.substr(from ? 2 : above ? 1 : 0), &word)) continue;
    if (number == word ? !above || from : above && number > word) return true;
  }
  return false;
}

bool is_allowed(const lathe_operator_option& option, const std::string& value) {
  int64_t integer = 0;
  double number = 0;
  switch (option.type) {
    case LATHE_OPTION_INT:
      return parses(value, &integer) && number_allowed(option.allowed, integer);
    case LATHE_OPTION_DOUBLE:
      // D^-0.5 and the like stand for themselves.
      if (!parses(value, &number)) return value == option.fallback;
      return std::isfinite(number) && number_allowed(option.allowed, number);
    case LATHE_OPTION_STRING:
      // FILE stands for any name.
      return listed(option.allowed, '|', value) ||
             (!value.empty() && listed(option.allowed, '|', "FILE"));
  }
  return false;
}

}  // namespace

Status set_option(lathe_problem* problem, const char* name, lathe_option_type given,
                  const std::string& value) {
  LATHE_TRY(require(problem, "problem"));
  LATHE_TRY(require(name, "option"));
  const Operator& op = *problem->op;
  const int index = find_option(op, name);
  if (index < 0) {
    return invalid(
        text(op.info.name, " has no option ", in_quotes(name), "; it has ", option_names(op)));
  }
  const lathe_operator_option& option = op.info.options[index];
  const bool widens = given == LATHE_OPTION_INT && option.type == LATHE_OPTION_DOUBLE;
  if (given != option.type && given != LATHE_OPTION_STRING && !widens) {
    return invalid(text("option ", name, " is ", type_text(option.type), " and was given ",
                        type_text(given), " (", value, "); allowed are ", option.allowed));
  }
  if (!is_allowed(option, value)) {
    return invalid(
        text("option ", name, " is ", in_quotes(value), "; allowed are ", option.allowed));
  }
  if (problem->options[index]) {
    return invalid(text("option ", name, " is set twice, to ", in_quotes(*problem->options[index]),
                        " and to ", in_quotes(value)));
  }
  if (takes_file(option) && value != option.fallback) {
    LATHE_TRY(read_option_text(problem, name, value));
  }
  // One text for one integer: 01 is 1.
  int64_t integer = 0;
  const bool whole = option.type == LATHE_OPTION_INT && parses(value, &integer);
  problem->options[index] = whole ? std::to_string(integer) : value;
  return {};
}

Status set_alignment(lathe_problem& problem, int64_t bytes) {
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16) {
    return invalid(text("alignment is ", bytes, "; allowed are 1, 2, 4, 8 and 16 bytes"));
  }
  problem.alignment = static_cast<int>(bytes);
  return {};
}

Status check_group_flags(const Operator& op, unsigned flags) {
  if (flags & ~kGroupFlags) {
    return invalid(text("group flags are ", flags,
                        "; allowed are 0 and sums of LATHE_REDUCE_PARAMETER_GRADS (1), "
                        "LATHE_NARROW_GRADIENTS (16) and one of LATHE_ALLGATHER (2), "
                        "LATHE_DISPATCH (4), LATHE_EXCHANGE_HEADS (8)"));
  }
  const unsigned method = flags & kMethods;
  if (method & (method - 1)) {
    return invalid(text("group flags are ", flags,
                        "; of LATHE_ALLGATHER (2), LATHE_DISPATCH (4) and "
                        "LATHE_EXCHANGE_HEADS (8) only one may be set"));
  }
  if (!op.info.ranks) {
    return invalid(text(op.info.name, " cannot be split over a group"));
  }
  if (method && op.chain) {
    return Status(Code::unsupported,
                  text("group flags are ", flags, "; ", op.info.name,
                       " exchanges states of contiguous parts: of LATHE_ALLGATHER (2), "
                       "LATHE_DISPATCH (4) and LATHE_EXCHANGE_HEADS (8) none is allowed"));
  }
  return {};
}

}  // namespace lathe

lathe::Shape lathe_problem::shape(int tensor) const {
  const lathe::Declared& declared = tensors[tensor];
  // Which of the table's shapes of one rank.
  for (const char* name : {"state_v_first", "axis"}) {
    if (lathe::find_option(*op, name) < 0) continue;
    return lathe::shape_of_rank(op->info.tensors[tensor].shape, declared.shape.rank,
                                std::stoi(option(name)));
  }
  return declared.shape;
}

std::string lathe_problem::option(const char* name) const {
  const int index = lathe::find_option(*op, name);
  return options[index] ? *options[index] : op->info.options[index].fallback;
}

bool lathe_problem::writes(int tensor) const {
  const lathe_operator_tensor& info = op->info.tensors[tensor];
  if (info.role == LATHE_INPUT) return false;
  if (info.changed_by) return has(lathe::find_tensor(*op, info.changed_by));
  return !info.given_if || option(info.given_if) != "1";
}
