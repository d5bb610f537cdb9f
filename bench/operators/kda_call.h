// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One prepared call of kda through lathe.h, large enough to be timed or counted, and checked
// against the token recurrence in float64 in some heads.
#pragma once

#include "bench/operators/kda_work.h"
#include "tests/harness/large_call.h"

namespace bench {

class KdaCall {
 public:
  // Every extent is declared to the plan, which may choose by it.
  KdaCall(lathe_context* context, const KdaSize& size);
  void run(void* stream) const { call_.run(stream); }
  // Runs, and throws with what is farther from float64 than the bounds of the operator: the last
  // tokens of a few heads of a few sequences, of which the first is the last.
  void check(int heads = 2) const;
  // Does the same under the simulator and returns its lines about the launches. Throws with a
  // finding.
  std::vector<std::string> counted() const;
  const lathe_plan* plan() const { return call_.plan(); }
  const KdaSize& size() const { return size_; }
  size_t workspace_bytes() const { return call_.workspace_bytes(); }

 private:
  enum class Fill { none, normal, unit_rows, decays, steps };
  void add(const char* name, lathe_dtype dtype, std::vector<int64_t> shape, Fill fill);
  void add_offsets();
  void add_tensors();
  void prepare();
  void check_head(int64_t part, int64_t value_head) const;
  void compare(const std::string& name, int64_t part, int64_t value_head, double bound,
               const std::vector<double>& found, const std::vector<double>& expected) const;

  KdaSize size_;
  apitest::LargeTensors tensors_;
  apitest::LargeCall call_;
};

}  // namespace bench
