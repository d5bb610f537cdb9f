// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Inputs of which results can be compared: floats of a sensible range beside made-up integers.
#pragma once

#include "api/cli/problem.h"

namespace lathe::cli {

// Refuses a problem of which an extent is open.
void require_extents(const Problem& problem);
// The inputs of such a problem; always the same values for a seed.
TensorMap noise_inputs(const Problem& problem, uint64_t seed = 1);
// Floats of these names and shapes.
TensorMap noise(const Specs& specs, uint64_t seed);

}  // namespace lathe::cli
