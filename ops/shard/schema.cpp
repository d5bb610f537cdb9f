// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table of what brings tensors to their ranks and back.
#include <iterator>

#include "ops/entries.h"
#include "ops/shard/run.h"

namespace lathe {
namespace {

using namespace entries;

constexpr const char* kAny = "f32|f16|bf16|i32|i64";
// Of each rank, by the axis of tokens; and with the S tokens that are indexed in their place.
constexpr const char* kWhole = "T,B,H,D|B,T,H,D|B,H,T,D|B,H,D,T|T,H,D|B,T,D|B,H,T|T,D|B,T|T";
constexpr const char* kSome = "S,B,H,D|B,S,H,D|B,H,S,D|B,H,D,S|S,H,D|B,S,D|B,H,S|S,D|B,S|S";

constexpr lathe_operator_tensor moved(const char* name, const char* shape, lathe_role role,
                                      const char* dtypes, const char* sentence) {
  return {name, shape, role, 1, dtypes, nullptr, sentence, nullptr};
}

constexpr lathe_operator_tensor kShardTensors[] = {
    moved("x", kWhole, LATHE_INPUT, kAny, "A tensor with all tokens."),
    in("indices", "S", false, "i32", "Which tokens, in which order; one outside T stands for 0."),
    moved("y", kSome, LATHE_OUTPUT, "=x", "y[s] = x[indices[s]]."),
    moved("buffer", kWhole, LATHE_INOUT, kAny,
          "In the place of x and y: rearranged where it is; S must be T."),
};
constexpr lathe_operator_tensor kUnshardTensors[] = {
    moved("x", kSome, LATHE_INPUT, kAny, "Some tokens."),
    in("indices", "S", false, "i32",
       "Where each of them belongs, no place twice; one outside T is left out."),
    moved("y", kWhole, LATHE_INOUT, "=x", "y[indices[s]] = x[s]; other tokens stay as they are."),
    moved("buffer", kWhole, LATHE_INOUT, kAny,
          "In the place of x and y: rearranged where it is; S must be T."),
};
constexpr TensorRules kRules[] = {
    {true, "y"},  // x
    {false, ""},  // indices
    {true, "x"},  // y
    {true, ""},   // buffer
};
static_assert(std::size(kShardTensors) == shard_rows::count &&
              std::size(kUnshardTensors) == shard_rows::count &&
              std::size(kRules) == shard_rows::count);

constexpr lathe_operator_option kOptions[] = {
    {"axis", LATHE_OPTION_INT, "0", "0|1|2|3", "The dimension of tokens; below the rank."},
};

const Operator kOperators[] = {
    {{"shard", "Tokens of a tensor in another order, or some of them: a rank's shard.",
      kShardTensors, std::size(kShardTensors), kOptions, std::size(kOptions), 0},
     kRules,
     "y,buffer",
     check_shard_rows,
     make_shard_rows},
    {{"unshard", "Tokens put back to where they belong: the inverse of shard.", kUnshardTensors,
      std::size(kUnshardTensors), kOptions, std::size(kOptions), 0},
     kRules,
     "y,buffer",
     check_shard_rows,
     make_shard_rows},
};

}  // namespace

std::span<const Operator> shard_operators() { return kOperators; }

}  // namespace lathe
