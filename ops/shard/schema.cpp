// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operators shard and unshard, which bring tensors to their ranks and back.
#include "ops/shard/schema.h"

#include "ops/options.h"

namespace lathe {
namespace {

constexpr OptionInfo kShardOptions[] = {
    Bind<ShardOptions>::integer<&ShardOptions::axis>("axis", "0", "0|1|2|3",
                                                     "The dimension of tokens; below the rank."),
};

// Both operators differ in their tensors alone.
constexpr Operator rows_operator(const char* name, const char* sentence,
                                 std::span<const TensorInfo> tensors) {
  return {.name = name,
          .sentence = sentence,
          .tensors = tensors,
          .options = kShardOptions,
          .produces = "y,buffer",
          .shape_option = "axis",
          .new_options = new_options<ShardOptions>,
          .check = check_shard_rows,
          .make = make_shard_rows};
}
constexpr Operator kOperators[] = {
    rows_operator("shard", "Tokens of a tensor in another order, or some of them: a rank's shard.",
                  shard_rows::kTensors),
    rows_operator("unshard", "Tokens put back to where they belong: the inverse of shard.",
                  shard_rows::kUnshardTensors),
};

}  // namespace

std::span<const Operator> shard_operators() { return kOperators; }

}  // namespace lathe
