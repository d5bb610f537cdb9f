// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the tokens, and the chunks of tokens, of a tensor that a rank holds, and cuts them out and
// puts them back.
#pragma once

#include "api/cli/problem.h"

namespace lathe::cli {

// [begin, end) of tokens, in the order of a rank's buffer.
using Intervals = std::vector<std::pair<int64_t, int64_t>>;
Intervals intervals_of(const lathe_shard* shard, lathe_axis axis);
int64_t tokens_in(const Intervals& intervals);

// `cut` returns what `intervals` hold of a tensor, in their order; `place` puts that where it
// belongs.
std::vector<std::byte> cut(const HostTensor& whole, int dimension, const Intervals& intervals);
void place(const std::vector<std::byte>& part, int dimension, const Intervals& intervals,
           HostTensor* whole);

// Returns where the parts of `ranks` ranks begin if no chunk may be cut, as even as that allows;
// empty if no states of chunks are asked for.
std::vector<int64_t> chunk_bounds(const Problem& problem, const TensorMap& inputs, int ranks);
// Returns the chunks of these tokens among all.
Intervals chunks_of(const Problem& problem, const TensorMap& inputs, const Intervals& tokens);

}  // namespace lathe::cli
