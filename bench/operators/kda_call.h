// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One prepared call of kda through lathe.h, large enough to be timed or counted, and checked
// against the token recurrence in float64 in some heads.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/operators/kda_work.h"
#include "tests/harness/session.h"

namespace bench {

class KdaCall {
 public:
  // Every extent is declared to the plan, which may choose by it. `shapes_only`: without memory, to
  // be asked for its estimate.
  KdaCall(lathe_context* context, const KdaSize& size, bool shapes_only = false);
  void run(void* stream) const;
  // Runs, and throws with what is farther from float64 than the bounds of the operator: the last
  // tokens of a few heads of a few sequences, of which the first is the last.
  void check(int heads = 2) const;
  // The same under the simulator: its lines about the launches. Throws with a finding.
  std::vector<std::string> counted() const;
  const lathe_plan* plan() const { return plan_.get(); }
  lathe_estimate estimate() const;
  const KdaSize& size() const { return size_; }
  size_t workspace_bytes() const { return workspace_->bytes(); }

 private:
  struct Slot {
    lathe_dtype dtype = LATHE_BF16;
    std::vector<int64_t> shape;
    std::unique_ptr<apitest::Memory> memory;
    std::vector<unsigned char> bytes;  // what an input holds
    DLTensor tensor{};
  };
  enum class Fill { none, normal, unit_rows, decays, steps };
  void add(const char* name, lathe_dtype dtype, std::vector<int64_t> shape, Fill fill);
  void add_offsets();
  void add_tensors();
  void prepare();
  std::vector<double> values(const std::string& name, int64_t first, int64_t count) const;
  void check_head(int64_t part, int64_t value_head) const;
  void compare(const std::string& name, int64_t part, int64_t value_head, double bound,
               const std::vector<double>& found, const std::vector<double>& expected) const;

  lathe_context* context_;
  KdaSize size_;
  bool shapes_only_;
  std::map<std::string, Slot> slots_;
  apitest::Plan plan_;
  std::vector<const DLTensor*> order_;
  std::unique_ptr<apitest::Memory> workspace_;
  // What the last check read back.
  mutable std::map<std::string, std::vector<unsigned char>> results_;
};

}  // namespace bench
