// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs attention around a ring. Round i reads the keys of rank - i, which hop i - 1 brought.
//
// Forward: before round i the stream waits for the hop that brought its keys; the exchange waits
// for round i - 1, whose buffer is free then; hop i is posted, round i launched.
//
//   stream:   round 0 | round 1 | ... | round n - 1 | sinks, rounding
//   exchange: hop 0   | hop 1   | ...
//
// Backward: each block's gradients need the final lse and delta of the rows alone, so nothing is
// merged, only added. The sum for a block follows it one round later: the hop beside round i brings
// the keys of round i + 1 and the sum that round i is added to.
//
//   stream:   delta | round 0 | round 1   | ... | round n - 1 |      | rounding
//   exchange:       | keys 0  | keys 1    | ... |             | sums
//                   |         | sums of 0 |     | sums        | home
#include <utility>

#include "ops/attention/ranks/sharded.h"
#include "ops/row_kernels.h"
#include "templates/params/rows.h"

namespace lathe {
namespace {

class RingRun final : public ShardedRun {
 public:
  using ShardedRun::ShardedRun;

 private:
  void lay_out_keys(const Slice&) override {
    const int64_t most = rounds_.most_key_tokens, travelling = travelling_bytes();
    if (rounds() > 1) {
      for (KeySection& each : workspace_.received) each = key_section(all_, most, element_bytes());
    }
    if (!problem().backward) return;
    workspace_.block = key_section(all_, most, 4);
    workspace_.sum = key_section(all_, most, travelling);
    workspace_.arriving = key_section(all_, most, travelling);
    workspace_.home = key_section(all_, tables_.own_tokens(), travelling);
  }

  KeyBlock keys_of(const Slice&, int round) const override {
    if (round == 0) return own_keys(all_);
    return block(all_, workspace_.received[round % 2], owner_tokens(round));
  }
  int64_t owner_tokens(int round) const { return rounds_.key_tokens[at_round(round).owner]; }
  KeyBlock block_gradients(int round) const {
    return block(all_, workspace_.block, owner_tokens(round));
  }

  Status forward() override;
  Status backward() override;

  void add_keys(int round, HopMessages* hop) const;
  void add_gradients(int round, HopMessages* hop) const;
  // A sum of other ranks arrives beside this round.
  bool sum_arrives(int round) const {
    return round > 0 && bool(at_round(round - 1).receive_gradients);
  }
  // Another rank sees own keys.
  bool shares_keys() const { return bool(at_round(0).send_gradients); }
  Status add_sums(int round);
};

// A block travels whole, values behind keys.
Transfer block_message(int peer, const KeyBlock& block) {
  const int64_t elements = block.k.elements() + block.v.elements();
  return {peer, block.k.data, static_cast<size_t>(elements * block.element_bytes)};
}

// The first hop takes keys and values from where the caller has them, in two messages.
void add_apart(int peer, const KeyBlock& block, std::vector<Transfer>* to) {
  for (const TokenRows& rows : {block.k, block.v}) {
    const int64_t bytes = rows.elements() * block.element_bytes;
    to->push_back({peer, rows.data, static_cast<size_t>(bytes)});
  }
}

void RingRun::add_keys(int round, HopMessages* hop) const {
  const KeyMessage& sent = at_round(round).send_keys;
  const KeyMessage& received = at_round(round).receive_keys;
  if (round == 0) {
    if (sent) add_apart(sent.peer, sent_keys(all_), &hop->sends);
    if (received) add_apart(received.peer, keys_of(all_, 1), &hop->receives);
    return;
  }
  if (sent) hop->sends.push_back(block_message(sent.peer, keys_of(all_, round)));
  if (received) hop->receives.push_back(block_message(received.peer, keys_of(all_, round + 1)));
}

// Adds the gradients that go on or home after a round.
void RingRun::add_gradients(int round, HopMessages* hop) const {
  const auto add = [&](const KeyMessage& message, const KeySection& section,
                       std::vector<Transfer>* to) {
    if (!message) return;
    const int64_t tokens = rounds_.key_tokens[message.owner];
    to->push_back(block_message(message.peer, block(all_, section, tokens)));
  };
  const AttentionRound& done = at_round(round);
  add(done.send_gradients, workspace_.sum, &hop->sends);
  add(done.receive_gradients, workspace_.arriving, &hop->receives);
  add(done.receive_home, workspace_.home, &hop->receives);
}

Status RingRun::forward() {
  LATHE_TRY(pack_keys(all_));
  for (int i = 0; i < rounds(); ++i) {
    LATHE_TRY(exchange_.arrive());
    LATHE_TRY(post("a ring's keys", i, [&](HopMessages* hop) { add_keys(i, hop); }));
    LATHE_TRY(attend(all_, i));
  }
  return {};
}

Status RingRun::backward() {
  if (!problem().forward) LATHE_TRY(pack_keys(all_));
  for (int i = 0; i < rounds(); ++i) {
    LATHE_TRY(post("a ring's keys and gradients", i, [&](HopMessages* hop) {
      add_keys(i, hop);
      if (i > 0) add_gradients(i - 1, hop);
    }));
    LATHE_TRY(differentiate(all_, i, i == 0, block_gradients(i)));
    LATHE_TRY(exchange_.arrive());
    if (i == 0 && !shares_keys()) {
      LATHE_TRY(give_keys(all_, block_gradients(0), {}, tables_.own_sum));
    } else {
      LATHE_TRY(add_sums(i));
    }
  }
  const int last = rounds() - 1;
  LATHE_TRY(
      post("a ring's gradients", rounds(), [&](HopMessages* hop) { add_gradients(last, hop); }));
  LATHE_TRY(exchange_.arrive());
  if (!shares_keys()) return {};
  const KeyBlock home = block(all_, workspace_.home, tables_.own_tokens());
  return give_keys(all_, {}, home, tables_.arrived_sum);
}

// Makes the sum of a round: block + arriving -> sum. A sum that this rank adds nothing to goes on
// unchanged.
Status RingRun::add_sums(int round) {
  const bool arrives = sum_arrives(round);
  if (round > 0 && at_round(round).ranges.empty()) {
    if (arrives) std::swap(workspace_.sum, workspace_.arriving);
    return {};
  }
  if (!arrives && program_.travelling() == Dtype::f32) {
    std::swap(workspace_.block, workspace_.sum);
    return {};
  }
  const KeyBlock added = block_gradients(round);
  if (!arrives) return this->round(added, block(all_, workspace_.sum, owner_tokens(round)));
  const int64_t elements = added.k.elements() + added.v.elements();
  if (!launches(elements * (4 + 2 * travelling_bytes()))) return {};
  AddRowsParams p = {};
  p.a = at(workspace_.arriving.offset);
  p.b = at(workspace_.block.offset);
  p.out = at(workspace_.sum.offset);
  p.count = elements;
  const KernelSlot& kernel = program_.add_rows;
  return kernel.launch(item_blocks(*kernel, p.count), &p, call_.stream);
}

}  // namespace

std::unique_ptr<ShardedAttention> new_ring_attention(const AttentionRequest& request, Group* group,
                                                     unsigned flags) {
  return std::make_unique<RankExecutor<ShardedAttention, RingRun>>(request, group, flags);
}

}  // namespace lathe
