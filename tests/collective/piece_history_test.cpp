// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests hold the plan of histories against the definition of a causal convolution, with lines
// that are identified and not computed: all tables of a small axis for all worlds to 6, and random
// ones.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "collective/plans/history_tables.h"
#include "tests/collective/pieces_world.h"

using namespace lathe;
using namespace pieces_test;

namespace {

// A line of the whole axis: a token, or slot `number` of a sequence's initial state. Nothing:
// zeros.
struct Line {
  enum Kind { zeros, token, state } kind = zeros;
  int64_t number = 0;
  auto operator<=>(const Line&) const = default;
};

struct World {
  const Layout& layout;
  PieceLayout pieces;
  int width;
  std::vector<PieceHistory> ranks;

  World(const Layout& its_layout, int its_width, bool tokens, bool states)
      : layout(its_layout), pieces(piece_layout(its_layout)), width(its_width) {
    for (int rank = 0; rank < layout.world(); ++rank) {
      if (!layout.capacity) {
        ranks.push_back(piece_history(pieces, rank, width, tokens, states));
        continue;
      }
      // Those of gradients, which a call may have without the others.
      const HistoryWants wants{.width = width, .backward = tokens, .dinitial_state = states};
      ranks.push_back(history_tables(layout, rank, wants)->gradients);
    }
  }
  // Returns the token of a rank's row.
  int64_t token(int rank, int row) const {
    for (const Interval& each : layout.queries[rank]) {
      if (row < each.size()) return each.begin + row;
      row -= static_cast<int>(each.size());
    }
    FAIL("there is no such row");
    return -1;
  }
  Line line(int rank, const LineRef& ref) const {
    if (ref.kind == LineRef::token) return {Line::token, token(rank, ref.index)};
    if (ref.kind == LineRef::state) return {Line::state, ref.index};
    REQUIRE(ref.kind == LineRef::none);
    return {};
  }
};

// Returns the lines that arrive at a rank, by their number there; each has one sender.
std::map<int, Line> arrivals(const World& world, int rank, int64_t* messages) {
  std::map<int, Line> out;
  for (const LineMessage& each : world.ranks[rank].receives) {
    const PieceHistory& from = world.ranks[each.peer];
    const auto sent = std::ranges::find(from.sends, rank, &LineMessage::peer);
    REQUIRE(sent != from.sends.end());
    REQUIRE(sent->lines == each.lines);
    ++*messages;
    for (int i = 0; i < each.lines; ++i) {
      const bool first =
          out.emplace(each.first + i, world.line(each.peer, from.sent[sent->first + i])).second;
      CHECK(first);
    }
  }
  return out;
}

// Returns slot `slot` of a piece by the definition.
Line expected(const World& world, const SequencePiece& piece, int slot, bool tokens, bool states) {
  const int64_t start = world.layout.cu_seqlens[piece.sequence];
  const int64_t back = piece.before - world.width + slot;
  if (back >= 0) return tokens && slot > 0 ? Line{Line::token, start + back} : Line{};
  if (!states || (slot == 0 && piece.before > 0)) return {};
  return {Line::state, piece.sequence * world.width + world.width + back};
}

void check_history(const Layout& layout, int width, bool tokens, bool states) {
  const World world(layout, width, tokens, states);
  int64_t messages = 0, sends = 0;
  for (int rank = 0; rank < layout.world(); ++rank) {
    const PieceHistory& history = world.ranks[rank];
    sends += std::ssize(history.sends);
    const std::map<int, Line> arrived = arrivals(world, rank, &messages);
    CHECK(std::ssize(arrived) == history.received());
    std::set<Line> needed;  // of others
    for (const SequencePiece& piece : world.pieces.ranks[rank]) {
      for (int slot = 0; slot < width; ++slot) {
        const LineRef& ref = history.slots[piece.number * width + slot];
        const bool message = ref.kind == LineRef::message;
        const Line found = message ? arrived.at(ref.index) : world.line(rank, ref);
        CHECK(found == expected(world, piece, slot, tokens, states));
        if (message) needed.insert(found);
      }
    }
    if (layout.capacity) continue;
    CHECK(needed.size() == arrived.size());  // nothing twice, and nothing for nobody
  }
  CHECK(sends == messages);
}

// Gradients: every slot of every piece has a number of its own, and each token and state gets the
// sum of those that are it.
void check_gradients(const Layout& layout, int width) {
  const World world(layout, width, true, true);
  const int count = layout.world();
  const auto number = [&](int rank, int slot) { return int64_t{1} + rank * 1000 + slot; };
  std::vector<std::map<int, int64_t>> back(static_cast<size_t>(count));  // by line that was sent
  std::map<Line, int64_t> expected_sums, found;
  for (int rank = 0; rank < count; ++rank) {
    LineSums returned = returned_lines(world.ranks[rank]);
    if (layout.capacity) {
      const HistoryWants wants{.width = width, .backward = true, .dinitial_state = true};
      returned = history_tables(layout, rank, wants)->returned;
    }
    std::map<int, int64_t> lines;
    for (const LineSum& each : returned.lines) {
      int64_t& sum = lines[each.to.index];
      for (int i = each.first; i < each.first + each.count; ++i) {
        sum += number(rank, returned.sources[i].index);
      }
    }
    for (const LineMessage& each : world.ranks[rank].receives) {
      const auto sent = std::ranges::find(world.ranks[each.peer].sends, rank, &LineMessage::peer);
      for (int i = 0; i < each.lines; ++i)
        back[each.peer][sent->first + i] = lines.at(each.first + i);
    }
    for (const SequencePiece& piece : world.pieces.ranks[rank]) {
      for (int slot = 0; slot < width; ++slot) {
        const Line line = expected(world, piece, slot, true, true);
        if (line.kind != Line::zeros) {
          expected_sums[line] += number(rank, piece.number * width + slot);
        }
      }
    }
  }
  for (int rank = 0; rank < count; ++rank) {
    for (const LineRef::Kind kind : {LineRef::token, LineRef::state}) {
      const LineSums sums = summed_lines(world.ranks[rank], kind);
      for (const LineSum& each : sums.lines) {
        int64_t& sum = found[world.line(rank, each.to)];
        CHECK((sum == 0 || layout.length == 0));
        sum = 0;
        for (int i = each.first; i < each.first + each.count; ++i) {
          const LineRef& from = sums.sources[i];
          sum += from.kind == LineRef::piece ? number(rank, from.index) : back[rank].at(from.index);
        }
      }
    }
  }
  if (layout.length > 0) CHECK(found == expected_sums);
}

// Returns the counts of all tables and messages of a rank.
std::vector<size_t> counts_of(const HistoryTables& tables) {
  std::vector<size_t> out = {static_cast<size_t>(tables.pieces), tables.offsets.size()};
  for (const LineSums* each : {&tables.packed, &tables.joined, &tables.final_grads, &tables.finals,
                               &tables.returned, &tables.tokens, &tables.states}) {
    out.push_back(each->lines.size()), out.push_back(each->sources.size());
  }
  for (const PieceHistory* each : {&tables.history, &tables.gradients}) {
    out.push_back(each->sent.size()), out.push_back(each->slots.size());
    for (const auto* messages : {&each->sends, &each->receives}) {
      for (const LineMessage& message : *messages) {
        out.insert(out.end(),
                   {static_cast<size_t>(message.peer), static_cast<size_t>(message.first),
                    static_cast<size_t>(message.lines)});
      }
    }
  }
  return out;
}

// The counts of a capacity are those of any of its layouts, here one without tokens.
void check_counts(const Layout& layout, int width) {
  Layout empty = layout_of({}, layout.world(), {0, 0});
  empty.capacity = layout.capacity;
  const HistoryWants wants{width, true, true, true, true, true};
  for (int rank = 0; rank < layout.world(); ++rank) {
    CHECK(counts_of(*history_tables(layout, rank, wants)) ==
          counts_of(*history_tables(empty, rank, wants)));
  }
}

void check_all(const Layout& layout) {
  const Layout fixed = with_capacity(layout);
  for (const int width : {2, 4}) {
    check_history(layout, width, true, true);
    check_history(layout, width, true, false);
    check_gradients(layout, width);
    check_history(fixed, width, true, true);
    check_gradients(fixed, width), check_counts(fixed, width);
  }
}

}  // namespace

TEST_CASE("histories of pieces: every table of a small axis, for all worlds to 6") {
  for (int world = 1; world <= 6; ++world) each_table(world, 4, check_all);
  for (int world = 2; world <= 3; ++world) each_table(world, 5, check_all);
}

TEST_CASE("histories of pieces: random tables, and widths up to 8") {
  each_random_table(2, 300, [](const Layout& layout) {
    check_all(layout);
    check_history(layout, 8, true, true), check_history(layout, 3, false, true);
    check_gradients(layout, 8);
  });
  check_all(layout_of({}, 2, {0, 0, 0}));
}

TEST_CASE("histories of pieces: final states are those of last pieces") {
  const PieceLayout pieces = piece_layout(layout_of({0, 1, 0}, 2, {0, 2, 3}));
  const LineSums results = final_lines(pieces, 0, 2, false),
                 given = final_lines(pieces, 0, 2, true);
  REQUIRE(results.lines.size() == 2);  // of sequence 1 alone
  CHECK(results.lines[0].to == LineRef{LineRef::state, 2});
  CHECK(results.sources[0] == LineRef{LineRef::piece, 2});
  REQUIRE(given.lines.size() == 4);
  CHECK(given.lines[0].count == 0);  // its piece of sequence 0 is not the last: zeros
  CHECK(given.sources == std::vector<LineRef>{{LineRef::state, 2}, {LineRef::state, 3}});
}
