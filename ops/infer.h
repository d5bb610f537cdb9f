// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The outputs that follow from a problem's inputs and options.
#pragma once

#include "ops/values.h"

namespace lathe {

// Checks the inputs that are declared and declares the outputs that follow: results, as options
// output_NAME say; with the gradient of the first result, the gradients of the inputs that are
// there. Outputs that are declared already are the list of what is wanted, and nothing is added.
// `values` as Values takes them, or null: extents that follow from values are then unknown, or the
// largest there can be.
Status infer(lathe_problem* problem, const DLTensor* const* values);

// Leaves every extent open that may vary from call to call.
void open_extents(lathe_problem* problem);

}  // namespace lathe
