// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs attention with gathered keys. Round 0 reads own keys, round 1 those of all other ranks that
// this rank's rows see, rank by rank in one buffer.
//
// Forward: the keys of the next slice come beside the step on those of this one.
//
//   stream:   own keys | others' keys                | ... | sinks, rounding
//   exchange: gather   | gather of the next slice    | ...
//
// Backward: the others' keys come first. Their gradients then travel beside the round of own keys,
// and the next slice's keys after them.
//
//   stream:   delta |        | others' keys | own keys            | sums of own keys
//   exchange:       | gather |              | return, next gather |
#include "ops/attention/ranks/sharded.h"

namespace lathe {
namespace {

class GatherRun final : public ShardedRun {
 public:
  using ShardedRun::ShardedRun;

 private:
  void lay_out_keys(const Slice& widest) override {
    const int64_t seen = tables_.gathered_tokens(), travelling = travelling_bytes();
    for (int i = 0; i < (slices() > 1 ? 2 : 1); ++i) {
      workspace_.received[i] = key_section(widest, seen, element_bytes());
    }
    if (!problem().backward) return;
    workspace_.block = key_section(widest, seen, 4);
    workspace_.returned = narrow() ? key_section(widest, seen, travelling) : workspace_.block;
    workspace_.own = key_section(widest, tables_.own_tokens(), 4);
    workspace_.shares = key_section(widest, tables_.shares.tokens, travelling);
  }

  KeyBlock keys_of(const Slice& slice, int round) const override {
    if (round == 0) return own_keys(slice);
    return block(slice, workspace_.received[slice.index % 2], tables_.gathered_tokens());
  }
  bool narrow() const { return program_.travelling() != Dtype::f32; }

  Status forward() override;
  Status backward() override;

  Status post_gather(const Slice& slice);
  Status post_return(const Slice& slice);
  Status differentiate_others(const Slice& slice);
};

// Adds the messages with `message.tokens` keys and values from token `first` of the block on. They
// lie apart for each row of the batch.
void add(const KeyMessage& message, const KeyBlock& block, int64_t first,
         std::vector<Transfer>* to) {
  if (!message) return;
  for (const TokenRows& rows : {block.k, block.v}) {
    to->push_back(rows.message(message.peer, first, message.tokens, block.element_bytes));
  }
}

Status GatherRun::post_gather(const Slice& slice) {
  LATHE_TRY(pack_keys(slice));
  const KeyBlock from = sent_keys(slice), to = keys_of(slice, 1);
  return post("the gather of keys", 0, [&](HopMessages* hop) {
    for (int peer = 0; peer < rounds_.world; ++peer) {
      const KeyMessage& sent = rounds_.send_keys[peer];
      add(sent, from, sent.begin, &hop->sends);
      add(rounds_.receive_keys[peer], to, tables_.gathered[peer], &hop->receives);
    }
  });
}

// Sends gradients of other ranks' keys and receives those of own keys. The shares of the ranks lie
// one after another, those of keys before those of values.
Status GatherRun::post_return(const Slice& slice) {
  const KeyBlock from = block(slice, workspace_.returned, tables_.gathered_tokens());
  KeyBlock share = block(slice, workspace_.shares, tables_.shares.tokens);
  return post("the return of gradients", 0, [&](HopMessages* hop) {
    for (int peer = 0; peer < rounds_.world; ++peer) {
      add(rounds_.receive_keys[peer], from, tables_.gathered[peer], &hop->sends);
      const KeyMessage& received = rounds_.send_keys[peer];
      if (!received) continue;
      for (TokenRows* rows : {&share.k, &share.v}) {
        rows->tokens = received.tokens;
        *rows = rows->dense_at(rows->data);
      }
      add(received, share, 0, &hop->receives);
      for (TokenRows* rows : {&share.k, &share.v}) {
        rows->data += rows->elements() * share.element_bytes;
      }
    }
  });
}

Status GatherRun::forward() {
  LATHE_TRY(post_gather(slice(0)));
  for (int64_t s = 0; s < slices(); ++s) {
    LATHE_TRY(attend(slice(s), 0));
    LATHE_TRY(exchange_.arrive());
    if (s + 1 < slices()) LATHE_TRY(post_gather(slice(s + 1)));
    LATHE_TRY(attend(slice(s), 1));
  }
  return {};
}

// Computes gradients of own rows with the keys of others. If there is no range, no rank waits for a
// result.
Status GatherRun::differentiate_others(const Slice& slice) {
  if (at_round(1).ranges.empty()) return {};
  const KeyBlock sums = block(slice, workspace_.block, tables_.gathered_tokens());
  LATHE_TRY(differentiate(slice, 1, true, sums));
  if (!narrow()) return {};
  return round(sums, block(slice, workspace_.returned, tables_.gathered_tokens()));
}

Status GatherRun::backward() {
  const bool others = !at_round(1).ranges.empty();
  if (!keeps_keys()) LATHE_TRY(post_gather(slice(0)));
  for (int64_t s = 0; s < slices(); ++s) {
    const Slice now = slice(s);
    LATHE_TRY(exchange_.arrive());
    LATHE_TRY(differentiate_others(now));
    LATHE_TRY(post_return(now));
    if (s + 1 < slices()) LATHE_TRY(post_gather(slice(s + 1)));
    const KeyBlock own = block(now, workspace_.own, tables_.own_tokens());
    LATHE_TRY(differentiate(now, 0, !others, own));
    LATHE_TRY(exchange_.arrive());
    const KeyBlock shares = block(now, workspace_.shares, tables_.shares.tokens);
    LATHE_TRY(give_keys(now, own, shares, tables_.shares));
  }
  return {};
}

}  // namespace

std::unique_ptr<ShardedAttention> new_gathered_attention(const AttentionRequest& request,
                                                         Group* group, unsigned flags) {
  return std::make_unique<RankExecutor<ShardedAttention, GatherRun>>(request, group, flags);
}

}  // namespace lathe
