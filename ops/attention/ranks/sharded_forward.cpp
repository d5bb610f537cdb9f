// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs the forward over ranks. Before round i the stream waits for the hop that brought its keys;
// the exchange waits for round i - 1, whose buffer is free then; hop i is posted, round i launched:
//
//   stream:   round 0 | round 1 | ... | round n - 1 | sinks, rounding
//   exchange: hop 0   | hop 1   | ...
#include <utility>

#include "ops/attention/ranks/sharded.h"

namespace lathe {

// Blocks of a ring travel whole. Gathered keys have a message for each row of the batch, because
// the rows lie apart on one side.
void AttentionRankRun::add(const KeyMessage& message, const KeyBlock& block, int64_t bytes,
                           Form form, Messages* to) const {
  if (!message) return;
  const bool whole = form != Form::rows;
  const auto transfer = [&](const TokenRows& rows) {
    const int64_t row = rows.heads * rows.width * bytes;  // of one token
    Transfer out;
    out.peer = message.peer;
    out.data = rows.data + message.begin * row;
    out.bytes = static_cast<size_t>(message.tokens * row * (whole ? batch_ : 1));
    out.count = whole ? 1 : batch_;
    out.stride = static_cast<size_t>(rows.tokens * row);
    return out;
  };
  Transfer k = transfer(block.k);
  const Transfer v = transfer(block.v);
  if (form == Form::joined) k.bytes += v.bytes;
  to->space[to->count++] = k;
  if (form != Form::joined) to->space[to->count++] = v;
}

// The first hop takes keys and values from where the caller has them, in two messages.
void AttentionRankRun::add_keys(int i, HopMessages* hop) const {
  const AttentionRound& now = at_round(i);
  const KeyBlock from = i == 0 ? sent_keys() : ring_keys(i);
  const Form form = i == 0 ? Form::apart : Form::joined;
  add(now.send_keys, from, element(), form, &hop->sends);
  if (now.receive_keys) {
    add(now.receive_keys, ring_keys(i + 1), element(), form, &hop->receives);
  }
}

AttentionRankRun::HopMessages AttentionRankRun::gather_hop() const {
  HopMessages hop = no_messages();
  const KeyBlock from = sent_keys(), to = gathered_keys();
  for (int peer = 0; peer < rounds_.world; ++peer) {
    add(rounds_.send_keys[peer], from, element(), Form::rows, &hop.sends);
    KeyMessage message = rounds_.receive_keys[peer];
    message.begin = tables_.gathered[peer];
    add(message, to, element(), Form::rows, &hop.receives);
  }
  return hop;
}

// Copies own keys without gaps, because messages that are sent from the caller's memory may have
// none.
Status AttentionRankRun::pack_own_keys() {
  const KeyBlock from = own_keys(), to = sent_keys();
  for (const auto& [rows, packed] : {std::pair(&from.k, &to.k), std::pair(&from.v, &to.v)}) {
    LATHE_TRY(copy_rows(executor_.copy_rows_, *rows, *packed, *rows, {nullptr, rows->tokens},
                        element(), call_.stream));
  }
  return {};
}

Status AttentionRankRun::step(int i, const KeyBlock& keys) {
  if (i > 0 && at_round(i).ranges.empty()) return {};
  const Part& part = forward_part(i);
  return part.executor().run(step_call(part, i, keys));
}

Status AttentionRankRun::ring_forward() {
  for (int i = 0; i < count(); ++i) {
    LATHE_TRY(exchange_.arrive());
    HopMessages messages = no_messages();
    add_keys(i, &messages);
    LATHE_TRY(exchange_.post(messages.hop("a ring's keys", i)));
    LATHE_TRY(step(i, ring_keys(i)));
  }
  return {};
}

Status AttentionRankRun::begin_gather(int64_t slice) {
  take(slice);
  if (packs_) LATHE_TRY(pack_own_keys());
  return exchange_.post(gather_hop().hop("the gather of keys"));
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
  if (packs_ && !gathers()) LATHE_TRY(pack_own_keys());
  LATHE_TRY(exchange_.joined(gathers() ? gathered_forward() : ring_forward()));
  return steps_.finish ? steps_.finish->executor().run(finish_call()) : Status();
}

}  // namespace lathe
