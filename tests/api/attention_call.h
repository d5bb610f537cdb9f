// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One call of flash_attention through the C API, under the simulator's checkers: tensors by name,
// options by name, snippets as texts; what came out, and what it took.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/api/session.h"
#include "tests/numbers.h"

namespace apitest {

using Values = std::vector<double>;

struct GivenTensor {
  lathe_dtype dtype = LATHE_F32;
  std::vector<int64_t> shape;
  Values values;         // empty: an output
  bool changed = false;  // in and out
};

struct AttentionCall {
  const char* op = "flash_attention";
  std::map<std::string, GivenTensor> tensors;
  std::map<std::string, std::string> options, texts;

  void put(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape, Values values) {
    tensors[name] = {dtype, std::move(shape), std::move(values)};
  }
  // Normal values, rounded to the type.
  void draw(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    Values values(count(shape));
    for (double& value : values) value = numbers::rounded(dtype, normal(random));
    put(name, dtype, std::move(shape), std::move(values));
  }
  void want(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape) {
    tensors[name] = {dtype, std::move(shape), {}};
  }
  static size_t count(const std::vector<int64_t>& shape) {
    return static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  }
};

struct AttentionAnswer {
  std::map<std::string, Values> outputs;
  uint64_t tensor_ops = 0, launches = 0, compiled = 0;
};

// Lengths are left open, so that calls that differ in nothing else share kernels.
inline Problem declare(const AttentionCall& call) {
  lathe_problem* made = nullptr;
  API(lathe_problem_create(&made, call.op));
  Problem problem(made);
  for (const auto& [name, given] : call.tensors) {
    std::vector<int64_t> shape = given.shape;
    if (shape.size() != 1 || name.starts_with("c")) shape[0] = -1;
    if (shape.size() == 4) shape[1] = -1;
    if (shape.size() == 2) shape[1] = -1;
    if (name == "lse" || name == "dlse") shape.back() = -1;
    API(lathe_problem_tensor(made, name.c_str(), given.dtype, static_cast<int>(shape.size()),
                             shape.data()));
  }
  for (const auto& [name, value] : call.options) {
    API(lathe_problem_set_string(made, name.c_str(), value.c_str()));
  }
  for (const auto& [name, text] : call.texts) {
    API(lathe_problem_set_text(made, name.c_str(), text.data(), text.size()));
  }
  return problem;
}

// Nothing may be found.
inline AttentionAnswer run(lathe_context* context, const AttentionCall& call) {
  const Problem problem = declare(call);
  lathe_context_info before = {}, after = {};
  before.size = after.size = sizeof(lathe_context_info);
  API(lathe_context_get_info(context, &before));
  lathe_plan* made = nullptr;
  API(lathe_plan_create(&made, context, problem.get()));
  const Plan plan(made);
  API(lathe_context_get_info(context, &after));
  std::map<std::string, Tensor> tensors;
  std::vector<const DLTensor*> slots(lathe_plan_slot_count(made), nullptr);
  for (const auto& [name, given] : call.tensors) {
    Tensor& tensor = tensors.try_emplace(name, context, given.dtype, given.shape).first->second;
    if (given.values.empty()) {
      tensor.poison();
    } else {
      tensor.upload(given.values);
    }
    size_t slot = 0;
    API(lathe_plan_slot(made, name.c_str(), &slot));
    slots.at(slot) = tensor.dl();
  }
  size_t bytes = 0;
  API(lathe_plan_workspace(made, slots.data(), nullptr, &bytes));
  const Memory workspace(context, bytes);
  take_report();
  API(lathe_plan_run(made, slots.data(), workspace.data(), bytes, nullptr));
  API(lathe_stream_synchronize(context, nullptr));
  AttentionAnswer answer;
  const Report report = take_report();
  for (const std::string& finding : report.findings) FAIL_CHECK(finding);
  for (const std::string& line : report.launches) {
    const auto counters = nlohmann::json::parse(line);
    answer.tensor_ops += counters.value("tensor_ops", uint64_t{0});
    CHECK(counters.at("shared_load_conflicts") == 0);
    CHECK(counters.at("shared_store_conflicts") == 0);
  }
  answer.launches = report.launches.size();
  answer.compiled = after.compiled - before.compiled;
  for (const auto& [name, given] : call.tensors) {
    if (given.values.empty() || given.changed) answer.outputs[name] = tensors.at(name).download();
  }
  return answer;
}

// Bit for bit but for the sign of zero; no value is NaN.
inline void check_same(const AttentionAnswer& a, const AttentionAnswer& b) {
  REQUIRE(a.outputs.size() == b.outputs.size());
  for (const auto& [name, values] : a.outputs) {
    CAPTURE(name);
    const Values& others = b.outputs.at(name);
    REQUIRE(values.size() == others.size());
    size_t different = 0;
    for (size_t i = 0; i < values.size(); ++i) different += values[i] == others[i] ? 0 : 1;
    CHECK(different == 0);
  }
}

inline void check_near(const Values& found, const Values& expected, double tolerance) {
  REQUIRE(found.size() == expected.size());
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const bool same = found[i] == expected[i];  // infinities
    if (same || std::abs(found[i] - expected[i]) <= tolerance) continue;
    if (wrong++ == 0) first = i;
  }
  INFO("first at " << first << ": " << found.at(first) << " for " << expected.at(first));
  CHECK(wrong == 0);
}

}  // namespace apitest
