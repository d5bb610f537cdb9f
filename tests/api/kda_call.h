// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One call of an operator of the KDA family: tensors by name, what is declared of them, options.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/api/kda_case.h"

namespace apitest {

class KdaCall {
 public:
  KdaCall(lathe_context* context, const char* op, const KdaSeat* seat = nullptr);
  // `open`: how many of the first extents vary.
  Tensor& add(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape,
              size_t open, const Placement& placement = {});
  void set(const std::string& option, const std::string& value);
  // The first makes the plan. The workspace holds poison before each.
  void run();
  std::vector<double> get(const std::string& name) const { return tensors_.at(name)->download(); }
  Tensor& tensor(const std::string& name) { return *tensors_.at(name); }
  // Another tensor in the place of one that is declared, which the caller keeps.
  void replace(const std::string& name, const DLTensor* tensor) { others_[name] = tensor; }
  // After a run.
  size_t workspace_bytes() const { return workspace_->bytes(); }
  const lathe_plan* plan() const { return plan_.get(); }
  lathe_estimate estimate() const;

 private:
  void prepare();

  lathe_context* context_;
  const KdaSeat* seat_;
  Problem problem_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::map<std::string, const DLTensor*> others_;
  Plan plan_;
  std::vector<const DLTensor*> slots_;
  std::unique_ptr<Memory> workspace_;
};

// A call of kda: the whole case, or its backward by itself, which reads the rows and states in
// `saved` if the case says so.
KdaCall make_kda_call(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs);
KdaCall make_kda_backward_call(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs,
                               const KdaValues& saved);

// What kda and kda_recurrent have in common; states lie `state_gap` elements apart.
void set_kda_options(const KdaCase& kda, KdaCall* call);
void add_kda_inputs(const KdaCase& kda, const KdaInputs& inputs, int64_t state_gap, KdaCall* call);
Placement kda_placement(const KdaCase& kda, int64_t gap);
// [N, HV, K, V] or [N, HV, V, K].
std::vector<int64_t> kda_state_shape(const KdaCase& kda, int64_t slots);

}  // namespace apitest
