// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Says which tokens each rank holds when a sequence axis is dealt out to balance attention. Pure.
#pragma once

#include "collective/plans/shard.h"

namespace lathe {

enum class Balance { none, head_tail, per_document, ptrr };
Result<Balance> balance_of(const std::string& word);

constexpr int64_t kDefaultPtrrBlock = 128;

// Holds for each rank the intervals of positions that the rank has, in the order of its buffer.
using ShardLayout = std::vector<std::vector<Interval>>;

// none          chunk r of W of the whole axis
// head_tail     chunks r and 2W - 1 - r of 2W: a causal mask then costs every rank the same
// per_document  head_tail within each document
// ptrr          blocks of `block_size` tokens dealt by ptrr_groups with causal_block_costs
// Chunks differ by a token at most, whatever divides.
Result<ShardLayout> shard_layout(Balance balance, const std::vector<int64_t>& cu_seqlens, int world,
                                 int64_t block_size);

// Returns for each block of queries how many key blocks have a visible pair, under a causal mask
// within documents.
std::vector<int64_t> causal_block_costs(const std::vector<int64_t>& cu_seqlens, int64_t block_size);

// Deals blocks by processing-time round robin: blocks in descending order of cost, ties by index,
// go to the ranks from left to right and back. Each rank's blocks are returned in ascending order.
std::vector<std::vector<int64_t>> ptrr_groups(const std::vector<int64_t>& cost, int world);

}  // namespace lathe
