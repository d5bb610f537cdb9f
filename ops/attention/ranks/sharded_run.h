// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One call of sharded attention: where everything lies, the steps' own calls, and what is posted
// between them. On the stack of the call.
#pragma once

#include <array>

#include "ops/attention/ranks/sharded.h"

namespace lathe {

// The messages of one hop of a ring: keys, and in the backward gradients that go on or home.
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
  // Launches and costs of this rank.
  Result<Estimate> estimate();

 private:
  // How a block of keys and values becomes messages: one; two; or two for each row of the batch.
  enum class Form { joined, apart, rows };
  // Keys may be gathered in slices: some key heads, with their query heads, of one row of the
  // batch. What follows is about the slice that was taken last; first about everything.
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
  // Keys, then values, of `bytes` an element.
  KeyBlock block(int64_t offset, int64_t tokens, int64_t bytes) const;
  KeyBlock own_keys() const;
  KeyBlock sent_keys() const;
  KeyBlock ring_keys(int i) const;  // what round i reads
  KeyBlock gathered_keys() const;
  KeyBlock keys_of(int i) const {
    return !executor_.gathers() || i == 0 ? ring_keys(i) : gathered_keys();
  }
  // float32 [batch, rows, heads, width] and [batch, heads, rows].
  TokenRows rows_at(int64_t offset, int64_t width) const;
  char* row_values(char* data) const {
    const int64_t first = (slice_.row * all_heads_ + slice_.head) * rows_;
    return data ? data + first * static_cast<int64_t>(sizeof(float)) : nullptr;
  }
  TokenRows partial_out() const;

  void lay_out_backward(WorkspaceLayout* layout);
  Result<size_t> inner_bytes();
  // Of all (row, key) of round i those that are visible.
  double share_seen(int i, const KeyBlock& keys) const;
  void add_exchange(Estimate* out) const;
  Status estimate_slice(AttentionTally* tally) const;
  void lay_out_keys(WorkspaceLayout* layout);
  int64_t add_keys_to(WorkspaceLayout* layout, int64_t tokens, int64_t bytes) const;

  // Calls of the parts.
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

  // Rows moved, added and rounded.
  Status copy(const TokenRows& from, const TokenRows& to) {
    return copy_rows(executor_.copy_rows_, from, to, from, {nullptr, from.tokens}, element(),
                     call_.stream);
  }
  // `own` is float32 and without gaps; parts are as they travelled.
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
