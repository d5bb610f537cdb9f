// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs flash_attention over ranks by heads. One exchange gives every rank whole sequences and a
// share of the heads, an ordinary call computes on them, and one exchange brings the results home.
//
// With LATHE_RANK_INVARIANT the shares follow from the heads alone, a rank has several of them or
// none, and a call computes each by itself: the same call whoever makes it.
#pragma once

#include "collective/group.h"
#include "collective/plans/pieces.h"
#include "ops/attention/ranks/two_hops.h"

namespace lathe {

// Says how heads are dealt out. Share s has query heads [s q_heads, (s + 1) q_heads) and key heads
// [s kv_heads / repeat, ..). Each key head is in `repeat` shares; kv_heads is 1 if `repeat` is more
// than 1.
struct HeadShare {
  int64_t q_heads = 0, kv_heads = 0, repeat = 1;
};
// Returns INVALID_ARGUMENT, with H, HK and the number of ranks, for heads that cannot be dealt out
// evenly.
Result<HeadShare> head_share(int64_t heads, int64_t kv_heads, int shares);
// Returns the largest number of shares up to kMostShares into which heads can be dealt out.
constexpr int kMostShares = 8;
int canonical_shares(int64_t heads, int64_t kv_heads);

// Holds what follows from a shard's lengths.
class HeadsShardState final : public TwoHopState {
 public:
  // Holds the routes of queries, or of keys, and the tokens that the ranks hold together.
  struct Axis {
    RowRoute out, home;
    int64_t all = 0;
  };
  Axis queries, keys;
  // With two levels, these hold the ring's shard and the state that the ring made of it.
  lathe_shard ring;
  std::unique_ptr<const ShardState> of_ring;
};

// The program: one step for each share, an ordinary call on whole sequences. Option head_ranks
// makes two levels: each run of head_ranks ranks exchanges heads, and keys travel a ring between
// ranks of the same heads. The group is then split, so every rank must make its plan at the same
// time.
class HeadsAttention : public Executor {
 public:
  HeadsAttention(const lathe_problem& problem, const AttentionRequest& its_request,
                 Group* its_group);
  Status split();
  Status make_steps(unsigned group_flags, const DeviceFacts& facts);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;

  // Returns the shares that this rank computes.
  Interval own() const { return shares_of(shares, group->rank(), group->world()); }
  // Returns the step of the rank's i-th share. Without mods, which are told of heads, one does all.
  const RankStep& step(int64_t i) const { return steps[steps.size() == 1 ? 0 : i]; }

  const AttentionRequest request;
  const bool invariant;
  Group* group;  // of the ranks that exchange heads
  std::shared_ptr<Group> of_heads;
  std::shared_ptr<Group> ring;  // of a second level; else null
  const bool reduces;           // dsinks are summed over the ranks
  const std::vector<HopTensor> tensors;
  std::vector<int> declared_tensors;
  int shares = 0;  // of all ranks
  std::vector<RankStep> steps;
  RowKernels row_kernels = RowKernels::make();
  KernelSlot sum;
};

// Runs one call. At home the rows of a tensor are messages: a share of the heads for, or from, each
// other rank.
class HeadsRun final : public TwoHopRun {
 public:
  HeadsRun(const HeadsAttention& program, const Call& call);
  Status lay_out();
  Result<Estimate> estimate() const;

 private:
  Status pack_inputs() const override;
  Status compute() const override;
  Status pack_results() const override;
  Status unpack_results() const override;

  char* dsinks() const { return call_.tensors[attention::dsinks].data; }
  int64_t repeat(const HopTensor& each) const { return each.keys ? share_.repeat : 1; }
  int64_t shares() const { return program_.shares; }
  bool sums(const HopTensor& each) const { return each.is_key_gradient() && share_.repeat > 1; }
  // Returns the caller's tensor from the heads of a share on.
  Side local(const HopTensor& each, int64_t share) const;
  // Returns the rows of shares from one on, which lie one after another, as messages have them.
  Side messages(const TensorHop& hop, int64_t share) const;
  // Calls f(first, last) for the shares before the rank's own, and for those behind.
  template <typename F>
  Status each_run_of_others(F f) const;

  char* slopes_of(int64_t i) const;
  void lay_out(const HopTensor& each);
  // Returns the call on the whole sequences of the rank's i-th share.
  Call inner_call(int64_t i) const;
  Status add_sums() const;

  const HeadsAttention& program_;
  const HeadsShardState& state_;
  const HeadShare share_;
  const Interval own_;
  char* slopes_ = nullptr;  // float32 [shares of this rank, B, heads of a share]
};

// Makes the executor for method LATHE_EXCHANGE_HEADS on a group of several ranks, and the one for
// LATHE_RANK_INVARIANT, on one rank too.
MadeExecutor make_attention_heads(const lathe_problem& problem, const AttentionRequest& request,
                                  const DeviceFacts& facts, Group* group);

}  // namespace lathe
