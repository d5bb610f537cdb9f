// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Inputs of which results can be compared: floats of a sensible range beside made-up integers.
#pragma once

#include "api/cli/problem.h"

namespace lathe::cli {

// Refuses a problem of which an extent is open.
void require_extents(const Problem& problem);
// Of such a problem; always the same values.
TensorMap noise_inputs(const Problem& problem);

}  // namespace lathe::cli
