// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A call on several ranks, which are threads with a context each: whole tensors are cut by the dims
// of their shapes and the intervals of a shard, results are put together again.
#pragma once

#include "tests/harness/call.h"

namespace apitest {

struct Ranks {
  int world = 1;
  lathe_balance balance = LATHE_BALANCE_NONE;
  unsigned flags = 0;           // of lathe_problem_group
  std::vector<int64_t> bounds;  // where the caller cuts; empty: even parts
  int64_t block_size = 3;       // of LATHE_BALANCE_PTRR
  int runs = 1;                 // of the same plan and shard, one after another: all alike
  bool graph = false;           // captured once, then launched
  std::string text() const;
};

// One hop of a rank, as the simulator's NCCL counted it.
struct HopCount {
  int rank = 0;
  int64_t sends = 0, receives = 0, collectives = 0, sent = 0, received = 0;  // bytes
};

// The intervals of tokens that a rank holds, begin and end.
using Intervals = std::vector<std::pair<int64_t, int64_t>>;

struct RanksAnswer {
  // Whole outputs. What has no token axis is that of rank 0, which with
  // LATHE_REDUCE_PARAMETER_GRADS all others must have too; without it the sum.
  Outputs outputs;
  std::vector<HopCount> hops;             // of the runs; in no order between ranks
  uint64_t launches = 0;                  // of the runs of all ranks
  std::vector<size_t> workspaces;         // bytes, by rank
  std::vector<lathe_estimate> estimates;  // by rank
  std::vector<Intervals> queries, keys;   // by rank
};

// Throws what a rank threw, and findings of the simulator.
RanksAnswer run_ranks(const Call& call, const Ranks& ranks);

}  // namespace apitest
