// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Knows which calls serving a layer of a model makes, and makes the problems of all of them: every
// form, every tensor that a call may have or leave out, every value of an option that the caller
// lists. The problems are open, as lathe_problem_open leaves them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/problem.h"

namespace lathe {

struct ServedRange {
  int64_t least = 1, most = kMaxExtent;
};

// A layer as a manifest says it. What is not said of a call has the operator's default, or the
// first dtype that its table allows.
struct ServedLayer {
  std::string kind;  // one of served_kinds(), or an operator's name
  std::optional<Dtype> dtype;
  std::map<std::string, std::vector<Dtype>, std::less<>> dtypes;         // by tensor
  std::map<std::string, std::vector<int64_t>, std::less<>> extents;      // by dim: each of them
  std::map<std::string, std::vector<std::string>, std::less<>> options;  // each of these values
  std::vector<std::string> with, maybe, without;                         // tensors
  std::vector<int64_t> alignments = {16};
  // Sequences of a call, tokens of a prefill, and new tokens of a sequence in decoding.
  ServedRange batch, tokens, drafts{1, 1};
};

// "kda, conv, attention, ...": what a layer may be beside an operator.
std::string served_kinds();

// Refuses what no call of the layer has. `said` is what one line says; without a kind that of a
// model, of which some operator has to have it.
Status check_names(const ServedLayer& said);
// Returns the problems of all calls. INVALID_ARGUMENT names an unknown kind, an extent that is
// missing, a range that the operator does not cover, or says that there are too many calls.
Result<std::vector<lathe_problem>> problems_of_layer(const ServedLayer& layer);

}  // namespace lathe
