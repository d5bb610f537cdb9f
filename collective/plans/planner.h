// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans where the shards of causal documents run so that all ranks have equal work and few bytes
// move. The homes of tokens never change; shards may be cut. The planner is pure and exact: every
// rank makes the same plan from the same lengths.
#pragma once

#include "collective/plans/dispatch.h"

namespace lathe {

struct PlannerLimits {
  int64_t tolerance = 1, of = 20;     // the load may exceed the mean by tolerance / of
  int64_t align = 128;                // cuts leave multiples of this many tokens
  int64_t q_bytes = 1, kv_bytes = 1;  // moved with a token of queries, of keys
  VisibleRange visible = kCausal;     // of rows within their document
};
struct BalancedPlan {
  DocumentShards shards;  // cuts of the given ones, in the given order
  Table dst;
  std::vector<int64_t> load, load_before;  // pairs of queries and keys, by destination
};
Result<BalancedPlan> balance_shards(const DocumentShards& shards, const PlannerLimits& limits);

}  // namespace lathe
