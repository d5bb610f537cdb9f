// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the tables of a layout, and gives them the form of a capacity.
#include "collective/plans/history_tables.h"

namespace lathe {
namespace {

// The counts of every layout of a capacity.
class FixedHistory {
 public:
  FixedHistory(const Layout& layout, int rank, int width)
      : rank_(rank),
        others_(layout.world() - 1),
        slots_(static_cast<int>(layout.capacity.pieces) * width),
        lines_(static_cast<int>(layout.capacity.pieces) * (width - 1)) {}

  PieceHistory history(const PieceHistory& of) const;
  // Fills up the zeros of a table whose line for each `kind` with a number below `count` exists or
  // not.
  void fill(LineRef::Kind kind, int count, LineSums* sums) const;
  // Fills a table up to its most lines and sources.
  void pad(size_t lines, size_t sources, LineSums* sums) const;
  void tables(HistoryTables* out, const HistoryWants& wants) const;

 private:
  // A piece that begins a sequence has its slots on its own rank, and others need one less than
  // they have slots. So no rank sends more to one rank.
  int first_line(int peer) const { return (peer < rank_ ? peer : peer - 1) * lines_; }
  int message_lines() const { return others_ * lines_; }

  const int rank_, others_, slots_, lines_;
};

PieceHistory FixedHistory::history(const PieceHistory& of) const {
  PieceHistory out;
  out.width = of.width;
  out.slots = of.slots, out.slots.resize(slots_);
  out.sent.resize(message_lines());
  for (int peer = 0; peer <= others_; ++peer) {
    if (peer == rank_) continue;
    out.sends.push_back({peer, first_line(peer), lines_});
  }
  out.receives = out.sends;
  for (const LineMessage& each : of.sends) {
    std::copy_n(of.sent.begin() + each.first, each.lines, out.sent.begin() + first_line(each.peer));
  }
  for (LineRef& slot : out.slots) {
    if (slot.kind != LineRef::message) continue;
    auto message = of.receives.begin();
    while (slot.index >= message->first + message->lines) ++message;
    slot.index += first_line(message->peer) - message->first;
  }
  return out;
}

void FixedHistory::fill(LineRef::Kind kind, int count, LineSums* sums) const {
  std::vector<bool> made(static_cast<size_t>(count));
  for (const LineSum& each : sums->lines) made[each.to.index] = true;
  for (int i = 0; i < count; ++i) {
    if (!made[i]) sums->add({kind, i}, {});
  }
}

void FixedHistory::pad(size_t lines, size_t sources, LineSums* sums) const {
  sums->lines.resize(lines), sums->sources.resize(sources);
}

void FixedHistory::tables(HistoryTables* out, const HistoryWants& wants) const {
  const auto slots = static_cast<size_t>(slots_), messages = static_cast<size_t>(message_lines());
  out->offsets.resize(out->pieces + 1, out->offsets.back());
  pad(messages, messages, &out->packed);
  pad(slots, slots, &out->joined);
  if (wants.dfinal_state) {
    fill(LineRef::piece, slots_, &out->final_grads);
    pad(slots, slots, &out->final_grads);
  }
  if (wants.final_state) pad(slots, slots, &out->finals);
  if (wants.returns()) {
    fill(LineRef::message, message_lines(), &out->returned);
    pad(messages, slots, &out->returned);
  }
  const size_t both = slots + messages;  // of own pieces, and what others return
  if (wants.backward) pad(both, both, &out->tokens);
  if (wants.dinitial_state) pad(both, both, &out->states);
}

}  // namespace

Result<HistoryTables> history_tables(const Layout& layout, int rank, const HistoryWants& wants) {
  LATHE_ASSIGN(const PieceLayout pieces,
               wants.canonical ? canonical_pieces(layout) : piece_layout(layout));
  HistoryTables out;
  out.pieces = layout.capacity ? layout.capacity.pieces : std::ssize(pieces.ranks[rank]);
  const FixedHistory fixed(layout, rank, wants.width);
  const auto history = [&](bool tokens, bool states) {
    PieceHistory made = piece_history(pieces, rank, wants.width, tokens, states);
    return layout.capacity ? fixed.history(made) : made;
  };
  out.history = history(true, wants.initial_state);
  out.gradients = history(wants.backward, wants.dinitial_state);
  out.offsets = pieces.offsets(rank);
  out.packed = packed_lines(out.history);
  out.joined = joined_lines(out.history);
  if (wants.final_state) out.finals = final_lines(pieces, rank, wants.width, false);
  if (wants.dfinal_state) out.final_grads = final_lines(pieces, rank, wants.width, true);
  if (wants.returns()) out.returned = returned_lines(out.gradients);
  if (wants.backward) out.tokens = summed_lines(out.gradients, LineRef::token);
  if (wants.dinitial_state) out.states = summed_lines(out.gradients, LineRef::state);
  if (layout.capacity) fixed.tables(&out, wants);
  return out;
}

}  // namespace lathe
