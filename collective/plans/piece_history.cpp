// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the owners of the lines that pieces need, and lists the sums of lines.
#include "collective/plans/piece_history.h"

#include <algorithm>
#include <map>

namespace lathe {
namespace {

// A line with its owner.
struct OwnedLine {
  int rank = 0;
  LineRef line;
  auto operator<=>(const OwnedLine&) const = default;
};

// Returns the line that slot `slot` of a piece is.
OwnedLine line_of(const PieceLayout& layout, const SequencePiece& piece, int slot, int width) {
  const auto state = static_cast<int>(piece.sequence) * width;
  if (layout.is_first(piece)) return {piece.rank, {LineRef::state, state + slot}};
  if (slot == 0) return {piece.rank, {}};  // nobody reads it
  const std::vector<SequencePiece>& chain = layout.chains[piece.sequence];
  const int64_t token = piece.before - width + slot;  // of the sequence
  if (token < 0) {
    return {chain.front().rank, {LineRef::state, state + static_cast<int>(width + token)}};
  }
  int position = piece.position - 1;
  while (chain[position].before > token) --position;
  const SequencePiece& owner = chain[position];
  return {owner.rank, {LineRef::token, static_cast<int>(owner.row + token - owner.before)}};
}

// Returns the lines of every slot of a rank's pieces.
std::vector<OwnedLine> lines_of(const PieceLayout& layout, int rank, int width, bool tokens,
                                bool states) {
  std::vector<OwnedLine> out;
  for (const SequencePiece& piece : layout.ranks[rank]) {
    for (int slot = 0; slot < width; ++slot) {
      OwnedLine each = line_of(layout, piece, slot, width);
      const bool wanted = each.line.kind == LineRef::token ? tokens : states;
      if (!wanted) each.line = {};
      out.push_back(each);
    }
  }
  return out;
}

// Returns what others own of these lines, each once, by owner.
std::vector<OwnedLine> lines_of_others(std::vector<OwnedLine> lines, int rank) {
  std::erase_if(lines, [rank](const OwnedLine& each) {
    return each.rank == rank || each.line.kind == LineRef::none;
  });
  std::ranges::sort(lines);
  const auto [first, last] = std::ranges::unique(lines);
  lines.erase(first, last);
  return lines;
}

}  // namespace

int64_t PieceHistory::received() const {
  return receives.empty() ? 0 : receives.back().first + receives.back().lines;
}

PieceHistory piece_history(const PieceLayout& layout, int rank, int width, bool tokens,
                           bool states) {
  PieceHistory out;
  out.width = width;
  const std::vector<OwnedLine> own = lines_of(layout, rank, width, tokens, states);
  const std::vector<OwnedLine> arriving = lines_of_others(own, rank);
  for (size_t i = 0; i < arriving.size(); ++i) {
    if (i == 0 || arriving[i].rank != arriving[i - 1].rank) {
      out.receives.push_back({arriving[i].rank, static_cast<int>(i), 0});
    }
    ++out.receives.back().lines;
  }
  for (const OwnedLine& each : own) {
    const bool stays = each.rank == rank || each.line.kind == LineRef::none;
    const auto at = std::ranges::lower_bound(arriving, each) - arriving.begin();
    out.slots.push_back(stays ? each.line : LineRef{LineRef::message, static_cast<int>(at)});
  }
  for (int peer = 0; peer < static_cast<int>(layout.ranks.size()); ++peer) {
    if (peer == rank) continue;
    const auto first = static_cast<int>(out.sent.size());
    for (const OwnedLine& each :
         lines_of_others(lines_of(layout, peer, width, tokens, states), peer)) {
      if (each.rank == rank) out.sent.push_back(each.line);
    }
    const int lines = static_cast<int>(out.sent.size()) - first;
    if (lines > 0) out.sends.push_back({peer, first, lines});
  }
  return out;
}

void LineSums::add(LineRef to, const std::vector<LineRef>& from) {
  lines.push_back({to, static_cast<int>(sources.size()), static_cast<int>(from.size())});
  sources.insert(sources.end(), from.begin(), from.end());
}

LineSums packed_lines(const PieceHistory& history) {
  LineSums out;
  for (size_t i = 0; i < history.sent.size(); ++i) {
    const LineRef& from = history.sent[i];
    out.add({LineRef::message, static_cast<int>(i)},
            from.kind == LineRef::none ? std::vector<LineRef>() : std::vector<LineRef>{from});
  }
  return out;
}

LineSums joined_lines(const PieceHistory& history) {
  LineSums out;
  for (size_t i = 0; i < history.slots.size(); ++i) {
    const LineRef& from = history.slots[i];
    out.add({LineRef::piece, static_cast<int>(i)},
            from.kind == LineRef::none ? std::vector<LineRef>() : std::vector<LineRef>{from});
  }
  return out;
}

namespace {

// Returns the lines of one kind that slots of pieces are, each with these slots.
std::map<LineRef, std::vector<LineRef>> slots_by_line(const PieceHistory& history,
                                                      LineRef::Kind kind) {
  std::map<LineRef, std::vector<LineRef>> out;
  for (size_t i = 0; i < history.slots.size(); ++i) {
    const LineRef& line = history.slots[i];
    if (line.kind == kind) out[line].push_back({LineRef::piece, static_cast<int>(i)});
  }
  return out;
}

}  // namespace

LineSums returned_lines(const PieceHistory& history) {
  LineSums out;
  for (const auto& [line, slots] : slots_by_line(history, LineRef::message)) out.add(line, slots);
  return out;
}

LineSums summed_lines(const PieceHistory& history, LineRef::Kind kind) {
  std::map<LineRef, std::vector<LineRef>> sums = slots_by_line(history, kind);
  for (size_t i = 0; i < history.sent.size(); ++i) {
    if (history.sent[i].kind != kind) continue;
    sums[history.sent[i]].push_back({LineRef::message, static_cast<int>(i)});
  }
  LineSums out;
  for (const auto& [line, from] : sums) out.add(line, from);
  return out;
}

LineSums final_lines(const PieceLayout& layout, int rank, int width, bool of_pieces) {
  LineSums out;
  for (const SequencePiece& piece : layout.ranks[rank]) {
    const bool last = layout.is_last(piece);
    for (int slot = 0; slot < width; ++slot) {
      const LineRef own = {LineRef::piece, piece.number * width + slot};
      const LineRef state = {LineRef::state, static_cast<int>(piece.sequence) * width + slot};
      if (of_pieces) {
        out.add(own, last ? std::vector<LineRef>{state} : std::vector<LineRef>());
      } else if (last) {
        out.add(state, {own});
      }
    }
  }
  return out;
}

}  // namespace lathe
