// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs flash_attention over ranks by heads. One exchange gives every rank whole sequences and a
// share of the heads, an ordinary call computes on them, and one exchange brings the results home.
#pragma once

#include "collective/group.h"
#include "ops/attention/ranks/travel.h"

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

class HeadsShardState final : public TravelState {
 public:
  // Holds the routes of queries, or of keys, and the tokens that the ranks hold together.
  struct Axis {
    RowRoute there, back;
    int64_t all = 0;
  };
  Axis queries, keys;
  // With two levels, these hold the ring's shard and the state that the ring made of it.
  lathe_shard ring;
  std::unique_ptr<const ShardState> of_ring;

  const Axis& axis(bool of_keys) const { return of_keys ? keys : queries; }
};

class AttentionHeads final : public RankExecutor<AttentionHeads, class HeadsRun> {
 public:
  AttentionHeads(const lathe_problem& problem, const AttentionRequest& request, Group* group);
  Status split();
  Status make_part(unsigned flags, const DeviceFacts& facts);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;

 private:
  friend class HeadsRun;

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

// Runs one call: rows are packed, a hop brings whole sequences, the call in the middle runs, a hop
// brings the results home. The near side of a journey is the messages: a share of the heads for, or
// from, each other rank.
class HeadsRun final : public TravelRun {
 public:
  HeadsRun(const AttentionHeads& executor, const Call& call);
  Status lay_out();
  Status operator()();
  Result<Estimate> estimate() const;

 private:
  const Executor& part() const { return executor_.part_->executor(); }
  char* dsinks() const { return call_.tensors[attention::dsinks].data; }
  int64_t repeat(const Traveller& each) const { return each.keys ? share_.repeat : 1; }
  bool sums(const Traveller& each) const { return each.is_key_gradient() && share_.repeat > 1; }
  int64_t others(const Journey& way) const { return (group_.world() - 1) * way.heads; }
  // Returns the caller's tensor. Heads from `skip_at` on are those `skip` behind.
  Side local(const Traveller& each, int64_t skip_at, int64_t skip) const {
    Side side = TravelRun::local(each);
    side.skip_at = skip_at, side.skip = skip;
    return side;
  }
  // The messages of all other ranks lie one after another.
  Side messages(const Journey& way) const {
    Side side = way.compact(way.near);
    side.heads = way.heads;
    side.group = way.tokens * way.batch * way.heads * way.each->width;
    return side;
  }

  void lay_out(const Traveller& each);
  Call inner_call() const;
  Status pack() const;
  Status unpack() const;
  Status add_sums() const;

  const AttentionHeads& executor_;
  const HeadsShardState& state_;
  const HeadShare share_;
  const int rank_;
  char* slopes_ = nullptr;
};

}  // namespace lathe
