// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs flash_attention on one rank of a group, in steps of attention to blocks of keys. The keys
// travel a ring or are gathered meanwhile. Only float32 partial results are carried from step to
// step.
#pragma once

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
  const void* ranges(int round) const {
    return ranges_.data() ? ranges_.data() + first_[round] * sizeof(AttentionRange) : nullptr;
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

  AttentionRounds rounds;
  int64_t sequences = 0;
  // Holds the tokens of the gathered keys before each rank's. The gathered keys, rank by rank, are
  // exactly those that this rank sees. Keys that no rank sent could be NaN.
  std::vector<int64_t> gathered = {0};
  // These vectors have space for the messages of one hop with every other rank. A group runs one
  // call at a time.
  mutable std::vector<Transfer> sends, receives;

 private:
  void gather_only_seen();

  std::vector<int64_t> first_;  // range of each round
  int64_t share_tokens_ = 0;
  int shares_ = 0;
  DeviceTable ranges_, range_sequences_, places_;
};

class AttentionSharded final : public RankExecutor<AttentionSharded, class AttentionRankRun> {
 public:
  AttentionSharded(const AttentionRequest& request, Group* group, unsigned flags);
  // Chooses the kernels of the steps.
  Status make_steps(const DeviceFacts& facts);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;

 private:
  friend class AttentionRankRun;

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

class AttentionRankRun {
 public:
  AttentionRankRun(const AttentionSharded& executor, const Call& call);

  Status lay_out();
  int64_t total() const { return layout_.total(); }
  Status operator()();
  // Counts the launches and costs of this rank.
  Result<Estimate> estimate();

 private:
  // Says how a block of keys and values becomes messages: one; two; or two for each row of the
  // batch.
  enum class Form { joined, apart, rows };
  // Collects the messages of one hop, in the space that the shard's state has for them.
  struct Messages {
    std::vector<Transfer>& space;
    size_t count = 0;
    std::span<const Transfer> all() const { return std::span(space).first(count); }
  };
  struct HopMessages {
    Messages sends, receives;
    Hop hop(const char* name, int step = 0) const {
      return {sends.all(), receives.all(), name, step};
    }
  };
  HopMessages no_messages() const { return {{tables_.sends}, {tables_.receives}}; }

  // Keys may be gathered in slices: some key heads, with their query heads, of one row of the
  // batch. The members below describe the slice that was taken last; before that, everything.
  int64_t head_groups() const;
  int64_t slices() const { return head_groups() > 1 ? all_batch_ * head_groups() : 1; }
  void take(int64_t slice);
  void take_all();
  bool keeps_gathered() const { return problem().forward && slices() == 1; }

  const AttentionProblem& problem() const { return request_.problem; }
  bool gathers() const { return executor_.gathers(); }
  int count() const { return static_cast<int>(rounds_.rounds.size()); }
  const AttentionRound& at_round(int i) const { return rounds_.rounds[i]; }
  int64_t own_tokens() const { return rounds_.key_tokens[rounds_.rank]; }
  int64_t owner_tokens(int i) const { return rounds_.key_tokens[at_round(i).owner]; }
  int64_t element() const { return bytes_of(problem().element); }
  bool sends_own_keys() const;
  int64_t key_elements(int64_t tokens) const {
    return batch_ * tokens * kv_heads_ * (problem().head_dim + problem().value_dim);
  }

  TokenRows given(int tensor) const;
  // Returns keys, then values, of `bytes` bytes an element.
  KeyBlock block(char* data, int64_t tokens, int64_t bytes) const;
  KeyBlock own_keys() const { return {given(attention::k), given(attention::v)}; }
  KeyBlock sent_keys() const;
  KeyBlock ring_keys(int i) const;  // what round i reads
  KeyBlock gathered_keys() const;
  KeyBlock keys_of(int i) const { return !gathers() || i == 0 ? ring_keys(i) : gathered_keys(); }
  // Return float32 [batch, rows, heads, width] and [batch, heads, rows].
  TokenRows rows_at(char* data, int64_t width) const;
  char* row_values(char* data) const {
    const int64_t first = (slice_.row * all_heads_ + slice_.head) * rows_;
    return data ? data + first * static_cast<int64_t>(sizeof(float)) : nullptr;
  }
  TokenRows partial_out() const;

  char* section(std::initializer_list<int64_t> factors) {
    return call_.workspace + layout_.add(factors);
  }
  char* key_section(int64_t tokens, int64_t bytes);
  void lay_out_keys();
  void lay_out_backward();
  Result<size_t> inner_bytes();
  void add_exchange(Estimate* out) const;
  Status estimate_slice(struct AttentionTally* tally) const;

  // These functions build the calls of the steps.
  const Part& forward_part(int i) const { return i == 0 ? *steps_.first : *steps_.next; }
  const Part& gradients_part(bool first) const {
    return first ? *steps_.gradients_first : *steps_.gradients_next;
  }
  Call inner_call() const { return lathe::step_call(call_, inner_, inner_bytes_); }
  BlockInputs inputs(int i, const KeyBlock& keys) const;
  Call step_call(const Part& part, int i, const KeyBlock& keys) const;
  Call finish_call() const;
  Call delta_call() const;
  Call gradients_call(const Part& part, int i, const KeyBlock& keys, const KeyBlock& sums) const;

  void add(const KeyMessage& message, const KeyBlock& block, int64_t bytes, Form form,
           Messages* to) const;
  void add_keys(int i, HopMessages* hop) const;
  void add_gradients(int i, HopMessages* hop) const;
  HopMessages gather_hop() const;
  HopMessages return_hop() const;

  Status forward();
  Status step(int i, const KeyBlock& keys);
  Status ring_forward();
  Status begin_gather(int64_t slice);
  Status gathered_forward();
  Status backward();
  Status gradients(int i, bool first, const KeyBlock& keys, const KeyBlock& sums);
  Status ring_backward();
  Status gathered_backward();
  Status others_gradients();

  // These functions move, add and round rows.
  Status pack_own_keys();
  // `own` is float32 and without gaps; `parts` has the type in which gradients travel.
  Status sum(const char* own, const char* parts, const AttentionTables::Places& places,
             const TokenRows& to);
  Status cast(const TokenRows& from, const TokenRows& to) {
    return sum(from.data, nullptr, tables_.places(AttentionTables::kOwn), to);
  }
  Status cast(const KeyBlock& from, const KeyBlock& to) {
    LATHE_TRY(cast(from.k, to.k));
    return cast(from.v, to.v);
  }
  Status add_sums(int i);
  Status give_keys(const KeyBlock& own, const KeyBlock& parts, int which);

  const AttentionSharded& executor_;
  const AttentionRequest& request_;
  const AttentionSteps& steps_;
  const Call& call_;
  const AttentionTables& tables_;
  const AttentionRounds& rounds_;
  const int64_t all_batch_, all_heads_, all_kv_heads_, rows_;
  int64_t batch_ = 0, heads_ = 0, kv_heads_ = 0;  // of the slice
  struct {
    int64_t index = 0, row = 0, head = 0, kv_head = 0;
  } slice_;
  bool packs_ = false;  // own keys have gaps and are sent
  Exchange exchange_;

  // These are sections of the workspace. A section that a call does not use has no bytes.
  WorkspaceLayout layout_;
  char* out_ = nullptr;                    // float32 partial results, where the caller has none
  char *delta_ = nullptr, *dq_ = nullptr;  // float32
  char* packed_[2] = {};                   // own keys and values, if the caller's have gaps
  char* blocks_[2] = {};                   // of a ring: keys and values that travel
  char* gathered_[2] = {};                 // those of others that this rank sees
  char* part_ = nullptr;                   // float32: gradients of a block, this rank's share
  char *sum_ = nullptr, *arriving_ = nullptr, *home_ = nullptr;  // of a ring: gradients that travel
  char* owed_ = nullptr;    // of gathered keys: their gradients as they travel, if not float32
  char* own_ = nullptr;     // float32: own keys' gradients from own rows
  char* shares_ = nullptr;  // and from the rows of others, by rank
  char* inner_ = nullptr;   // of the steps themselves
  int64_t inner_bytes_ = 0;
};

}  // namespace lathe
