// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What doctest CHECKs of answers: the simulator's findings and counters, and outputs near others.
#pragma once

#include <doctest/doctest.h>

#include <cmath>

#include "tests/harness/call.h"

namespace apitest {

// No finding of the simulator's checkers, and nothing was thrown.
void check_findings(const Answer& answer);
// Nor a bank conflict in any launch.
void check_clean(const Answer& answer);
// Kernels that keep everything in registers.
void check_no_spills(const Answer& answer);

// One checked run of a call.
Answer run(lathe_context* context, const Call& call);
// The same in the context that all tests of a program share.
Answer run(const Call& call);
lathe_context* shared_context();

// Bit for bit but for the sign of zero; no value is NaN.
void check_same(const Outputs& found, const Outputs& expected);
// Infinities are equal. `relative`: of the expected value, more.
void check_near(const Values& found, const Values& expected, double tolerance, double relative = 0,
                const std::string& name = "");
// The root mean square of the differences is below `bound` times that of the expected values, or
// every difference is at most `atol` (tests/compare.h).
void check_rms(const std::string& name, const Values& found, const Values& expected, double bound,
               double atol = 0);
// The same bits, NaN included.
bool same_bits(const Values& a, const Values& b);

}  // namespace apitest
