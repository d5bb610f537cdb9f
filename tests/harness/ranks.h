// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A call on several ranks: whole tensors are cut by the dims of their shapes and the intervals of a
// shard, results are put together again.
#pragma once

#include "tests/harness/rank.h"

namespace apitest {

// One hop of a rank, as the simulator's NCCL counted it.
struct HopCount {
  int rank = 0;
  int64_t sends = 0, receives = 0, collectives = 0, sent = 0, received = 0;  // bytes
};

struct RanksAnswer {
  // Whole outputs. States of sequences are each from the one rank that wrote it, which is any rank
  // where there is no token. What else has no token axis is that of rank 0, which with
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
