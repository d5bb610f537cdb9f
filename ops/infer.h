// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Infers the outputs that follow from a problem's inputs and options. Checks values that a run
// reads on the device unchecked, offsets, lists, slots and pages, if a caller has them on the host.
#pragma once

#include <dlpack/dlpack.h>

#include <vector>

#include "ops/problem.h"

namespace lathe {

// Holds the tensors of a problem whose values are available, contiguous in host memory.
class Values {
 public:
  // `tensors` are as in the operator's table; null: not available. Tensors that are not declared
  // are skipped.
  Values(const lathe_problem& problem, const DLTensor* const* tensors, Extents* extents)
      : problem_(problem), tensors_(tensors), extents_(extents) {}

  // Returns INVALID_ARGUMENT for a tensor that is not contiguous host memory of the declared shape.
  Status check() const;

  const lathe_problem& problem() const { return problem_; }
  bool has(int tensor) const { return problem_.has(tensor) && tensors_[tensor] != nullptr; }
  // Returns the elements of an i32 or i64 tensor.
  std::vector<int64_t> integers(int tensor) const;
  // Returns the elements of a float32 tensor.
  std::vector<float> floats(int tensor) const;
  int64_t operator[](Dim dim) const { return (*extents_)[dim]; }
  // Sets an extent that follows from values.
  void set(Dim dim, int64_t extent) const { (*extents_)[dim] = extent; }

 private:
  const lathe_problem& problem_;
  const DLTensor* const* tensors_;
  Extents* extents_;
};

// Offsets begin with 0, never decrease and end with the packed dim's extent. Checks every tensor of
// shape N+1 or B+1: cu_seqlens cuts T, cu_seqlens_q Tq and cu_seqlens_k Tk.
Status check_offsets(const Values& values);
// A sink is a number, or -inf for none. Passes if the tensor is not available.
Status check_sinks(const Values& values, int sinks);
// Checks sinks for an operator that has nothing else to check.
template <int kSinks>
Status check_sinks_at(const Values& values) {
  return check_sinks(values, kSinks);
}

// Checks the declared inputs and declares the outputs that follow: results, as options output_NAME
// say and, if the gradient of the first result is declared, the gradients of the declared inputs.
// If outputs are declared already, they are the wanted ones, and the function adds none. `values`
// are as Values takes them. If null, extents that follow from values are unknown, or the largest
// possible.
Status infer(lathe_problem* problem, const DLTensor* const* values);

// Sets to unknown every extent that may vary from call to call.
void open_extents(lathe_problem* problem);

}  // namespace lathe
