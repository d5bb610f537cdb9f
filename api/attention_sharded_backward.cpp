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

#include "api/attention_sharded_run.h"
#include "collective/conv_halo.h"  // all_reduce_f32

namespace lathe {

Status AttentionRankRun::gradients(int i, bool first, const KeyBlock& keys, const KeyBlock& sums) {
  const Part& part = first ? *work_.gradients_first_ : *work_.gradients_next_;
  return part.work().run(gradients_call(part, i, keys, sums));
}

// What goes on or home after round i.
void AttentionRankRun::add_gradients(int i, RingHop* hop) const {
  const AttentionRound& done = round(i);
  const int64_t bytes = bytes_of(travelling());
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

// The sum of round i: what arrived, and this rank's part. A sum that nothing is added to goes on as
// it is.
Status AttentionRankRun::add_arrived(int i) {
  const bool arrived = i > 0 && round(i - 1).receive_gradients;
  const bool added = i == 0 || !round(i).pairs.empty();
  if (added) return add_sums(rounds().key_tokens[round(i).owner], arrived);
  if (arrived) std::swap(places_.sum, places_.arriving);
  return {};
}

Status AttentionRankRun::ring_backward() {
  for (int i = 0; i < count(); ++i) {
    RingHop messages;
    add_keys(i, &messages);
    if (i > 0) add_gradients(i - 1, &messages);
    LATHE_TRY(post_hop(messages.hop("a ring's keys and gradients", i)));
    if (i == 0 || !round(i).pairs.empty()) {
      const KeyBlock sums = block(places_.part, rounds().key_tokens[round(i).owner], 4);
      LATHE_TRY(gradients(i, i == 0, ring_keys(i), sums));
    }
    LATHE_TRY(arrive());
    LATHE_TRY(add_arrived(i));
    // Nobody else sees these keys.
    if (i == 0 && !round(0).send_gradients) LATHE_TRY(give_keys(places_.sum, travelling()));
  }
  RingHop last;
  add_gradients(count() - 1, &last);
  LATHE_TRY(post_hop(last.hop("a ring's gradients", count())));
  LATHE_TRY(arrive());
  return round(0).send_gradients ? give_keys(places_.home, travelling()) : Status();
}

// What this rank owes for the keys of others, and what it is owed for its own.
Hop AttentionRankRun::return_hop() const {
  size_t sends = 0, receives = 0;
  const KeyBlock from = block(places_.part, rounds().key_offsets.back(), 4);
  for (int peer = 0; peer < rounds().world; ++peer) {
    KeyMessage message = rounds().receive_keys[peer];
    message.begin += rounds().key_offsets[peer];
    add(message, from, 4, Form::rows, tables_.sends(), &sends);
    add(rounds().send_keys[peer], share_of(peer), 4, Form::rows, tables_.receives(), &receives);
  }
  return {tables_.sends().first(sends), tables_.receives().first(receives),
          "the return of gradients"};
}

// Own keys' gradients come from the ranks that see them, and from here.
int64_t AttentionRankRun::shares_before(int rank) const {
  int64_t count = 0;
  for (int peer = 0; peer < rank; ++peer) {
    count += peer == rounds().rank || rounds().send_keys[peer] ? 1 : 0;
  }
  return count;
}

KeyBlock AttentionRankRun::share_of(int rank) const {
  return block(places_.shares + shares_before(rank) * key_elements(own_tokens()) * 4, own_tokens(),
               4);
}

// Where a peer sees some of the keys only, the rest of its share is 0.
Status AttentionRankRun::clear_shares() {
  const int64_t bytes = key_elements(own_tokens()) * 4;
  for (int peer = 0; peer < rounds().world; ++peer) {
    const KeyMessage& message = rounds().send_keys[peer];
    if (!message || message.tokens == own_tokens()) continue;
    const Driver& driver = work_.group_->device().driver();
    const auto at_ = reinterpret_cast<CUdeviceptr>(share_of(peer).k.data);
    LATHE_TRY(check(driver,
                    driver.cuMemsetD8Async(at_, 0, static_cast<size_t>(bytes), call_.stream),
                    "cuMemsetD8Async"));
  }
  return {};
}

// The others' keys first: what they are owed then travels beside the round of own keys.
Status AttentionRankRun::gathered_backward() {
  if (!problem().forward) {
    LATHE_TRY(post_hop(gather_hop()));
    LATHE_TRY(arrive());
  }
  const KeyBlock keys = gathered_keys();
  const bool others = count() > 1 && !round(1).pairs.empty();
  if (others) {
    LATHE_TRY(gradients(1, true, keys, block(places_.part, keys.k.tokens, 4)));
  }
  LATHE_TRY(clear_shares());
  LATHE_TRY(post_hop(return_hop()));
  LATHE_TRY(gradients(0, !others, own_keys(), share_of(rounds().rank)));
  LATHE_TRY(arrive());
  return give_shares();
}

Status AttentionRankRun::backward() {
  LATHE_TRY(work_.delta_->work().run(delta_call()));
  if (problem().dsinks && (work_.flags_ & LATHE_REDUCE_PARAMETER_GRADS)) {
    LATHE_TRY(all_reduce_f32(*work_.group_, call_.tensors[attention::dsinks].data,
                             static_cast<size_t>(heads_), call_.stream));
  }
  if (!problem().backward) return {};
  if (packs_ && !problem().forward) LATHE_TRY(pack_own_keys());
  LATHE_TRY(joined(work_.gathers() ? gathered_backward() : ring_backward()));
  return give(attention::dq, dense(at(places_.dq), rows_, heads_, problem().head_dim), Dtype::f32);
}

}  // namespace lathe
