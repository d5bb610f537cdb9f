// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file runs a call on several ranks: whole tensors are cut by the dims of their shapes and the
// intervals of a shard, results are put together again.
#pragma once

#include "tests/harness/rank.h"

namespace apitest {

// A HopCount is one hop of a rank, as the simulator's NCCL counted it.
struct HopCount {
  int rank = 0;
  int64_t sends = 0, receives = 0, collectives = 0, sent = 0, received = 0;  // bytes
};

struct RanksAnswer {
  // These are whole outputs. States of sequences are each from the one rank that wrote it, which is
  // any rank where there is no token. Any other output without a token axis is that of rank 0 with
  // LATHE_REDUCE_PARAMETER_GRADS, where all other ranks must have the same; without that flag it is
  // the sum.
  Outputs outputs;
  std::vector<HopCount> hops;             // of the runs; in no order between ranks
  uint64_t launches = 0;                  // of the runs of all ranks
  std::vector<size_t> workspaces;         // bytes, by rank
  std::vector<lathe_estimate> estimates;  // by rank
  std::vector<Intervals> queries, keys;   // by rank
};

// Throws what a rank threw, and findings of the simulator.
RanksAnswer run_ranks(const Call& call, const Ranks& ranks);

// A call and the layout that its ranks have.
struct LayoutCall {
  Call call;
  Ranks ranks;
};
// Captures the first call on every rank and replays the graph over the layouts of all calls, which
// have the tensors and the capacity of the first one. Returns the whole outputs of each.
std::vector<Outputs> replay_layouts(const std::vector<LayoutCall>& calls);

}  // namespace apitest
