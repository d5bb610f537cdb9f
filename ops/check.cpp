// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks of a whole problem, letter by letter.
#include "ops/check.h"

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

Status check_presence(const lathe_problem& problem) {
  const Operator& op = *problem.op;
  bool produces = false;
  for (std::string_view output : split(op.produces, ',')) {
    const int index = find_tensor(op, output);
    produces = produces || (problem.has(index) && problem.writes(index));
  }
  if (!produces) {
    return invalid(
        text(op.info.name, " has nothing to compute: declare at least one of ", op.produces));
  }
  for (size_t i = 0; i < op.info.tensor_count; ++i) {
    const lathe_operator_tensor& tensor = op.info.tensors[i];
    if (!problem.has(static_cast<int>(i))) {
      if (tensor.optional) continue;
      return invalid(text(tensor.name, " is not declared, but ", op.info.name, " requires it"));
    }
    for (std::string_view needed : split(op.rules[i].needs, ',')) {
      if (problem.has(find_tensor(op, needed))) continue;
      return invalid(text(tensor.name, " is declared without ", needed, ", which it needs"));
    }
  }
  return {};
}

Status check_dtypes(const lathe_problem& problem) {
  const Operator& op = *problem.op;
  for (size_t i = 0; i < op.info.tensor_count; ++i) {
    const lathe_operator_tensor& tensor = op.info.tensors[i];
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

// Each letter's extent, and which tensor said so.
Status collect_extents(const lathe_problem& problem, Extents* extents) {
  const Operator& op = *problem.op;
  std::array<const char*, kLetters> from{};
  for (size_t i = 0; i < op.info.tensor_count; ++i) {
    if (!problem.has(static_cast<int>(i))) continue;
    const lathe_operator_tensor& tensor = op.info.tensors[i];
    const Shape shape = problem.shape(static_cast<int>(i));
    for (int d = 0; d < shape.rank; ++d) {
      const int64_t declared = problem.tensors[i].extents[d];
      if (declared == kUnknown) continue;
      const int64_t found = declared - shape.dims[d].plus;
      const int letter = static_cast<int>(shape.dims[d].letter);
      int64_t& known = (*extents)[shape.dims[d].letter];
      if (known != kUnknown && known != found) {
        return invalid(text(tensor.name, " has extent ", declared, " at ", d, " of ",
                            shape_text(shape), ", so ", kLetterNames[letter], " is ", found, "; ",
                            from[letter], " says ", kLetterNames[letter], " is ", known));
      }
      known = found;
      from[letter] = tensor.name;
    }
  }
  return {};
}

}  // namespace

Status settle_sequences(const Operator& op, bool packed, Extents* extents) {
  int64_t& batch = (*extents)[Letter::B];
  int64_t& sequences = (*extents)[Letter::N];
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
      return invalid(text("cu_seqlens is given and ", op.info.tensors[0].name, " has B = ", batch,
                          "; packed sequences need B = 1"));
    }
    return {};
  }
  if (batch != kUnknown && sequences != kUnknown && batch != sequences) {
    return invalid(text("N is ", sequences, " and B is ", batch,
                        "; without cu_seqlens there is one state for each row of the batch"));
  }
  if (batch != kUnknown) sequences = batch;
  return {};
}

Result<Extents> check_problem(const lathe_problem& problem) {
  const Operator& op = *problem.op;
  LATHE_TRY(check_presence(problem));
  LATHE_TRY(check_dtypes(problem));
  Extents extents;
  LATHE_TRY(collect_extents(problem, &extents));
  bool packed = false;
  for (const Declared& declared : problem.tensors) {
    packed = packed || (declared.given && declared.shape.dims[0].plus != 0);
  }
  LATHE_TRY(settle_sequences(op, packed, &extents));
  LATHE_TRY(op.check(problem, extents));
  return extents;
}

int vector_bytes(Dtype dtype, int alignment, int64_t channels) {
  const int element = bytes_of(dtype);
  if (channels == kUnknown) return element;
  int bytes = 16;
  while (bytes > element && (alignment % bytes != 0 || channels * element % bytes != 0)) bytes /= 2;
  return bytes;
}

}  // namespace lathe
