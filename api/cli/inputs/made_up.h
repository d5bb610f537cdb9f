// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Inputs of a problem of which shapes are known and nothing else: integers that decide where
// kernels read, and floats of a sensible range, of which results can be compared.
#pragma once

#include "api/cli/problem.h"

namespace lathe::cli {

// The integers, which decide where kernels read: sequences of one length, lists of keys spread over
// what a row may see, full pages, a slot for each sequence, one range of all rows and all keys.
// Tensors that are not among them may hold anything: no kernel reads elsewhere for them. Every
// extent must be known.
TensorMap made_up_integers(const Problem& problem);

// Returns the inputs of such a problem; always the same values for a seed.
TensorMap noise_inputs(const Problem& problem, uint64_t seed = 1);
// Floats of these names and shapes.
TensorMap noise(const Specs& specs, uint64_t seed);

}  // namespace lathe::cli
