// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks a whole problem against its operator's table.
#pragma once

#include "ops/problem.h"

namespace lathe {

// Holds a problem that its operator's tables allow, with what follows from it. It must not outlive
// the problem.
struct Resolved {
  const lathe_problem& problem;
  Extents extents;                      // kUnknown where they vary
  std::shared_ptr<const void> options;  // the operator's struct of options

  template <typename Options>
  const Options& options_as() const {
    return *static_cast<const Options*>(options.get());
  }
  bool has(int tensor) const { return problem.has(tensor); }
  Dtype dtype(int tensor) const { return problem.tensors[tensor].dtype; }
  int64_t operator[](Dim dim) const { return extents[dim]; }
};

// Checks required tensors, dtypes that must agree, extents that must agree, the options and, last,
// what the operator's own function refuses.
Result<Resolved> resolve(const lathe_problem& problem);

// Returns the extents of declared tensors, or an error that names the tensors that disagree.
// Offsets and the batch determine the number of sequences.
Result<Extents> declared_extents(const lathe_problem& problem);
// Resolves the number of sequences of a call: B is 1 with cu_seqlens, and N is B without. `states`
// names the tensor that has N, for the message.
Status resolve_sequences(const Operator& op, bool packed, Extents* extents,
                         const char* states = "a tensor");

// Inference uses these checks of a problem.
enum class Outputs { declared, to_infer };
// With outputs to infer, an input that needs an output passes.
Status check_required(const lathe_problem& problem, Outputs outputs = Outputs::declared);
Status check_dtypes(const lathe_problem& problem);

// Returns the bytes of the widest access, at most 16, at least one element, that the alignment and
// `channels` elements allow.
int vector_bytes(Dtype dtype, int alignment, int64_t channels);

// Returns the bytes, at most 16, that the pointers and strides of all strided tensors are multiples
// of.
int row_alignment(const Resolved& resolved);

// Rows that are sent between ranks are copied in pieces of so many bytes.
inline constexpr int kRowAlignment = 16;
// Returns UNSUPPORTED if the problem promises less; the text names the tensors that it holds for.
Status check_row_alignment(const lathe_problem& problem, int bytes);
// Checks a width that changes the code: it must be known, and a multiple of `step` from `least` to
// `most`.
Status check_width(const char* tensor, const char* dim, int64_t width, int64_t step, int64_t least,
                   int64_t most);
// Checks that each key head serves a whole group of query heads; kUnknown passes.
Status check_heads(int64_t heads, int64_t kv_heads, const char* keys = "k");
// Checks that every tensor with tokens has the same form: packed rows or rows of a batch.
Status check_form(const lathe_problem& problem, bool packed, const std::string& why);

}  // namespace lathe
