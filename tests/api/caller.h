// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A caller of the C API who keeps tensors by name and runs operators on some of them.
#pragma once

#include <algorithm>
#include <map>

#include "tests/api/session.h"

namespace apitest {

using Values = std::vector<double>;

// Tensors by name, and one run of an operator on some of them.
class Caller {
 public:
  explicit Caller(lathe_context* context) : context_(context) {}

  // Heads and tokens lie apart, and poison is around them.
  Tensor& put(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape,
              const Values& values) {
    const bool gaps = !is_row(name) && shape.size() > 2;
    const Placement placement{.token_gap = gaps ? 8 : 0,
                              .batch_gap = gaps && shape.size() == 4 ? 24 : 0,
                              .offset = gaps ? 16 : 0,
                              .guard = 32};
    dtypes_[name] = dtype;
    auto& tensor = tensors_[name];
    tensor = std::make_unique<Tensor>(context_, dtype, shape, placement);
    tensor->upload(values);
    return *tensor;
  }
  std::map<std::string, std::string> texts;  // options that are texts, of every run
  Values get(const std::string& name) const { return tensors_.at(name)->download(); }

  // `names`: the operator's tensor -> ours.
  void run(const char* op, const std::map<std::string, std::string>& names,
           const std::map<std::string, std::string>& options) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, op));
    const Problem problem_owner(problem);
    for (const auto& [theirs, ours] : names) {
      const std::vector<int64_t> shape = declared(theirs, tensors_.at(ours)->shape());
      API(lathe_problem_tensor(problem, theirs.c_str(), dtypes_.at(ours),
                               static_cast<int>(shape.size()), shape.data()));
    }
    for (const auto& [key, value] : options) {
      API(lathe_problem_set_string(problem, key.c_str(), value.c_str()));
    }
    for (const auto& [key, value] : texts) {
      API(lathe_problem_set_text(problem, key.c_str(), value.c_str(), value.size()));
    }
    lathe_plan* plan = nullptr;
    API(lathe_plan_create(&plan, context_, problem));
    const Plan plan_owner(plan);
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(plan));
    for (const auto& [theirs, ours] : names) {
      size_t slot = 0;
      API(lathe_plan_slot(plan, theirs.c_str(), &slot));
      slots.at(slot) = tensors_.at(ours)->dl();
    }
    size_t bytes = 0;
    API(lathe_plan_workspace(plan, slots.data(), nullptr, &bytes));
    const Memory workspace(context_, bytes);
    API(lathe_plan_run(plan, slots.data(), workspace.data(), bytes, nullptr));
    API(lathe_stream_synchronize(context_, nullptr));
  }

 private:
  // Of each row and head: [H, Tq] or [B, H, Sq].
  static bool is_row(const std::string& name) {
    return name.find("lse") != name.npos || name == "delta";
  }
  // Tokens vary, and rows of a batch: the same kernels serve every step.
  static std::vector<int64_t> declared(const std::string& name, std::vector<int64_t> shape) {
    size_t varying = name == "pairs" || name.ends_with("_pos") ? 1 : 0;
    if (is_row(name) || shape.size() > 2) varying = shape.size() - 2;
    std::fill_n(shape.begin(), varying, -1);
    if (is_row(name)) shape.back() = -1;
    return shape;
  }

  lathe_context* context_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::map<std::string, lathe_dtype> dtypes_;
};

}  // namespace apitest
