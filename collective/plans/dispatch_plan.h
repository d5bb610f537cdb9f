// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans attention whose queries and keys move to balance the work. From a shard's layout the plan
// derives who sends which rows to whom, what each rank computes, and how results come home. Pure;
// every rank makes the same plan.
#pragma once

#include "collective/plans/attention_ranges.h"
#include "collective/plans/planner.h"
#include "collective/plans/row_copies.h"

namespace lathe {

// Says whether queries leave their homes: if the cost model below says that it pays, always as the
// planner decides, or never. Keys move in any case.
enum class DispatchChoice { automatic, always, home };

struct DispatchRules {
  DispatchChoice choice = DispatchChoice::automatic;
  PlannerLimits limits;
  // pair_cost is the cost of a (row, key) pair over all heads. byte_cost is the cost of a byte that
  // a rank sends or receives, in the same unit.
  int64_t pair_cost = 1, byte_cost = 1;
  int64_t most_tokens = 0;  // of queries and keys that a rank may receive; 0: any number
};

struct DispatchPlan {
  bool moved = false;  // some query is computed elsewhere than at home
  bool packs = false;  // one message from a rank to another, else one for each move
  RowCopies queries, keys;
  // Gradients of keys go back to slots at the owner of the keys, by attention rank. Gradients that
  // were computed at home stay where they are.
  RowCopies gradients;
  std::vector<int64_t> query_tokens, key_tokens, slot_tokens;  // by rank
  // Holds for each attention rank the arrived queries and the arrived keys that they see.
  std::vector<std::vector<AttentionRange>> ranges;
  std::vector<std::vector<int32_t>> documents;  // of each pair
  std::vector<int64_t> load, load_at_home;      // visible pairs, by attention rank
};
// Returns INVALID_ARGUMENT if keys are not the queries' own tokens, or if a rank would receive more
// than its limit even with all queries at home.
Result<DispatchPlan> plan_dispatch(const Layout& layout, const DispatchRules& rules);

// Sums the gradients of the keys that one rank owns. Token t adds the rows terms[first[t]] ..
// terms[first[t + 1] - 1], in the order of attention ranks. Rows below slot_tokens[rank] are slots;
// the others are rows of the rank's own arrived keys.
struct DispatchSum {
  std::vector<int32_t> first, terms;
};
DispatchSum dispatch_sum(const DispatchPlan& plan, int rank, int64_t tokens);

// Returns the multiple of tokens at which cuts still balance the load: a power of two, at most a
// tile's 128.
int64_t dispatch_alignment(int64_t length, int world);

}  // namespace lathe
