// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The demo shows these problems, with seeded inputs and the results that they must have.
#pragma once

#include "api/cli/problem.h"

namespace lathe::cli {

struct DemoCase {
  std::string title;
  Problem problem;
  TensorMap inputs;
  int ranks = 0;       // 0: alone
  bool known = false;  // its kernels were needed before, so nothing is to be compiled
};
std::vector<DemoCase> demo_cases();

using Values = std::vector<double>;
Values values(const HostTensor& tensor);
// Results in double, by name.
using Expected = std::map<std::string, Values>;
// Computes results by the definitions in reference/. Fails for an operator that the demo does not
// show.
Expected reference(const Problem& problem, const TensorMap& inputs);

// Judges one output: rms error relative to the rms of what is expected.
struct Verdict {
  std::string output;
  double error = 0, bound = 0;  // a bound of 0 asks for equal values
  bool good = false;
};
Verdict verdict_of(const std::string& output, const HostTensor& actual, const Values& expected,
                   double bound);
std::vector<Verdict> compare(const Problem& problem, const TensorMap& outputs,
                             const Expected& expected);
// Returns the verdict nearest to its bound, or the first one beyond it.
const Verdict& worst_of(const std::vector<Verdict>& verdicts);

// `lathe demo --ranks N`: two layers with their tokens over ranks, against one rank. Gives the exit
// code.
int demo_ranks(lathe_context* context, int ranks, bool json);

}  // namespace lathe::cli
