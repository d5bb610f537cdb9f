// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention by exchanged heads: what its executor keeps, and where a call of it has everything.
#pragma once

#include <array>

#include "ops/attention/ranks/heads.h"
#include "ops/attention/ranks/travel.h"
#include "ops/rank_program.h"

namespace lathe {

struct HeadsRoutes {
  RowRoute there, back;
};

class HeadsShardState final : public ShardState {
 public:
  HeadsRoutes queries, keys;
  int64_t all_queries = 0, all_keys = 0;  // of the part that the ranks hold together
  RankCopies dsinks;                      // rows are ranks' shares
  // Two levels: the part among the others, and what the ring made of it.
  lathe_shard ring;
  std::unique_ptr<const ShardState> of_ring;
  // Room for the messages of one hop. A group runs one call at a time.
  mutable std::vector<Transfer> sends, receives;

  const HeadsRoutes& axis(bool of_keys) const { return of_keys ? keys : queries; }
  int64_t all(bool of_keys) const { return of_keys ? all_keys : all_queries; }
};

// Where a traveller lies in the workspace.
struct HeadsTensorOffsets {
  int64_t message = 0;  // a share of the heads for, or from, each other rank
  int64_t whole = 0;    // [all tokens, batch, share of the heads]
  int64_t staged = 0;   // packed: what came or goes, in the order of the messages
  int64_t dense = 0;    // of rows: [batch, share of the heads, all tokens]
};

struct HeadsOffsets {
  const HeadsShardState* state = nullptr;
  HeadShare share;
  int64_t batch = 1;
  std::array<HeadsTensorOffsets, attention::count> tensors;
  int64_t slopes = 0, inner = 0, inner_bytes = 0;
  int64_t total = 0;
};

class AttentionHeads final : public Executor {
 public:
  AttentionHeads(const lathe_problem& problem, const AttentionRequest& request, Group* group);
  Status split();
  Status make_part(unsigned flags, const DeviceFacts& facts);

  Result<std::unique_ptr<const ShardState>> prepare(const lathe_shard& shard) const override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  friend class HeadsRun;
  bool packed() const { return request_.problem.packed; }
  Dim token_dim(bool keys) const {
    return keys ? (packed() ? Dim::Tk : Dim::Sk) : (packed() ? Dim::Tq : Dim::Sq);
  }
  int64_t heads_of(const Traveller& each, const HeadShare& share) const {
    return each.keys ? share.kv_heads : share.q_heads;
  }
  bool sums(const Traveller& each, const HeadShare& share) const {
    return each.keys && !each.there && share.repeat > 1;
  }
  void lay_out(const Call& call, const Traveller& each, HeadsOffsets* offsets,
               WorkspaceLayout* layout) const;
  Result<HeadsOffsets> lay_out(const Call& call) const;
  Call inner_call(const Call& call, const HeadsOffsets& offsets) const;

  AttentionRequest request_;
  Group* group_;  // of the ranks that exchange heads
  std::shared_ptr<Group> of_heads_;
  std::shared_ptr<Group> ring_;  // of a second level; else null
  bool reduces_;                 // dsinks are summed over the ranks
  const std::vector<Traveller> travellers_;
  std::vector<int> declared_;
  std::unique_ptr<Part> part_;
  RowKernels kernels_ = RowKernels::make();
  KernelSlot sum_;
};

}  // namespace lathe
