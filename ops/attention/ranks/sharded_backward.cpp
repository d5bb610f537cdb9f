// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The backward over ranks. Each block's gradients need the final lse and delta of the rows alone,
// so nothing is merged, only added. In a ring the sum for a block follows it one round later: the
// hop beside round i brings the keys of round i + 1 and the sum that round i is added to.
//
//   stream:   delta | round 0 | round 1   | ... | round n - 1 |      | rounding
//   exchange:       | keys 0  | keys 1    | ... |             | sums
//                   |         | sums of 0 |     | sums        | home
#include <utility>

#include "collective/plans/conv_halo.h"  // all_reduce_f32
#include "ops/attention/ranks/sharded.h"
#include "ops/row_kernels.h"
#include "templates/params/rows.h"

namespace lathe {

Status AttentionRankRun::sum(const char* own, const char* parts,
                             const AttentionTables::Places& places, const TokenRows& to) {
  const KernelSlot& kernel = executor_.sum_parts_;
  const int64_t vector = kernel.numbers().vector;
  SumPartsParams p = {};
  p.own = own;
  p.parts = parts;
  p.places = places.data;
  p.out = to.data;
  p.own_batch_stride = to.tokens * to.heads * to.width;
  p.out_batch_stride = to.batch_stride;
  p.out_token_stride = to.token_stride;
  p.out_head_stride = to.head_stride;
  p.part_tokens = parts ? places.tokens : 0;
  p.cells = static_cast<int>(batch_ * to.tokens);
  p.batch = static_cast<int>(batch_);
  p.tokens = static_cast<int>(to.tokens);
  p.heads = static_cast<int>(to.heads);
  p.vectors = static_cast<int>(to.width / vector);
  p.count = places.count;
  p.lane_bits = lane_bits_of(*kernel, int64_t{p.heads} * p.vectors);
  return kernel.launch(row_blocks(*kernel, p.cells, p.lane_bits), &p, call_.stream);
}

// Writes the whole sums of own keys to the caller's tensors. A block without data has no part in
// them.
Status AttentionRankRun::give_keys(const KeyBlock& own, const KeyBlock& parts, int which) {
  const auto places = tables_.places(which);
  if (request_.gradients.dk) {
    LATHE_TRY(sum(own.k.data, parts.k.data, places, given(attention::dk)));
  }
  if (!request_.gradients.dv) return {};
  return sum(own.v.data, parts.v.data, places, given(attention::dv));
}

Status AttentionRankRun::gradients(int i, bool first, const KeyBlock& keys, const KeyBlock& sums) {
  const Part& part = gradients_part(first);
  return part.executor().run(gradients_call(part, i, keys, sums));
}

// Adds to a hop the gradients that go on or home after round i.
void AttentionRankRun::add_gradients(int i, HopMessages* hop) const {
  const AttentionRound& done = at_round(i);
  const int64_t bytes = bytes_of(executor_.travelling());
  const auto add_to = [&](const KeyMessage& message, char* data, Messages* to) {
    if (!message) return;
    add(message, block(data, rounds_.key_tokens[message.owner], bytes), bytes, Form::joined, to);
  };
  add_to(done.send_gradients, sum_, &hop->sends);
  add_to(done.receive_gradients, arriving_, &hop->receives);
  add_to(done.receive_home, home_, &hop->receives);
}

// Makes the sum of round i: part + arriving -> sum. A sum that this rank adds nothing to goes on
// unchanged.
Status AttentionRankRun::add_sums(int i) {
  const bool arrived = i > 0 && at_round(i - 1).receive_gradients;
  if (i > 0 && at_round(i).ranges.empty()) {
    if (arrived) std::swap(sum_, arriving_);
    return {};
  }
  const int64_t tokens = owner_tokens(i);
  if (!arrived && executor_.travelling() == Dtype::f32) {
    std::swap(part_, sum_);
    return {};
  }
  if (!arrived) return cast(block(part_, tokens, 4), block(sum_, tokens, element()));
  AddRowsParams p = {};
  p.a = arriving_;
  p.b = part_;
  p.out = sum_;
  p.count = key_elements(tokens);
  const KernelSlot& kernel = executor_.add_rows_;
  return kernel.launch(item_blocks(*kernel, p.count), &p, call_.stream);
}

Status AttentionRankRun::ring_backward() {
  for (int i = 0; i < count(); ++i) {
    HopMessages messages = no_messages();
    add_keys(i, &messages);
    if (i > 0) add_gradients(i - 1, &messages);
    LATHE_TRY(exchange_.post(messages.hop("a ring's keys and gradients", i)));
    if (i == 0 || !at_round(i).ranges.empty()) {
      LATHE_TRY(gradients(i, i == 0, ring_keys(i), block(part_, owner_tokens(i), 4)));
    }
    LATHE_TRY(exchange_.arrive());
    if (i == 0 && !at_round(0).send_gradients) {  // nobody else sees these keys
      LATHE_TRY(give_keys(block(part_, own_tokens(), 4), {}, AttentionTables::kOwn));
    } else {
      LATHE_TRY(add_sums(i));
    }
  }
  HopMessages last = no_messages();
  add_gradients(count() - 1, &last);
  LATHE_TRY(exchange_.post(last.hop("a ring's gradients", count())));
  LATHE_TRY(exchange_.arrive());
  if (!at_round(0).send_gradients) return {};
  const KeyBlock home = block(home_, own_tokens(), bytes_of(executor_.travelling()));
  return give_keys({}, home, AttentionTables::kArrived);
}

// Returns the hop that sends gradients of other ranks' keys and receives those of own keys. The
// shares of the ranks lie one after another, those of keys before those of values.
AttentionRankRun::HopMessages AttentionRankRun::return_hop() const {
  const int64_t bytes = bytes_of(executor_.travelling());
  const KeyBlock from = block(bytes == 4 ? part_ : owed_, tables_.gathered.back(), bytes);
  const int64_t all = tables_.places(AttentionTables::kShares).tokens;
  HopMessages hop = no_messages();
  int64_t before = 0;
  for (int peer = 0; peer < rounds_.world; ++peer) {
    KeyMessage owed = rounds_.receive_keys[peer];
    owed.begin = tables_.gathered[peer];
    add(owed, from, bytes, Form::rows, &hop.sends);
    KeyMessage share = rounds_.send_keys[peer];
    KeyBlock to = block(shares_, all, bytes);
    for (TokenRows* rows : {&to.k, &to.v}) {
      rows->data += batch_ * before * rows->heads * rows->width * bytes;
      rows->tokens = share.tokens;
    }
    share.begin = 0;
    before += share ? share.tokens : 0;
    add(share, to, bytes, Form::rows, &hop.receives);
  }
  return hop;
}

// Computes gradients of own rows with the keys of others. If there is no range, no rank waits for a
// result.
Status AttentionRankRun::others_gradients() {
  if (at_round(1).ranges.empty()) return {};
  const KeyBlock keys = gathered_keys();
  const KeyBlock sums = block(part_, keys.k.tokens, 4);
  LATHE_TRY(gradients(1, true, keys, sums));
  if (executor_.travelling() == Dtype::f32) return {};
  return cast(sums, block(owed_, keys.k.tokens, element()));
}

// Takes the others' keys first: their gradients then travel beside the round of own keys, and the
// next slice's keys after them.
Status AttentionRankRun::gathered_backward() {
  const bool again = !keeps_gathered(), others = !at_round(1).ranges.empty();
  const int64_t travelling = bytes_of(executor_.travelling());
  const int64_t all_shares = tables_.places(AttentionTables::kShares).tokens;
  if (again) LATHE_TRY(begin_gather(0));
  for (int64_t s = 0; s < slices(); ++s) {
    take(s);
    LATHE_TRY(exchange_.arrive());
    LATHE_TRY(others_gradients());
    LATHE_TRY(exchange_.post(return_hop().hop("the return of gradients")));
    if (s + 1 < slices()) LATHE_TRY(begin_gather(s + 1));
    take(s);
    const KeyBlock own = block(own_, own_tokens(), 4);
    LATHE_TRY(gradients(0, !others, own_keys(), own));
    LATHE_TRY(exchange_.arrive());
    LATHE_TRY(give_keys(own, block(shares_, all_shares, travelling), AttentionTables::kShares));
  }
  take_all();
  return {};
}

Status AttentionRankRun::backward() {
  LATHE_TRY(steps_.delta->executor().run(delta_call()));
  if (problem().dsinks && (executor_.flags_ & kReduceParameterGrads)) {
    LATHE_TRY(all_reduce_f32(*executor_.group_, call_.tensors[attention::dsinks].data,
                             static_cast<size_t>(heads_), call_.stream));
  }
  if (!problem().backward) return {};
  if (packs_ && !problem().forward && !gathers()) LATHE_TRY(pack_own_keys());
  LATHE_TRY(exchange_.joined(gathers() ? gathered_backward() : ring_backward()));
  if (!request_.gradients.dq) return {};
  return cast(rows_at(dq_, problem().head_dim), given(attention::dq));
}

Status AttentionRankRun::operator()() {
  if (problem().forward) LATHE_TRY(forward());
  return steps_.delta ? backward() : Status();
}

}  // namespace lathe
