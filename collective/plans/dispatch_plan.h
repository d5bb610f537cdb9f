// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention whose queries and keys move to where the work is balanced: from the layout of a shard
// to who sends which rows to whom, what is computed there, and how results come home. Pure; every
// rank makes the same plan.
#pragma once

#include "collective/plans/attention_ranges.h"
#include "collective/plans/planner.h"
#include "collective/plans/row_copies.h"

namespace lathe {

// Whether queries leave their homes: where the model below says that it pays, always as the planner
// has it, or never; keys move in any case.
enum class DispatchChoice { automatic, always, home };

struct DispatchRules {
  DispatchChoice choice = DispatchChoice::automatic;
  PlannerLimits limits;
  // What a pair of a row and a key costs, all heads together, and a byte that a rank sends or
  // receives, in one unit.
  int64_t pair_cost = 1, byte_cost = 1;
  int64_t most_tokens = 0;  // of queries and keys that a rank may receive; 0: any number
};

struct DispatchPlan {
  bool moved = false;  // some query is computed elsewhere than at home
  bool packs = false;  // one message from a rank to another, else one for each move
  RowCopies queries, keys;
  // Gradients of keys go back to slots at their owner, by attention rank; those that were computed
  // at home stay where they are.
  RowCopies gradients;
  std::vector<int64_t> query_tokens, key_tokens, slot_tokens;  // by rank
  // By attention rank: arrived queries and the arrived keys that they see.
  std::vector<std::vector<AttentionRange>> ranges;
  std::vector<std::vector<int32_t>> documents;  // of each pair
  std::vector<int64_t> load, load_at_home;      // visible pairs, by attention rank
};
// INVALID_ARGUMENT where keys are not the queries' own tokens, and where even at home a rank would
// receive more than its limit.
Result<DispatchPlan> plan_dispatch(const Layout& layout, const DispatchRules& rules);

// Gradients of the keys that one rank owns: token t adds the rows terms[first[t]] ..
// terms[first[t + 1] - 1], in the order of attention ranks: slots, and from slot_tokens[rank] on
// rows of its own arrived keys.
struct DispatchSum {
  std::vector<int32_t> first, terms;
};
DispatchSum dispatch_sum(const DispatchPlan& plan, int rank, int64_t tokens);

// Cuts that leave this many tokens balance what there is: a power of two up to a tile's 128.
int64_t dispatch_alignment(int64_t length, int world);

}  // namespace lathe
