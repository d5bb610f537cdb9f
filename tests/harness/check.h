// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions make doctest CHECKs of answers: the simulator's findings and counters, and
// outputs near others.
#pragma once

#include <doctest/doctest.h>

#include <cmath>

#include "tests/harness/call.h"
#include "tests/harness/family_case.h"

namespace apitest {

// Checks that the simulator's checkers found nothing, and that nothing was thrown.
void check_findings(const Answer& answer);
// Also checks that no launch had a bank conflict.
void check_clean(const Answer& answer);
// Checks that all kernels keep everything in registers.
void check_no_spills(const Answer& answer);

// Runs a call once and checks that it was clean.
Answer run(lathe_context* context, const Call& call);
// Does the same in the context that all tests of a program share, one for each family.
Answer run(const Call& call);
lathe_context* shared_context();

// Checks that outputs are equal bit for bit but for the sign of zero; no value is NaN.
void check_same(const Outputs& found, const Outputs& expected);
// Checks that values are within `tolerance`, and `relative` times the expected value, of each
// other; infinities are equal.
void check_near(const Values& found, const Values& expected, double tolerance, double relative = 0,
                const std::string& name = "");
// Checks that the root mean square of the differences is below `bound` times that of the expected
// values, or every difference is at most `atol` (tests/compare.h).
void check_rms(const std::string& name, const Values& found, const Values& expected, double bound,
               double atol = 0);
// Returns whether all bits are equal, NaN's included.
bool same_bits(const Values& a, const Values& b);

}  // namespace apitest
