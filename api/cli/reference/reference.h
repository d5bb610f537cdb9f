// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe check --reference` holds what a user's kernel computed against a function of
// Python that its description names.
#pragma once

#include "api/cli/execute.h"

namespace lathe::cli {

// Compares the outputs with what the function makes of the inputs and the options, in float64.
// Returns a row for each output: {"name", "largest_error", "allowed", "at", "good"}; `tolerance`:
// of relative errors; 0: what the dtype's rounding lets expect. Fails, with Python's words, if
// there is no Python with NumPy or the function throws.
Json compare_with_reference(const std::string& kernel_file, const Problem& problem,
                            const TensorMap& inputs, const TensorMap& outputs, double tolerance);
bool is_good(const Json& rows);
void print_reference(const std::string& file, const Json& rows);

}  // namespace lathe::cli
