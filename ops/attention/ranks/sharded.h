// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention on one rank of a group: steps of attention to blocks of keys, which travel a ring
// or are gathered meanwhile. Only float32 partial results are carried from step to step.
#pragma once

#include "collective/exchange.h"
#include "collective/plans/attention_rounds.h"
#include "ops/attention/ranks/steps.h"
#include "ops/device_table.h"

namespace lathe {

// What a shard's lengths say: the rounds, with their pairs on the device.
class AttentionTables final : public ShardState {
 public:
  // `names_sequences`: mods are told of each range which sequence it is of.
  static Result<std::unique_ptr<const ShardState>> make(const Device& device, const Layout& layout,
                                                        AttentionRounds attention_rounds,
                                                        bool names_sequences);
  const AttentionRounds& rounds() const { return rounds_; }
  const void* ranges(int round) const {
    return pairs_.data() ? pairs_.data() + first_[round] * sizeof(AttentionRange) : nullptr;
  }
  const void* range_sequences(int round) const {
    const char* data = range_sequences_.data();
    return data ? data + first_[round] * sizeof(int32_t) : nullptr;
  }
  // Of sum_parts: this rank's own sum alone; one that arrived; and own keys' shares, by rank.
  static constexpr int kOwn = 0, kArrived = 1, kShares = 2;
  struct Places {
    const void* data = nullptr;
    int count = 0;
    int64_t tokens = 0;  // of all parts
  };
  Places places(int which) const;
  int64_t sequences() const { return sequences_; }
  // The gathered keys, rank by rank, are those that this rank sees and no others: what nobody sent
  // could be NaN.
  int64_t tokens_before(int rank) const { return gathered_[rank]; }
  int64_t gathered_tokens() const { return gathered_.back(); }
  // Room for the messages of one hop with every other rank. A group runs one call at a time.
  std::span<Transfer> sends() const { return sends_; }
  std::span<Transfer> receives() const { return receives_; }

 private:
  void gather_only_seen();

  AttentionRounds rounds_;
  int64_t sequences_ = 0;
  std::vector<int64_t> first_;  // range of each round
  std::vector<int64_t> gathered_ = {0};
  int64_t share_tokens_ = 0;
  int shares_ = 0;
  DeviceTable pairs_, range_sequences_, places_;
  mutable std::vector<Transfer> sends_, receives_;
};

// Offsets in the workspace. Sections that a call has no use for have no bytes.
struct AttentionShardedLayout {
  int64_t out = 0, lse = 0;                 // float32 partial results, where the caller has none
  int64_t packed[2] = {};                   // own keys and values, if the caller's have gaps
  int64_t blocks[2] = {};                   // of a ring: keys and values that travel
  int64_t gathered[2] = {};                 // those of others that this rank sees
  int64_t delta = 0, dq = 0;                // float32
  int64_t part = 0;                         // float32: gradients of a block, this rank's share
  int64_t sum = 0, arriving = 0, home = 0;  // of a ring: gradients that travel
  int64_t owed = 0;    // of gathered keys: their gradients as they travel, if not float32
  int64_t own = 0;     // float32: own keys' gradients from own rows
  int64_t shares = 0;  // and from the rows of others, by rank
  int64_t inner = 0, inner_bytes = 0;  // of the steps themselves
  int64_t total = 0;
};

class AttentionSharded final : public Executor {
 public:
  AttentionSharded(const AttentionRequest& request, Group* group, unsigned flags);
  // Chooses the kernels of the steps.
  Status make_steps(const DeviceFacts& facts);

  Result<std::unique_ptr<const ShardState>> prepare(const lathe_shard& shard) const override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  friend class AttentionRankRun;
  Status check(const Call& call) const;

  bool backward() const { return request_.problem.backward || request_.problem.dsinks; }
  bool names_sequences() const { return request_.problem.packed && !request_.problem.mods.empty(); }
  bool gathers() const { return (flags_ & kAllgather) != 0; }
  // How gradients of keys travel.
  Dtype travelling() const {
    return flags_ & kNarrowGradients ? request_.problem.element : Dtype::f32;
  }

  AttentionRequest request_;
  Group* group_;
  unsigned flags_;
  AttentionSteps steps_;
  KernelSlot copy_rows_, add_rows_, sum_parts_;
};

// `group` of more than one rank, with its flags. UNSUPPORTED, by name, for what no step covers.
Result<std::unique_ptr<Executor>> make_attention_sharded(const AttentionRequest& request,
                                                         const DeviceFacts& facts, Group* group,
                                                         unsigned flags);

}  // namespace lathe
