// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs flash_attention over ranks by heads. One exchange gives every rank whole sequences and a
// share of the heads, an ordinary call computes on them, and one exchange brings the results home.
#pragma once

#include "collective/group.h"
#include "ops/attention/ranks/two_hops.h"

namespace lathe {

// Says how heads are dealt out. Rank r has query heads [r q_heads, (r + 1) q_heads) and key heads
// [r kv_heads / repeat, ..). Each key head is on `repeat` ranks; kv_heads is 1 if `repeat` is more
// than 1.
struct HeadShare {
  int64_t q_heads = 0, kv_heads = 0, repeat = 1;
};
// Returns INVALID_ARGUMENT, with H, HK and W, for heads that cannot be dealt out evenly.
Result<HeadShare> head_share(int64_t heads, int64_t kv_heads, int world);

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

// The program: one step, an ordinary call on whole sequences. Option head_ranks makes two levels:
// each run of head_ranks ranks exchanges heads, and keys travel a ring between ranks of the same
// heads. The group is then split, so every rank must make its plan at the same time.
class HeadsAttention : public Executor {
 public:
  HeadsAttention(const lathe_problem& problem, const AttentionRequest& its_request,
                 Group* its_group);
  Status split();
  Status make_step(unsigned group_flags, const DeviceFacts& facts);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;

  const AttentionRequest request;
  Group* group;  // of the ranks that exchange heads
  std::shared_ptr<Group> of_heads;
  std::shared_ptr<Group> ring;  // of a second level; else null
  const bool reduces;           // dsinks are summed over the ranks
  const std::vector<HopTensor> tensors;
  std::vector<int> declared_tensors;
  RankStep step;
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
  bool sums(const HopTensor& each) const { return each.is_key_gradient() && share_.repeat > 1; }
  int64_t others(const TensorHop& hop) const { return (group_.world() - 1) * hop.heads; }
  // Returns the caller's tensor. Heads from `skip_at` on are those `skip` behind.
  Side local(const HopTensor& each, int64_t skip_at, int64_t skip) const;
  // Returns the messages of all other ranks, which lie one after another.
  Side messages(const TensorHop& hop) const;

  void lay_out(const HopTensor& each);
  Call inner_call() const;
  Status add_sums() const;

  const HeadsAttention& program_;
  const HeadsShardState& state_;
  const HeadShare share_;
  const int rank_;
  char* slopes_ = nullptr;  // float32 [B, heads of this rank]
};

// Makes the executor for method LATHE_EXCHANGE_HEADS on a group of several ranks.
MadeExecutor make_attention_heads(const lathe_problem& problem, const AttentionRequest& request,
                                  const DeviceFacts& facts, Group* group);

}  // namespace lathe
