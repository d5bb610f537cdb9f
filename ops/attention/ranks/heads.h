// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs flash_attention over ranks by heads. One exchange gives every rank whole sequences and a
// share of the heads, an ordinary call computes on them, and one exchange brings the results home.
#pragma once

#include <array>

#include "collective/group.h"
#include "ops/attention/ranks/travel.h"
#include "ops/attention/run.h"
#include "ops/rank_program.h"

namespace lathe {

// Says how heads are dealt out. Rank r has query heads [r q_heads, (r + 1) q_heads) and key heads
// [r kv_heads / repeat, ..). Each key head is on `repeat` ranks; kv_heads is 1 if `repeat` is more
// than 1.
struct HeadShare {
  int64_t q_heads = 0, kv_heads = 0, repeat = 1;
};
// Returns INVALID_ARGUMENT, with H, HK and W, for heads that cannot be dealt out evenly.
Result<HeadShare> head_share(int64_t heads, int64_t kv_heads, int world);

// Makes the executor for method LATHE_EXCHANGE_HEADS on a group of several ranks. Option head_ranks
// makes two levels: each run of head_ranks ranks exchanges heads, and keys travel a ring between
// ranks of the same heads. The group is then split, so every rank makes its plan at the same time.
MadeExecutor make_attention_heads(const lathe_problem& problem, const AttentionRequest& request,
                                  const DeviceFacts& facts, Group* group);

struct HeadsRoutes {
  RowRoute there, back;
};

class HeadsShardState final : public ShardState {
 public:
  HeadsRoutes queries, keys;
  int64_t all_queries = 0, all_keys = 0;  // of the part that the ranks hold together
  RankCopies dsinks;                      // rows are ranks' shares
  // With two levels, these hold the ring's shard and the state that the ring made of it.
  lathe_shard ring;
  std::unique_ptr<const ShardState> of_ring;
  // These vectors hold the messages of one hop. A group runs one call at a time.
  mutable std::vector<Transfer> sends, receives;

  const HeadsRoutes& axis(bool of_keys) const { return of_keys ? keys : queries; }
  int64_t all(bool of_keys) const { return of_keys ? all_keys : all_queries; }
};

// Says where a traveller lies in the workspace.
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
  int64_t bytes = 0;

  int64_t total() const { return bytes; }
};

class AttentionHeads final : public PlannedExecutor<AttentionHeads, HeadsOffsets> {
 public:
  AttentionHeads(const lathe_problem& problem, const AttentionRequest& request, Group* group);
  Status split();
  Status make_part(unsigned flags, const DeviceFacts& facts);

  MadeShardState prepare(const lathe_shard& shard) const override;
  Result<HeadsOffsets> plan(const Call& call) const;
  Status launch(const Call& call, const HeadsOffsets& offsets) const;
  Result<Estimate> estimate_plan(const Call& call, const HeadsOffsets& offsets) const;

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
