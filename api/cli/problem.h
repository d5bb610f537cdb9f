// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A problem as the command line or a file gives it, and what the library makes of it: which tensors
// go in, which come out, and their extents. No operator is known by name here.
#pragma once

#include <span>
#include <utility>

#include "api/cli/handles.h"
#include "api/cli/inputs/tensors.h"

namespace lathe::cli {

// A problem has this alignment unless lathe_problem_alignment sets another.
inline constexpr int kBestAlignment = 16;

using Settings = std::vector<std::pair<std::string, std::string>>;

struct Problem {
  const lathe_operator_info* op = nullptr;
  Settings settings;
  int alignment = kBestAlignment;  // that pointers and strides are promised to have, in bytes
  std::map<std::string, lathe_tensor_info> tensors;          // those that a run has
  Specs inputs;                                              // also those that are changed in place
  Specs outputs;                                             // those that are only written
  std::vector<std::pair<std::string, std::string>> aliases;  // dresidual is the bytes of dy
  std::map<std::string, int64_t> extents;                    // B, T, D, ...; -1: varies

  Specs all() const {
    Specs both = inputs;
    both.insert(outputs.begin(), outputs.end());
    return both;
  }
};

// Returns the extent of the first of some dims that the problem has; `none` without any.
int64_t extent_of(const Problem& problem, std::initializer_list<const char*> dims, int64_t none);

// Return the tensors and the options of an operator, in its order.
inline std::span<const lathe_operator_tensor> tensors_of(const lathe_operator_info& op) {
  return {op.tensors, op.tensor_count};
}
inline std::span<const lathe_operator_option> options_of(const lathe_operator_info& op) {
  return {op.options, op.option_count};
}

// A path that ends in it is a kernel of the user's own, wherever an operator's name may stand.
inline constexpr std::string_view kKernelEnding = ".cuh";

// Refuses unknown operators, naming those there are.
const lathe_operator_info* find_operator(const std::string& name);
const lathe_operator_tensor* find_tensor(const lathe_operator_info* op, const std::string& name);

// The value of an option; its default if it is not set.
std::string setting(const Problem& problem, const std::string& option);

// Makes the problem of these tensors. Outputs among them are taken as the list of what is wanted;
// without any, lathe_problem_infer says. `values` (may be null) are checked, where kernels would
// trust them.
Problem make_problem(const lathe_operator_info* op, Settings settings, const Specs& tensors,
                     const TensorMap* values = nullptr);

// True if a tensor is in and out, and the run changes it.
bool is_changed(const Problem& problem, const std::string& name);

// Makes the library's problem. Extents that may change from run to run are left open, so that the
// plan is the same one that a manifest with open extents makes.
ProblemHandle declare(const Problem& problem);

// Returns the slots of a call of the plan, filled with these tensors by name.
template <typename Tensors>
std::vector<const DLTensor*> slots_of(const lathe_plan* plan, const Tensors& tensors) {
  std::vector<const DLTensor*> slots(lathe_plan_slot_count(plan), nullptr);
  for (const auto& [name, tensor] : tensors) {
    size_t slot = 0;
    check(lathe_plan_slot(plan, name.c_str(), &slot));
    slots[slot] = &tensor;
  }
  return slots;
}

}  // namespace lathe::cli
