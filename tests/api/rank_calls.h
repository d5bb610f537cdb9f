// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A call on several ranks, which are threads with a context each: whole tensors are cut by the
// letters of their shapes and the intervals of a shard, results are put together again.
#pragma once

#include "tests/api/attention_call.h"

namespace apitest {

struct Ranks {
  int world = 1;
  lathe_balance balance = LATHE_BALANCE_NONE;
  int64_t length = 0, key_length = 0;
  std::vector<int64_t> cu_seqlens, cu_seqlens_k, bounds;  // empty: none
  unsigned flags = 0;
  int runs = 1;              // of the same plan and shard, one after another
  bool graph = false;        // captured once, then launched
  Placement placement = {};  // of the ranks' 16-bit tensors
};

// One hop of a rank, as the simulator's NCCL counted it.
struct HopCount {
  int rank = 0;
  int64_t sends = 0, receives = 0, collectives = 0, sent = 0, received = 0;  // bytes
};

struct RanksAnswer {
  // Whole outputs. What has no token axis is that of rank 0, which with
  // LATHE_REDUCE_PARAMETER_GRADS all others must have too; without it the sum.
  std::map<std::string, Values> outputs;
  std::vector<HopCount> hops;      // of the runs; in no order between ranks
  std::vector<size_t> workspaces;  // bytes, by rank
  // What each rank held: begin and end of its intervals.
  std::vector<std::vector<std::pair<int64_t, int64_t>>> queries, keys;
};

// Throws what a rank threw, and findings of the simulator.
RanksAnswer run_ranks(const AttentionCall& call, const Ranks& ranks);

}  // namespace apitest
