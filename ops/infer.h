// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Infers the outputs that follow from a problem's inputs and options.
#pragma once

#include "ops/values.h"

namespace lathe {

// Checks the declared inputs and declares the outputs that follow: results, as options output_NAME
// say and, if the gradient of the first result is declared, the gradients of the declared inputs.
// If outputs are declared already, they are the wanted ones, and the function adds none. `values`
// are as Values takes them. If null, extents that follow from values are unknown, or the largest
// possible.
Status infer(lathe_problem* problem, const DLTensor* const* values);

// Sets to unknown every extent that may vary from call to call.
void open_extents(lathe_problem* problem);

}  // namespace lathe
