// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The backward over ranks. Each block's gradients need the final lse and delta of the rows alone,
// so nothing is merged, only added. In a ring the sum for a block follows it one round later: the
// hop beside round i brings the keys of round i + 1 and the sum that round i is added to.
//
//   stream:   delta | round 0 | round 1   | ... | round n - 1 |      | rounding
//   exchange:       | keys 0  | keys 1    | ... |             | sums
//                   |         | sums of 0 |     | sums        | home
#include <algorithm>

#include "collective/plans/conv_halo.h"  // all_reduce_f32
#include "ops/attention/ranks/sharded.h"

namespace lathe {

Status AttentionRankRun::gradients(int i, bool first, const KeyBlock& keys, const KeyBlock& sums) {
  const Part& part = first ? *executor_.steps_.gradients_first : *executor_.steps_.gradients_next;
  return part.executor().run(gradients_call(part, i, keys, sums));
}

// Adds to a hop the gradients that go on or home after round i.
void AttentionRankRun::add_gradients(int i, RingHop* hop) const {
  const AttentionRound& done = at_round(i);
  const int64_t bytes = bytes_of(executor_.travelling());
  const auto add_to = [&](const KeyMessage& message, int64_t place, std::span<Transfer> to,
                          size_t* messages) {
    if (!message) return;
    const KeyBlock from = block(place, rounds().key_tokens[message.owner], bytes);
    add(message, from, bytes, Form::joined, to, messages);
  };
  add_to(done.send_gradients, places_.sum, hop->send, &hop->sends);
  add_to(done.receive_gradients, places_.arriving, hop->receive, &hop->receives);
  add_to(done.receive_home, places_.home, hop->receive, &hop->receives);
}

// Makes the sum of round i from the arrived sum and this rank's share. A sum that this rank adds
// nothing to goes on unchanged.
Status AttentionRankRun::add_arrived(int i) {
  const bool arrived = i > 0 && at_round(i - 1).receive_gradients;
  const bool added = i == 0 || !at_round(i).ranges.empty();
  if (added) return add_sums(rounds().key_tokens[at_round(i).owner], arrived);
  if (arrived) std::swap(places_.sum, places_.arriving);
  return {};
}

Status AttentionRankRun::ring_backward() {
  for (int i = 0; i < count(); ++i) {
    RingHop messages;
    add_keys(i, &messages);
    if (i > 0) add_gradients(i - 1, &messages);
    LATHE_TRY(exchange_.post(messages.hop("a ring's keys and gradients", i)));
    if (i == 0 || !at_round(i).ranges.empty()) {
      const KeyBlock sums = block(places_.part, rounds().key_tokens[at_round(i).owner], 4);
      LATHE_TRY(gradients(i, i == 0, ring_keys(i), sums));
    }
    LATHE_TRY(exchange_.arrive());
    if (i == 0 && !at_round(0).send_gradients) {  // nobody else sees these keys
      LATHE_TRY(give_home(false));
    } else {
      LATHE_TRY(add_arrived(i));
    }
  }
  RingHop last;
  add_gradients(count() - 1, &last);
  LATHE_TRY(exchange_.post(last.hop("a ring's gradients", count())));
  LATHE_TRY(exchange_.arrive());
  return at_round(0).send_gradients ? give_home(true) : Status();
}

// Returns the hop that sends gradients of other ranks' keys and receives those of own keys. The
// shares of the ranks lie one after another, those of keys before those of values.
Hop AttentionRankRun::return_hop() const {
  const int64_t bytes = bytes_of(executor_.travelling());
  const KeyBlock from =
      block(bytes == 4 ? places_.part : places_.owed, tables_.gathered_tokens(), bytes);
  const int64_t all = tables_.places(AttentionTables::kShares).tokens;
  size_t sends = 0, receives = 0;
  int64_t before = 0;
  for (int peer = 0; peer < rounds().world; ++peer) {
    KeyMessage owed = rounds().receive_keys[peer];
    owed.begin = tables_.tokens_before(peer);
    add(owed, from, bytes, Form::rows, tables_.sends(), &sends);
    KeyMessage share = rounds().send_keys[peer];
    KeyBlock to = block(places_.shares, all, bytes);
    for (TokenRows* rows : {&to.k, &to.v}) {
      if (rows->data) rows->data += batch_ * before * rows->heads * rows->width * bytes;
      rows->tokens = share.tokens;
    }
    share.begin = 0;
    before += share ? share.tokens : 0;
    add(share, to, bytes, Form::rows, tables_.receives(), &receives);
  }
  return {tables_.sends().first(sends), tables_.receives().first(receives),
          "the return of gradients"};
}

// Computes gradients of own rows with the keys of others. If there is no range, no rank waits for a
// result.
Status AttentionRankRun::others_gradients() {
  if (at_round(1).ranges.empty()) return {};
  const KeyBlock keys = gathered_keys();
  const KeyBlock sums = block(places_.part, keys.k.tokens, 4);
  LATHE_TRY(gradients(1, true, keys, sums));
  if (executor_.travelling() == Dtype::f32) return {};
  const KeyBlock owed = block(places_.owed, keys.k.tokens, element());
  LATHE_TRY(cast(sums.k, owed.k));
  return cast(sums.v, owed.v);
}

// Takes the others' keys first: their gradients then travel beside the round of own keys, and the
// next slice's keys after them.
Status AttentionRankRun::gathered_backward() {
  const bool again = !keeps_gathered(), others = !at_round(1).ranges.empty();
  if (again) LATHE_TRY(begin_gather(0));
  for (int64_t s = 0; s < slices(); ++s) {
    take(s);
    LATHE_TRY(exchange_.arrive());
    LATHE_TRY(others_gradients());
    LATHE_TRY(exchange_.post(return_hop()));
    if (s + 1 < slices()) LATHE_TRY(begin_gather(s + 1));
    take(s);
    LATHE_TRY(gradients(0, !others, own_keys(), block(places_.own, own_tokens(), 4)));
    LATHE_TRY(exchange_.arrive());
    LATHE_TRY(give_shares());
  }
  take_all();
  return {};
}

Status AttentionRankRun::backward() {
  LATHE_TRY(executor_.steps_.delta->executor().run(delta_call()));
  if (problem().dsinks && (executor_.flags_ & kReduceParameterGrads)) {
    LATHE_TRY(all_reduce_f32(*executor_.group_, call_.tensors[attention::dsinks].data,
                             static_cast<size_t>(heads_), call_.stream));
  }
  if (!problem().backward) return {};
  if (packs_ && !problem().forward && !executor_.gathers()) LATHE_TRY(pack_own_keys());
  LATHE_TRY(exchange_.joined(executor_.gathers() ? gathered_backward() : ring_backward()));
  if (!executor_.request_.gradients.dq) return {};
  return cast(rows_at(places_.dq, problem().head_dim), given(attention::dq));
}

}  // namespace lathe
