// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From tensors and settings to the library's problem, and back to what it says of each tensor.
#include "api/cli/problem.h"

#include "api/cli/inputs/text.h"

namespace lathe::cli {
namespace {

ProblemHandle create(const std::string& op, const Specs& tensors, const Settings& settings) {
  ProblemHandle problem = made<ProblemHandle>(lathe_problem_create, op.c_str());
  for (const auto& [name, spec] : tensors) {
    check(lathe_problem_tensor(problem.get(), name.c_str(), spec.dtype,
                               static_cast<int>(spec.shape.size()), spec.shape.data()));
  }
  for (const auto& [key, value] : settings) {
    check(lathe_problem_set_string(problem.get(), key.c_str(), value.c_str()));
  }
  return problem;
}

void take(const lathe_tensor_info& info, Problem* problem) {
  if (info.alias_of) problem->aliases.emplace_back(info.name, info.alias_of);
  if (!info.declared) return;
  problem->tensors[info.name] = info;
  TensorSpec spec{info.dtype, {info.shape, info.shape + info.rank}};
  for (int d = 0; d < info.rank; ++d) {
    int64_t& extent = problem->extents.try_emplace(info.dims[d], -1).first->second;
    if (info.shape[d] != -1) extent = info.shape[d] - info.added[d];
  }
  (info.read ? problem->inputs : problem->outputs)[info.name] = std::move(spec);
}

}  // namespace

int64_t extent_of(const Problem& problem, std::initializer_list<const char*> dims, int64_t none) {
  for (const char* dim : dims) {
    const auto found = problem.extents.find(dim);
    if (found != problem.extents.end()) return found->second;
  }
  return none;
}

namespace {

// Reads a kernel of the user's own. The program keeps it until it ends.
const lathe_operator_info* read_kernel(const std::string& path) {
  static std::map<std::string, OperatorHandle> known;
  OperatorHandle& kernel = known[path];
  if (!kernel) {
    const std::string text = read_text("OP", path);
    kernel = made<OperatorHandle>(lathe_operator_parse, text.data(), text.size(), path.c_str());
  }
  return lathe_operator_describe(kernel.get());
}

}  // namespace

const lathe_operator_info* find_operator(const std::string& name) {
  if (name.ends_with(kKernelEnding)) return read_kernel(name);
  create(name, {}, {});
  return lathe_operator_find(name.c_str());
}

const lathe_operator_tensor* find_tensor(const lathe_operator_info* op, const std::string& name) {
  for (const auto& tensor : tensors_of(*op)) {
    if (name == tensor.name) return &tensor;
  }
  return nullptr;
}

std::string setting(const Problem& problem, const std::string& option) {
  for (const auto& [key, value] : problem.settings) {
    if (key == option) return value;
  }
  for (const auto& each : options_of(*problem.op)) {
    if (option == each.name) return each.fallback;
  }
  return "";
}

Problem make_problem(const lathe_operator_info* op, Settings settings, const Specs& tensors,
                     const TensorMap* values) {
  const ProblemHandle handle = create(op->name, tensors, settings);
  // In the operator's order, null where there is none.
  std::vector<DLTensor> given(op->tensor_count);
  std::vector<const DLTensor*> pointers(op->tensor_count, nullptr);
  for (size_t i = 0; values && i < op->tensor_count; ++i) {
    const auto found = values->find(op->tensors[i].name);
    if (found == values->end()) continue;
    given[i] = dlpack(found->second.spec, found->second.data.data(), {kDLCPU, 0});
    pointers[i] = &given[i];
  }
  check(lathe_problem_infer(handle.get(), values ? pointers.data() : nullptr));
  Problem problem{.op = op, .settings = std::move(settings)};
  for (size_t i = 0; i < op->tensor_count; ++i) {
    take(told<lathe_tensor_info>(lathe_problem_tensor_info, handle.get(), i), &problem);
  }
  return problem;
}

bool is_changed(const Problem& problem, const std::string& name) {
  const auto found = problem.tensors.find(name);
  return found != problem.tensors.end() && found->second.read && found->second.written;
}

ProblemHandle declare(const Problem& problem) {
  ProblemHandle handle = create(problem.op->name, problem.all(), problem.settings);
  check(lathe_problem_open(handle.get()));
  check(lathe_problem_alignment(handle.get(), problem.alignment));
  return handle;
}

}  // namespace lathe::cli
