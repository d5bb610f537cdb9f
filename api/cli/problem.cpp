// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From tensors and settings to a problem, by the operator table.
#include "api/cli/problem.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "api/cli/extents.h"

namespace lathe::cli {
namespace {

std::span<const lathe_operator_tensor> tensors_of(const lathe_operator_info* op) {
  return {op->tensors, op->tensor_count};
}

bool has_option(const lathe_operator_info* op, const std::string& name) {
  for (size_t i = 0; i < op->option_count; ++i) {
    if (name == op->options[i].name) return true;
  }
  return false;
}

std::vector<std::string> names_of(const lathe_operator_info* op, bool inputs_only) {
  std::vector<std::string> out;
  for (const auto& tensor : tensors_of(op)) {
    if (!inputs_only || tensor.role != LATHE_OUTPUT) out.push_back(tensor.name);
  }
  return out;
}

// Offsets of packed sequences are called cu_seqlens, or cu_seqlens_q if they cut Tq.
const std::string kOffsets = "cu_seqlens";
std::string cut_letter(const std::string& offsets) {
  return offsets == kOffsets ? "T" : "T" + offsets.substr(kOffsets.size() + 1);
}

void check_names(const lathe_operator_info* op, const Specs& tensors) {
  for (const auto& [name, spec] : tensors) {
    const auto* tensor = find_tensor(op, name);
    if (!tensor) {
      refuse("tensor " + in_quotes(name) + " is unknown to " + op->name +
             ", known: " + joined(names_of(op, true)));
    }
  }
  for (const auto& tensor : tensors_of(op)) {
    if (tensor.role != LATHE_OUTPUT && !tensor.optional && !tensors.contains(tensor.name)) {
      std::vector<std::string> needed;
      for (const auto& other : tensors_of(op)) {
        if (other.role != LATHE_OUTPUT && !other.optional) needed.push_back(other.name);
      }
      refuse("tensor " + std::string(tensor.name) + " is missing, " + op->name +
             " needs: " + joined(needed));
    }
  }
}

// Extents that follow from others: heads of a group, and the width of values that are keys.
void imply_derived(const Problem& problem, Extents* extents) {
  if (!find_tensor(problem.op, "softmax_max")) return;
  const auto& known = problem.extents;
  const auto value = [&](const char* letter) {
    const auto found = known.find(letter);
    return found == known.end() ? -1 : found->second;
  };
  if (value("H") >= 0 && value("HK") > 0) extents->imply("G", value("H") / value("HK"), "q");
  if (value("D") >= 0) extents->imply("DV", value("D"), "k");
}

// Which of a tensor's shapes of one rank.
int shape_number(const Problem& problem) {
  if (setting(problem, "state_v_first") == "1") return 1;
  const std::string axis = setting(problem, "axis");
  return axis.size() == 1 ? std::atoi(axis.c_str()) : 0;
}

// N sequences: what the offsets say if there are any, else one per row of the batch. Packed rows
// either have a batch axis, of one row, or none: then what goes by rows goes by sequences.
void bind_extents(Problem* problem) {
  Extents extents(&problem->extents, shape_number(*problem));
  const auto bind = [&](const std::string& name, const TensorSpec& spec) {
    extents.bind(*find_tensor(problem->op, name), spec);
  };
  for (const auto& tensor : tensors_of(problem->op)) {
    const auto found = problem->inputs.find(tensor.name);
    if (found != problem->inputs.end() && !tensor.optional) bind(found->first, found->second);
  }
  const auto offsets = problem->inputs.lower_bound(kOffsets);
  const auto batch = problem->extents.find("B");
  if (offsets != problem->inputs.end() && offsets->first.starts_with(kOffsets)) {
    const bool rows = problem->extents.contains("T");
    if (rows && batch != problem->extents.end() && batch->second != 1 && batch->second != -1) {
      refuse("tensor " + offsets->first + " is given, so B must be 1, but B is " +
             std::to_string(batch->second));
    }
    bind(offsets->first, offsets->second);
    if (!rows) extents.imply("B", problem->extents.at("N"), offsets->first);
  } else if (batch != problem->extents.end()) {
    extents.imply("N", batch->second, "the batch");
  }
  for (const auto& [name, spec] : problem->inputs) bind(name, spec);
  for (const auto& [name, spec] : problem->outputs) bind(name, spec);
  imply_derived(*problem, &extents);
}

// "=x" follows a tensor, as a list does that has the dtype of q; otherwise the first of the list.
lathe_dtype output_dtype(const Problem& problem, const lathe_operator_tensor& tensor) {
  const std::string dtypes = tensor.dtypes;
  const auto queries = problem.inputs.find("q");
  if (queries != problem.inputs.end() && dtypes.find('|') < dtypes.npos &&
      ("|" + dtypes + "|").find("|" + std::string(info(queries->second.dtype).word) + "|") <
          dtypes.npos) {
    return queries->second.dtype;
  }
  if (dtypes.starts_with('=')) {
    const auto source = problem.inputs.find(dtypes.substr(1));
    if (source != problem.inputs.end()) return source->second.dtype;
  }
  const auto* dtype = find_dtype_word(dtypes.substr(0, dtypes.find('|')));
  if (!dtype) fail("the operator table has no dtype for " + std::string(tensor.name));
  return dtype->dtype;
}

// Of several shapes the one whose extents are all there; the first if none is.
std::vector<std::string> output_letters(const Problem& problem,
                                        const lathe_operator_tensor& tensor) {
  const auto all = shapes(tensor);
  for (const auto& each : all) {
    const auto known = [&](const std::string& text) {
      return problem.extents.contains(parse_letter(text).first);
    };
    if (!std::all_of(each.begin(), each.end(), known)) continue;
    return letters(tensor, each.size(), shape_number(problem));
  }
  return all.front();
}

TensorSpec output_spec(const Problem& problem, const lathe_operator_tensor& tensor) {
  TensorSpec spec{output_dtype(problem, tensor), {}};
  for (const std::string& text : output_letters(problem, tensor)) {
    const auto [letter, extra] = parse_letter(text);
    const auto known = problem.extents.find(letter);
    const int64_t value = known == problem.extents.end() ? -1 : known->second;
    spec.shape.push_back(value == -1 ? -1 : value + extra);
  }
  return spec;
}

std::string gradient_of(const char* name) {
  std::string out("d");
  out += name;
  return out;
}

// The gradients that come in are "d" + the name of an output. That of the first output decides
// whether the backward runs; an operator that cannot do without one does nothing else.
bool wants_backward(const Problem& problem) {
  std::string decisive;
  for (const auto& tensor : tensors_of(problem.op)) {
    const bool needed = tensor.role == LATHE_INPUT && !tensor.optional && tensor.name[0] == 'd';
    if (needed && find_tensor(problem.op, tensor.name + 1)) return true;
  }
  for (const auto& tensor : tensors_of(problem.op)) {
    if (tensor.role != LATHE_OUTPUT) continue;
    const std::string gradient = gradient_of(tensor.name);
    if (decisive.empty()) decisive = gradient;
    if (problem.inputs.contains(decisive)) return true;
    if (problem.inputs.contains(gradient)) {
      refuse("tensor " + gradient + " is given without " + decisive + ": the backward runs if " +
             decisive + " is there");
    }
  }
  return false;
}

// Gradients with the backward, what an option output_NAME asks for if it does, all else always, but
// with the tensor whose dtype it has.
bool is_wanted(const Problem& problem, const lathe_operator_tensor& tensor, bool backward) {
  const std::string name = tensor.name, dtypes = tensor.dtypes;
  if (dtypes.starts_with('=') && !problem.inputs.contains(dtypes.substr(1))) return false;
  if (is_input_gradient(problem.op, name)) {
    return backward && problem.inputs.contains(name.substr(1));
  }
  const std::string option = "output_" + name;
  return !has_option(problem.op, option) || setting(problem, option) != "0";
}

// "=x" is the dtype of x.
void check_dtypes(const Problem& problem) {
  for (const auto& [name, spec] : problem.inputs) {
    std::string allowed = find_tensor(problem.op, name)->dtypes;
    std::string source;
    if (allowed.starts_with('=')) {
      source = ", that of " + allowed.substr(1);
      if (!problem.inputs.contains(allowed.substr(1))) {
        refuse("tensor " + name + " is given without " + allowed.substr(1) + ", which it needs");
      }
      allowed = info(problem.inputs.at(allowed.substr(1)).dtype).word;
    }
    const std::string word = info(spec.dtype).word;
    if (("|" + allowed + "|").find("|" + word + "|") == std::string::npos) {
      refuse("tensor " + name + " has dtype " + word + ", allowed: " + allowed + source);
    }
  }
}

void check_offsets(const Problem& problem, const std::string& name, const HostTensor& tensor) {
  const lathe_dtype dtype = tensor.spec.dtype;
  if (dtype != LATHE_I32 && dtype != LATHE_I64) {
    refuse("tensor " + name + " has dtype " + info(dtype).word + ", allowed: i32, i64");
  }
  const std::string letter = cut_letter(name);
  const auto length = problem.extents.find(letter);
  if (length == problem.extents.end()) {
    refuse("tensor " + name + " is given, but no tensor is packed: none has the extent " + letter);
  }
  const std::vector<int64_t> offsets = integers(tensor);
  if (offsets.front() != 0) {
    refuse("tensor " + name + " begins with " + std::to_string(offsets.front()) + ", it must be 0");
  }
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) {
      refuse("tensor " + name + " decreases from " + std::to_string(offsets[i - 1]) + " to " +
             std::to_string(offsets[i]) + " at entry " + std::to_string(i) +
             ", it must never decrease");
    }
  }
  if (offsets.back() != length->second) {
    refuse("tensor " + name + " ends with " + std::to_string(offsets.back()) + ", it must be " +
           letter + " = " + std::to_string(length->second));
  }
}

}  // namespace

const lathe_operator_info* find_operator(const std::string& name) {
  const auto* op = lathe_operator_find(name.c_str());
  if (op) return op;
  std::vector<std::string> known;
  for (size_t i = 0; i < lathe_operator_count(); ++i) known.push_back(lathe_operator_at(i)->name);
  refuse("operator " + in_quotes(name) + " is unknown, known: " + joined(known));
}

const lathe_operator_tensor* find_tensor(const lathe_operator_info* op, const std::string& name) {
  for (const auto& tensor : tensors_of(op)) {
    if (name == tensor.name) return &tensor;
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

bool is_given(const Problem& problem, const lathe_operator_tensor& tensor) {
  if (tensor.role != LATHE_OUTPUT) return true;
  return tensor.given_if && setting(problem, tensor.given_if) == "1";
}

Problem make_problem(const lathe_operator_info* op, Settings settings, const Specs& tensors) {
  Problem problem;
  problem.op = op;
  problem.settings = std::move(settings);
  check_names(op, tensors);
  for (const auto& [name, spec] : tensors) {
    const bool given = is_given(problem, *find_tensor(op, name));
    (given ? problem.inputs : problem.outputs)[name] = spec;
  }
  check_dtypes(problem);
  bind_extents(&problem);
  imply_chunks(&problem);
  const bool backward = wants_backward(problem);
  if (!problem.outputs.empty()) return problem;
  for (const auto& tensor : tensors_of(op)) {
    if (is_given(problem, tensor) || !is_wanted(problem, tensor, backward)) continue;
    if (tensor.alias_of) {
      problem.aliases.emplace_back(tensor.name, tensor.alias_of);
    } else {
      problem.outputs[tensor.name] = output_spec(problem, tensor);
    }
  }
  return problem;
}

void check_offsets(const Problem& problem, const TensorMap& inputs) {
  for (auto found = inputs.lower_bound(kOffsets);
       found != inputs.end() && found->first.starts_with(kOffsets); ++found) {
    check_offsets(problem, found->first, found->second);
  }
}

void check_sinks(const TensorMap& inputs) {
  const auto sinks = inputs.find("sinks");
  if (sinks == inputs.end()) return;
  for (int64_t i = 0; i < element_count(sinks->second.spec.shape); ++i) {
    if (!std::isnan(element(sinks->second, i))) continue;
    refuse("tensor sinks holds nan at entry " + std::to_string(i) +
           ", allowed: numbers, or -inf for no sink");
  }
}

bool is_input_gradient(const lathe_operator_info* op, const std::string& name) {
  if (!name.starts_with('d')) return false;
  const auto* of = find_tensor(op, name.substr(1));
  return of && of->role != LATHE_OUTPUT;
}

ProblemHandle declare(const Problem& problem) {
  lathe_problem* raw = nullptr;
  check(lathe_problem_create(&raw, problem.op->name));
  ProblemHandle handle(raw);
  for (const auto* specs : {&problem.inputs, &problem.outputs}) {
    for (const auto& [name, spec] : *specs) {
      std::vector<int64_t> shape = spec.shape;
      const auto names = letters(*find_tensor(problem.op, name), shape.size());
      for (size_t i = 0; i < shape.size(); ++i) {
        if (varies(parse_letter(names[i]).first)) shape[i] = -1;
      }
      check(lathe_problem_tensor(raw, name.c_str(), spec.dtype, static_cast<int>(shape.size()),
                                 shape.data()));
    }
  }
  for (const auto& [key, value] : problem.settings) {
    check(lathe_problem_set_string(raw, key.c_str(), value.c_str()));
  }
  return handle;
}

}  // namespace lathe::cli
