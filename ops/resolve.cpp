// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks a whole problem, dim by dim, and parses its options.
#include "ops/resolve.h"

#include <algorithm>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

Status check_produces(const lathe_problem& problem) {
  const Operator& op = *problem.op;
  for (std::string_view name : split(op.produces, ',')) {
    const int index = find_tensor(op, name);
    if (problem.has(index) && problem.writes(index)) return {};
  }
  return invalid(text(op.name, " has nothing to compute: declare at least one of ", op.produces));
}

// Collects each dim's extent, and remembers which tensor has it.
Status collect_extents(const lathe_problem& problem, Extents* extents) {
  const Operator& op = *problem.op;
  std::array<const char*, kDimCount> from{};
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    if (!problem.has(static_cast<int>(i))) continue;
    const TensorInfo& tensor = op.tensors[i];
    const Shape shape = problem.shape(static_cast<int>(i));
    for (int d = 0; d < shape.rank; ++d) {
      const int64_t declared = problem.tensors[i].extents[d];
      if (declared == kUnknown) continue;
      const int64_t found = declared - shape.dims[d].plus;
      const Dim dim = shape.dims[d].dim;
      const char*& first = from[static_cast<int>(dim)];
      int64_t& known = (*extents)[dim];
      if (known != kUnknown && known != found) {
        return invalid(text(tensor.name, " has extent ", declared, " at ", d, " of ",
                            shape_text(shape), ", so ", shape.name(dim), " is ", found, "; ",
                            first ? first : "the table", " says ", shape.name(dim), " is ", known));
      }
      if (known == kUnknown) first = tensor.name;
      known = found;
    }
  }
  return {};
}

// An option output_NAME that is set says what declaring the tensor NAME says.
Status check_output_option(const lathe_problem& problem, size_t option) {
  constexpr std::string_view kOutput = "output_";
  const Operator& op = *problem.op;
  const std::string_view name = op.options[option].name;
  const auto& value = problem.options[option];
  if (!name.starts_with(kOutput) || !value) return {};
  const std::string_view tensor = name.substr(kOutput.size());
  const bool declared = problem.has(find_tensor(op, tensor));
  if ((*value == "1") == declared) return {};
  return invalid(text("option ", name, " is ", *value, ", but ", tensor, " is ",
                      declared ? "" : "not ", "declared"));
}

// Returns the operator's struct of options, with the set values and else its defaults.
Result<std::shared_ptr<const void>> parse_options(const lathe_problem& problem) {
  const Operator& op = *problem.op;
  const std::shared_ptr<void> out = op.new_options ? op.new_options() : nullptr;
  for (size_t i = 0; i < op.options.size(); ++i) {
    LATHE_TRY(check_output_option(problem, i));
    const OptionInfo& option = op.options[i];
    if (option.store == nullptr) continue;
    LATHE_TRY(option.store(option, problem.options[i].value_or(option.fallback), out.get()));
  }
  return std::shared_ptr<const void>(out);
}

}  // namespace

Status check_required(const lathe_problem& problem, Outputs outputs) {
  const Operator& op = *problem.op;
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    const TensorInfo& tensor = op.tensors[i];
    if (!problem.has(static_cast<int>(i))) {
      const bool inferred = outputs == Outputs::to_infer && tensor.role == Role::output;
      if (tensor.is_optional || inferred) continue;
      return invalid(text(tensor.name, " is not declared, but ", op.name, " requires it"));
    }
    for (std::string_view needed : split(tensor.needed, ',')) {
      const int index = find_tensor(op, needed);
      if (problem.has(index)) continue;
      if (outputs == Outputs::to_infer && op.tensors[index].role == Role::output) continue;
      return invalid(text(tensor.name, " is declared without ", needed, ", which it needs"));
    }
  }
  return {};
}

Status check_dtypes(const lathe_problem& problem) {
  const Operator& op = *problem.op;
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    const TensorInfo& tensor = op.tensors[i];
    if (!problem.has(static_cast<int>(i)) || tensor.dtypes[0] != '=') continue;
    const Dtype found = problem.tensors[i].dtype;
    const Dtype allowed = problem.tensors[find_tensor(op, tensor.dtypes + 1)].dtype;
    if (found != allowed) {
      return invalid(text(tensor.name, " has dtype ", word(found), "; allowed is ", word(allowed),
                          ", that of ", tensor.dtypes + 1));
    }
  }
  return {};
}

Status resolve_sequences(const Operator& op, bool packed, Extents* extents, const char* states) {
  int64_t& batch = (*extents)[Dim::B];
  int64_t& sequences = (*extents)[Dim::N];
  if (op.sequences == Sequences::apart) return {};
  if (op.sequences == Sequences::either) {
    // Packed rows have no batch axis; what is given for each row of the batch is for each sequence.
    if (batch != kUnknown && sequences != kUnknown && batch != sequences) {
      return invalid(
          text("alibi_slopes has B = ", batch, "; cu_seqlens_q has N = ", sequences, " sequences"));
    }
    (batch == kUnknown ? batch : sequences) = batch == kUnknown ? sequences : batch;
    return {};
  }
  if (packed) {
    if (batch != kUnknown && batch != 1) {
      return invalid(text("cu_seqlens is given and ", op.tensors[0].name, " has B = ", batch,
                          "; packed sequences need B = 1"));
    }
    return {};
  }
  if (batch != kUnknown && sequences != kUnknown && batch != sequences) {
    return invalid(text(states, " has N = ", sequences, " and ", op.tensors[0].name,
                        " has B = ", batch,
                        "; without cu_seqlens there is one state for each row of the batch"));
  }
  if (batch != kUnknown) sequences = batch;
  return {};
}

Result<Extents> declared_extents(const lathe_problem& problem) {
  Extents extents;
  LATHE_TRY(collect_extents(problem, &extents));
  bool packed = false;
  for (const Declared& declared : problem.tensors) {
    packed = packed || (declared.given && declared.shape.dims[0].plus != 0);
  }
  const char* states = "a tensor";
  for (size_t i = problem.op->tensors.size(); i-- > 0;) {
    const Declared& declared = problem.tensors[i];
    if (declared.given && has_dim(declared.shape, Dim::N)) states = problem.op->tensors[i].name;
  }
  // Packed offsets beside q in batches: the operator's check says which of the two is meant.
  const bool mixed = packed && problem.op->sequences == Sequences::either &&
                     is_batched_shape(problem.tensors[0].shape);
  if (!mixed) LATHE_TRY(resolve_sequences(*problem.op, packed, &extents, states));
  return extents;
}

Result<Resolved> resolve(const lathe_problem& problem) {
  LATHE_TRY(check_produces(problem));
  LATHE_TRY(check_required(problem));
  LATHE_TRY(check_dtypes(problem));
  LATHE_ASSIGN(const Extents extents, declared_extents(problem));
  LATHE_ASSIGN(std::shared_ptr<const void> options, parse_options(problem));
  Resolved resolved{problem, extents, std::move(options)};
  LATHE_TRY(problem.op->check(resolved));
  LATHE_TRY(check_row_alignment(problem, problem.op->least_alignment));
  return resolved;
}

int vector_bytes(Dtype dtype, int alignment, int64_t channels) {
  const int element = bytes_of(dtype);
  if (channels == kUnknown) return element;
  int bytes = 16;
  while (bytes > element && (alignment % bytes != 0 || channels * element % bytes != 0)) bytes /= 2;
  return bytes;
}

int row_alignment(const Resolved& resolved) {
  const lathe_problem& problem = resolved.problem;
  int least = 16;
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const Declared& declared = problem.tensors[i];
    if (!declared.given || !problem.op->tensors[i].is_strided) continue;
    const Dim last = declared.shape.dims[declared.shape.rank - 1].dim;
    least = std::min(least, vector_bytes(declared.dtype, problem.alignment, resolved[last]));
  }
  return least;
}

Status check_row_alignment(const lathe_problem& problem, int bytes) {
  if (problem.alignment >= bytes) return {};
  std::string names;
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    if (!problem.tensors[i].given || !is_wide(problem.op->tensors[i])) continue;
    names += text(names.empty() ? "" : ", ", problem.op->tensors[i].name);
  }
  return unsupported(text("the problem promises addresses and strides that are multiples of ",
                          problem.alignment, " bytes (lathe_problem_alignment); ", problem.op->name,
                          " accesses rows of ", names, " in pieces of ", bytes, ": allowed ",
                          bytes == 16 ? "is " : text("are ", bytes, " to "),
                          "16, with a copy of each tensor that is less aligned"));
}

Status check_width(const char* tensor, const char* dim, int64_t width, int64_t step, int64_t least,
                   int64_t most) {
  if (width >= least && width <= most && width % step == 0) return {};
  const bool open = width == kUnknown;
  const std::string bounds =
      least > step || step == 1 ? text(least, " to ", most) : text("up to ", most);
  return invalid(text(tensor, " has ", dim, " = ", width,
                      open ? "; it changes the code and must be given, " : "; allowed are ",
                      step == 1 ? "" : text(open ? "a multiple of " : "multiples of ", step, " "),
                      step != 1 && least > step ? "from " : "", bounds));
}

Status check_heads(int64_t heads, int64_t kv_heads, const char* keys) {
  if (heads == kUnknown || kv_heads == kUnknown) return {};
  if (kv_heads == 0 ? heads == 0 : heads % kv_heads == 0) return {};
  return invalid(text("q has H = ", heads, " and ", keys, " has HK = ", kv_heads,
                      "; allowed are H that are a multiple of HK"));
}

Status check_form(const lathe_problem& problem, bool packed, const std::string& why) {
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const TensorInfo& tensor = problem.op->tensors[i];
    const Declared& declared = problem.tensors[i];
    if (!declared.given || !(packed ? is_batched_shape : is_packed_shape)(declared.shape)) continue;
    for (const Shape& allowed : parse_shapes(tensor.shape)) {
      if (allowed.rank == declared.shape.rank) continue;
      return invalid(text(tensor.name, " has rank ", declared.shape.rank, ", ",
                          shape_text(declared.shape), "; allowed is ", shape_text(allowed), ", ",
                          why));
    }
  }
  return {};
}

}  // namespace lathe
