// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs flash_attention on one rank of a group, in steps of attention to blocks of keys. The keys
// travel a ring or are gathered meanwhile. Only float32 partial results are carried from step to
// step.
#pragma once

#include <array>

#include "collective/exchange.h"
#include "collective/plans/attention_rounds.h"
#include "ops/attention/ranks/steps.h"
#include "ops/device_table.h"

namespace lathe {

// Holds the rounds that follow from a shard's lengths, with their attention ranges on the device.
class AttentionTables final : public ShardState {
 public:
  // `names_sequences`: mods receive each range's sequence.
  static MadeShardState make(const Device& device, const Layout& layout,
                             AttentionRounds attention_rounds, bool names_sequences);
  const AttentionRounds& rounds() const { return rounds_; }
  const void* ranges(int round) const {
    return pairs_.data() ? pairs_.data() + first_[round] * sizeof(AttentionRange) : nullptr;
  }
  const void* range_sequences(int round) const {
    const char* data = range_sequences_.data();
    return data ? data + first_[round] * sizeof(int32_t) : nullptr;
  }
  // These number the tables of sum_parts: this rank's own sum alone; one that arrived; the shares
  // of own keys' gradients, by rank.
  static constexpr int kOwn = 0, kArrived = 1, kShares = 2;
  struct Places {
    const void* data = nullptr;
    int count = 0;
    int64_t tokens = 0;  // of all parts
  };
  Places places(int which) const;
  int64_t sequences() const { return sequences_; }
  // The gathered keys, rank by rank, are exactly those that this rank sees. Keys that no rank sent
  // could be NaN.
  int64_t tokens_before(int rank) const { return gathered_[rank]; }
  int64_t gathered_tokens() const { return gathered_.back(); }
  // Return space for the messages of one hop with every other rank. A group runs one call at a
  // time.
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

// Holds offsets in the workspace. A section that a call does not use has no bytes.
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

  MadeShardState prepare(const lathe_shard& shard) const override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  friend class AttentionRankRun;
  Status check(const Call& call) const;

  bool backward() const { return request_.problem.backward || request_.problem.dsinks; }
  bool names_sequences() const { return request_.problem.packed && !request_.problem.mods.empty(); }
  bool gathers() const { return (flags_ & kAllgather) != 0; }
  // Returns the type in which gradients of keys travel.
  Dtype travelling() const {
    return flags_ & kNarrowGradients ? request_.problem.element : Dtype::f32;
  }

  AttentionRequest request_;
  Group* group_;
  unsigned flags_;
  AttentionSteps steps_;
  KernelSlot copy_rows_, add_rows_, sum_parts_;
};

// `group` has more than one rank; `flags` are the group's. Returns UNSUPPORTED, by name, for what
// no step covers.
MadeExecutor make_attention_sharded(const AttentionRequest& request, const DeviceFacts& facts,
                                    Group* group, unsigned flags);

// Holds the messages of one hop of a ring: keys, and in the backward gradients that go on or home.
struct RingHop {
  std::array<Transfer, 4> send, receive;
  size_t sends = 0, receives = 0;
  Hop hop(const char* name, int step) const {
    return {{send.data(), sends}, {receive.data(), receives}, name, step};
  }
};

struct AttentionTally;

class AttentionRankRun {
 public:
  AttentionRankRun(const AttentionSharded& executor, const Call& call);

  Status lay_out();
  const AttentionShardedLayout& places() const { return places_; }
  Status forward();
  Status backward();
  // Counts the launches and costs of this rank.
  Result<Estimate> estimate();

 private:
  // Says how a block of keys and values becomes messages: one; two; or two for each row of the
  // batch.
  enum class Form { joined, apart, rows };
  // Keys may be gathered in slices: some key heads, with their query heads, of one row of the
  // batch. The members below describe the slice that was taken last; before that, everything.
  int64_t head_groups() const;
  int64_t slices() const { return head_groups() > 1 ? all_batch_ * head_groups() : 1; }
  void take(int64_t slice);
  void take_all();
  bool keeps_gathered() const { return problem().forward && slices() == 1; }

  const AttentionProblem& problem() const { return executor_.request_.problem; }
  const AttentionRounds& rounds() const { return tables_.rounds(); }
  int count() const { return static_cast<int>(rounds().rounds.size()); }
  const AttentionRound& at_round(int i) const { return rounds().rounds[i]; }
  int64_t own_tokens() const { return rounds().key_tokens[rounds().rank]; }
  char* at(int64_t offset) const { return call_.workspace ? call_.workspace + offset : nullptr; }
  int64_t element() const { return bytes_of(problem().element); }
  bool sends_own_keys() const;
  int64_t key_elements(int64_t tokens) const {
    return batch_ * tokens * kv_heads_ * (problem().head_dim + problem().value_dim);
  }

  TokenRows given(int tensor) const;
  // Returns keys, then values, of `bytes` bytes an element.
  KeyBlock block(int64_t offset, int64_t tokens, int64_t bytes) const;
  KeyBlock own_keys() const;
  KeyBlock sent_keys() const;
  KeyBlock ring_keys(int i) const;  // what round i reads
  KeyBlock gathered_keys() const;
  KeyBlock keys_of(int i) const {
    return !executor_.gathers() || i == 0 ? ring_keys(i) : gathered_keys();
  }
  // Return float32 [batch, rows, heads, width] and [batch, heads, rows].
  TokenRows rows_at(int64_t offset, int64_t width) const;
  char* row_values(char* data) const {
    const int64_t first = (slice_.row * all_heads_ + slice_.head) * rows_;
    return data ? data + first * static_cast<int64_t>(sizeof(float)) : nullptr;
  }
  TokenRows partial_out() const;

  void lay_out_backward(WorkspaceLayout* layout);
  Result<size_t> inner_bytes();
  // Returns the share of round i's (row, key) pairs that are visible.
  double share_seen(int i, const KeyBlock& keys) const;
  void add_exchange(Estimate* out) const;
  Status estimate_slice(AttentionTally* tally) const;
  void lay_out_keys(WorkspaceLayout* layout);
  int64_t add_keys_to(WorkspaceLayout* layout, int64_t tokens, int64_t bytes) const;

  // These functions build the calls of the steps.
  Call inner_call() const;  // with the stream and the workspace of steps
  BlockInputs inputs(int i, const KeyBlock& keys) const;
  Call step_call(const Part& part, int i, const KeyBlock& keys) const;
  Call finish_call() const;
  Call delta_call() const;
  Call gradients_call(const Part& part, int i, const KeyBlock& keys, const KeyBlock& sums) const;

  Transfer transfer(const KeyMessage& message, const TokenRows& rows, int64_t bytes,
                    bool whole) const;
  void add(const KeyMessage& message, const KeyBlock& block, int64_t bytes, Form form,
           std::span<Transfer> to, size_t* count) const;
  void add_keys(int i, RingHop* hop) const;
  void add_gradients(int i, RingHop* hop) const;
  Hop gather_hop() const;
  Hop return_hop() const;

  Status step(int i, const KeyBlock& keys);
  Status ring_forward();
  Status begin_gather(int64_t slice);
  Status gathered_forward();
  Status gradients(int i, bool first, const KeyBlock& keys, const KeyBlock& sums);
  Status add_arrived(int i);
  Status ring_backward();
  Status gathered_backward();
  Status others_gradients();

  // These functions move, add and round rows.
  Status copy(const TokenRows& from, const TokenRows& to) {
    return copy_rows(executor_.copy_rows_, from, to, from, {nullptr, from.tokens}, element(),
                     call_.stream);
  }
  // `own` is float32 and without gaps; `parts` has the type in which gradients travel.
  Status sum(const char* own, const char* parts, const AttentionTables::Places& places,
             const TokenRows& to);
  Status cast(const TokenRows& from, const TokenRows& to) {
    return sum(from.data, nullptr, tables_.places(AttentionTables::kOwn), to);
  }
  Status pack_own_keys();
  Status add_sums(int64_t tokens, bool arrived);
  Status give_home(bool arrived);
  Status give_shares();

  const AttentionSharded& executor_;
  const Call& call_;
  const AttentionTables& tables_;
  int64_t all_batch_, all_heads_, all_kv_heads_, rows_;
  int64_t batch_ = 0, heads_ = 0, kv_heads_ = 0;  // of the slice
  struct {
    int64_t index = 0, row = 0, head = 0, kv_head = 0;
  } slice_;
  bool packs_ = false;  // own keys have gaps and are sent
  Exchange exchange_;
  AttentionShardedLayout places_;
};

}  // namespace lathe
