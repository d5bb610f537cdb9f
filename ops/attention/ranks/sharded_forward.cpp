// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs the forward over ranks. Before round i the stream waits for the hop that brought its keys;
// the exchange waits for round i - 1, whose buffer is free then; hop i is posted, round i launched:
//
//   stream:   round 0 | round 1 | ... | round n - 1 | sinks, rounding
//   exchange: hop 0   | hop 1   | ...
#include <algorithm>

#include "ops/attention/ranks/sharded.h"

namespace lathe {

// Returns a message. Blocks of a ring travel whole. Gathered keys have a message for each row of
// the batch, because the rows lie apart on one side.
Transfer AttentionRankRun::transfer(const KeyMessage& message, const TokenRows& rows, int64_t bytes,
                                    bool whole) const {
  const int64_t row = rows.heads * rows.width * bytes;  // of one token
  Transfer out;
  out.peer = message.peer;
  out.data = rows.data ? rows.data + message.begin * row : nullptr;
  out.bytes = static_cast<size_t>(message.tokens * row * (whole ? batch_ : 1));
  out.count = whole ? 1 : batch_;
  out.stride = static_cast<size_t>(rows.tokens * row);
  return out;
}

void AttentionRankRun::add(const KeyMessage& message, const KeyBlock& block, int64_t bytes,
                           Form form, std::span<Transfer> to, size_t* count) const {
  if (!message) return;
  Transfer k = transfer(message, block.k, bytes, form != Form::rows);
  const Transfer v = transfer(message, block.v, bytes, form != Form::rows);
  if (form == Form::joined) k.bytes += v.bytes;
  to[(*count)++] = k;
  if (form != Form::joined) to[(*count)++] = v;
}

// The first hop takes keys and values from where the caller has them, in two messages.
void AttentionRankRun::add_keys(int i, RingHop* hop) const {
  const AttentionRound& now = at_round(i);
  const KeyBlock from = i == 0 ? sent_keys() : ring_keys(i);
  const Form form = i == 0 ? Form::apart : Form::joined;
  add(now.send_keys, from, element(), form, hop->send, &hop->sends);
  if (now.receive_keys) {
    add(now.receive_keys, ring_keys(i + 1), element(), form, hop->receive, &hop->receives);
  }
}

Hop AttentionRankRun::gather_hop() const {
  size_t sends = 0, receives = 0;
  const KeyBlock to = gathered_keys();
  for (int peer = 0; peer < rounds().world; ++peer) {
    add(rounds().send_keys[peer], sent_keys(), element(), Form::rows, tables_.sends(), &sends);
    KeyMessage message = rounds().receive_keys[peer];
    message.begin = tables_.tokens_before(peer);
    add(message, to, element(), Form::rows, tables_.receives(), &receives);
  }
  return {tables_.sends().first(sends), tables_.receives().first(receives), "the gather of keys"};
}

Status AttentionRankRun::step(int i, const KeyBlock& keys) {
  const Part& part = i == 0 ? *executor_.steps_.first : *executor_.steps_.next;
  if (i > 0 && at_round(i).ranges.empty()) return {};
  return part.executor().run(step_call(part, i, keys));
}

Status AttentionRankRun::ring_forward() {
  for (int i = 0; i < count(); ++i) {
    LATHE_TRY(exchange_.arrive());
    RingHop messages;
    add_keys(i, &messages);
    LATHE_TRY(exchange_.post(messages.hop("a ring's keys", i)));
    LATHE_TRY(step(i, ring_keys(i)));
  }
  return {};
}

Status AttentionRankRun::begin_gather(int64_t slice) {
  take(slice);
  if (packs_) LATHE_TRY(pack_own_keys());
  return exchange_.post(gather_hop());
}

// The next slice's keys come beside the step on those of this one.
Status AttentionRankRun::gathered_forward() {
  LATHE_TRY(begin_gather(0));
  for (int64_t s = 0; s < slices(); ++s) {
    take(s);
    LATHE_TRY(step(0, own_keys()));
    LATHE_TRY(exchange_.arrive());
    if (s + 1 < slices()) LATHE_TRY(begin_gather(s + 1));
    take(s);
    LATHE_TRY(step(1, gathered_keys()));
  }
  take_all();
  return {};
}

Status AttentionRankRun::forward() {
  if (packs_ && !executor_.gathers()) LATHE_TRY(pack_own_keys());
  LATHE_TRY(exchange_.joined(executor_.gathers() ? gathered_forward() : ring_forward()));
  return executor_.steps_.finish ? executor_.steps_.finish->executor().run(finish_call())
                                 : Status();
}

}  // namespace lathe
