// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Answers cases about the pieces that ranks hold of sequences, and the messages of their chains.
#include <set>

#include "api/shard_cases.h"
#include "codegen/base/text.h"
#include "collective/plans/piece_states.h"

namespace lathe::kinds {
namespace {

// Reads a table of ranges: for each rank its list of [first, last).
ShardLayout ranges_of(const Json& table, int world) {
  if (!table.is_array() || table.size() != static_cast<size_t>(world)) {
    throw Refused(
        text("ranges is ", shown(table), "; allowed is a list for each of ", world, " ranks"));
  }
  ShardLayout out;
  for (const Json& rank : table) {
    if (!rank.is_array()) throw Refused(text("ranges has ", shown(rank), "; allowed is a list"));
    std::vector<Interval>& own = out.emplace_back();
    for (const Json& range : rank) {
      const std::vector<int64_t> pair = integers_of(range, "ranges", 0, INT_MAX);
      if (pair.size() != 2) {
        throw Refused(text("ranges has ", shown(range), "; allowed is [first, last]"));
      }
      own.push_back({pair[0], pair[1]});
    }
  }
  return out;
}

Layout layout_of(const PlanCase& input) {
  LayoutOptions options;
  options.world = input.world();
  options.cu_seqlens = input.cu_seqlens();
  options.length = options.cu_seqlens.back();
  const auto sequences = static_cast<int64_t>(options.cu_seqlens.size());
  int64_t intervals = 2 * sequences * options.world;
  if (input.has("ranges")) {
    options.ranges = ranges_of(input.at("ranges"), options.world);
    intervals = options.world;
    for (const auto& own : options.ranges) intervals += static_cast<int64_t>(own.size());
  } else {
    options.balance = accepted(balance_of(input.word("balance")));
    if (options.balance == Balance::ptrr) {
      options.block_size = input.integer("block_size", 1, INT_MAX);
      intervals = options.length / options.block_size + 1;
    }
  }
  input.list("pieces", intervals + sequences, kFields);
  return accepted(make_layout(options));
}

// Returns the most messages that there may be: every piece of a chain to each of its ranks.
int64_t most_messages(const PieceLayout& layout) {
  int64_t out = 0;
  for (const auto& chain : layout.chains) {
    std::set<int> ranks;
    for (const SequencePiece& piece : chain) ranks.insert(piece.rank);
    out += std::ssize(chain) * (std::ssize(ranks) - 1) * 3;
  }
  return out;
}

constexpr const char* kWhat[] = {"state", "map", "gradient"};  // by PieceMessage::Kind

}  // namespace

Json pieces(const PlanCase& input) {
  const Layout layout = layout_of(input);
  const PieceLayout found = piece_layout(layout);
  input.list("messages", most_messages(found), kFields);
  const auto interval = [&layout](const SequencePiece& piece) {
    const int64_t begin = layout.cu_seqlens[piece.sequence] + piece.before;
    return Json{begin, begin + piece.tokens};
  };
  Json held = Json::array(), messages = Json::array();
  for (int rank = 0; rank < layout.world(); ++rank) {
    for (const SequencePiece& piece : found.ranks[rank]) {
      held.push_back({{"rank", rank},
                      {"sequence", piece.sequence},
                      {"interval", interval(piece)},
                      {"position", piece.position}});
    }
    const PieceStatesPlan plan = piece_states_plan(found, rank, true, true);
    for (const PieceMessage& each : plan.sends) {
      const SequencePiece& piece = plan.pieces[each.element];
      messages.push_back({{"rank", rank},
                          {"to", each.peer},
                          {"sequence", piece.sequence},
                          {"interval", interval(piece)},
                          {"what", kWhat[each.kind]}});
    }
  }
  return {{"pieces", held}, {"messages", messages}};
}

}  // namespace lathe::kinds
