// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which states at the starts of chunks a rank has.
#pragma once

#include "api/cli/inputs/slices.h"

namespace lathe::cli {

// Where the parts of `ranks` ranks begin if no chunk may be cut, as even as that allows; empty if
// no states of chunks are asked for.
std::vector<int64_t> chunk_bounds(const Problem& problem, const TensorMap& inputs, int ranks);
// The chunks of these tokens among all.
Intervals chunks_of(const Problem& problem, const TensorMap& inputs, const Intervals& tokens);

}  // namespace lathe::cli
