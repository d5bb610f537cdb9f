// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operators shard and unshard, which bring tensors to their ranks and back.
#include "ops/shard/schema.h"

#include "ops/options.h"
#include "ops/shard/run.h"

namespace lathe {
namespace {

constexpr OptionInfo kShardOptions[] = {
    Bind<ShardOptions>::integer<&ShardOptions::axis>("axis", "0", "0|1|2|3",
                                                     "The dimension of tokens; below the rank."),
};

constexpr Operator kOperators[] = {
    {.name = "shard",
     .sentence = "Tokens of a tensor in another order, or some of them: a rank's shard.",
     .tensors = shard_rows::kTensors,
     .options = kShardOptions,
     .produces = "y,buffer",
     .shape_option = "axis",
     .new_options = new_options<ShardOptions>,
     .check = check_shard_rows,
     .make = make_shard_rows},
    {.name = "unshard",
     .sentence = "Tokens put back to where they belong: the inverse of shard.",
     .tensors = shard_rows::kUnshardTensors,
     .options = kShardOptions,
     .produces = "y,buffer",
     .shape_option = "axis",
     .new_options = new_options<ShardOptions>,
     .check = check_shard_rows,
     .make = make_shard_rows},
};

}  // namespace

std::span<const Operator> shard_operators() { return kOperators; }

}  // namespace lathe
