// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// An operator that was made of a caller's text: the rows of its tables lend the description's
// words.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/spec.h"
#include "ops/own/description.h"
#include "ops/problem.h"
#include "ops/resolve.h"

namespace lathe::own {

struct OwnOperator : Operator {
  std::string name_text;  // "rms_norm@3fa9c0d1e2f3a4b5"
  std::shared_ptr<const Description> description;
  Mod kernel_text;                   // the whole text
  std::vector<std::string> headers;  // of ours that it includes
  std::vector<DimInfo> dim_rows;
  std::vector<TensorInfo> tensor_rows;
  std::vector<OptionInfo> option_rows;
  std::string produced;

  static const OwnOperator& of(const Operator& op) { return static_cast<const OwnOperator&>(op); }
  static const OwnOperator& of(const lathe_problem& problem) { return of(*problem.op); }
};

// Values of expressions, where they are known.
using KnownValues = std::vector<std::optional<int64_t>>;

// Returns what a problem and its extents say: dims, options, bytes(x) and given(x).
KnownValues known_values(const lathe_problem& problem, const Extents& extents);

// Evaluates an expression if all that it uses is known; no value otherwise.
Result<std::optional<int64_t>> evaluate_known(Expression expression, const KnownValues& known);

// The functions of the operator's table.
Status check(const Resolved& resolved);
void derive(const lathe_problem& problem, Extents* extents);
MadeExecutor make(const Resolved& resolved, const DeviceFacts& facts);

}  // namespace lathe::own
