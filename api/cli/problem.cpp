// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From tensors and settings to the library's problem, and back to what it says of each tensor.
#include "api/cli/problem.h"

#include <set>

namespace lathe::cli {
namespace {

ProblemHandle create(const std::string& op) {
  return made<ProblemHandle>(lathe_problem_create, op.c_str());
}

void set_options(lathe_problem* problem, const Settings& settings) {
  for (const auto& [key, value] : settings) {
    check(lathe_problem_set_string(problem, key.c_str(), value.c_str()));
  }
}

// Host tensors as the library reads values: in the operator's order, NULL where there is none.
struct HostValues {
  HostValues(const lathe_operator_info* op, const TensorMap& tensors) {
    for (size_t i = 0; i < op->tensor_count; ++i) {
      const auto found = tensors.find(op->tensors[i].name);
      if (found == tensors.end()) {
        pointers.push_back(nullptr);
        continue;
      }
      kept.push_back(std::make_unique<ShapeTensor>(found->second));
      pointers.push_back(kept.back()->dlpack());
    }
  }
  std::vector<std::unique_ptr<ShapeTensor>> kept;
  std::vector<const DLTensor*> pointers;
};

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

const lathe_operator_info* find_operator(const std::string& name) {
  create(name);
  return lathe_operator_find(name.c_str());
}

const lathe_operator_tensor* find_tensor(const lathe_operator_info* op, const std::string& name) {
  for (size_t i = 0; i < op->tensor_count; ++i) {
    if (name == op->tensors[i].name) return &op->tensors[i];
  }
  return nullptr;
}

Settings parse_settings(const std::vector<std::string>& texts) {
  Settings out;
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      refuse("--set is " + in_quotes(text) + ", expected key=value");
    }
    const std::string key = text.substr(0, equals);
    if (!seen.insert(key).second) refuse("--set " + in_quotes(key) + " is given twice");
    out.emplace_back(key, text.substr(equals + 1));
  }
  return out;
}

std::string setting(const Problem& problem, const std::string& option) {
  for (const auto& [key, value] : problem.settings) {
    if (key == option) return value;
  }
  for (size_t i = 0; i < problem.op->option_count; ++i) {
    if (option == problem.op->options[i].name) return problem.op->options[i].fallback;
  }
  return "";
}

Problem make_problem(const lathe_operator_info* op, Settings settings, const Specs& tensors,
                     const TensorMap* values) {
  const ProblemHandle handle = create(op->name);
  for (const auto& [name, spec] : tensors) {
    check(lathe_problem_tensor(handle.get(), name.c_str(), spec.dtype,
                               static_cast<int>(spec.shape.size()), spec.shape.data()));
  }
  set_options(handle.get(), settings);
  if (values) {
    check(lathe_problem_infer(handle.get(), HostValues(op, *values).pointers.data()));
  } else {
    check(lathe_problem_infer(handle.get(), nullptr));
  }
  Problem problem;
  problem.op = op;
  problem.settings = std::move(settings);
  for (size_t i = 0; i < op->tensor_count; ++i) {
    take(told<lathe_tensor_info>(lathe_problem_tensor_info, handle.get(), i), &problem);
  }
  return problem;
}

bool is_changed(const Problem& problem, const std::string& name) {
  const auto found = problem.tensors.find(name);
  return found != problem.tensors.end() && found->second.read && found->second.written;
}

bool is_input_gradient(const lathe_operator_info* op, const std::string& name) {
  if (!name.starts_with('d')) return false;
  const auto* of = find_tensor(op, name.substr(1));
  return of && of->role != LATHE_OUTPUT;
}

ProblemHandle declare(const Problem& problem) {
  ProblemHandle handle = create(problem.op->name);
  for (const auto& [name, info] : problem.tensors) {
    check(lathe_problem_tensor(handle.get(), name.c_str(), info.dtype, info.rank, info.shape));
  }
  set_options(handle.get(), problem.settings);
  check(lathe_problem_open(handle.get()));
  return handle;
}

DeviceTensors on_device(lathe_context* context, const Problem& problem, const TensorMap& values) {
  DeviceTensors tensors;
  for (const auto* specs : {&problem.inputs, &problem.outputs}) {
    for (const auto& [name, spec] : *specs) tensors.try_emplace(name, context, spec);
  }
  for (const auto& [name, value] : values) tensors.at(name).upload(value.data, nullptr);
  return tensors;
}

}  // namespace lathe::cli
