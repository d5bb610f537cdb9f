// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Intersects the ranks' intervals with the sequences.
#include "collective/plans/pieces.h"

#include <algorithm>
#include <limits>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

// Appends the pieces of the non-empty sequences that meet an interval, whose first row is `row`.
// They are cut at every `most` tokens of a sequence.
void append(const std::vector<int64_t>& cu, Interval interval, int64_t row, int rank, int64_t most,
            std::vector<SequencePiece>* pieces) {
  const auto behind = std::upper_bound(cu.begin(), cu.end(), interval.begin);
  for (auto n = behind - cu.begin() - 1; cu[n] < interval.end; ++n) {
    int64_t begin = std::max(cu[n], interval.begin);
    const int64_t end = std::min(cu[n + 1], interval.end);
    while (begin < end) {
      const int64_t before = begin - cu[n];
      SequencePiece& piece = pieces->emplace_back();
      piece.rank = rank, piece.sequence = n, piece.row = row + begin - interval.begin;
      piece.tokens = std::min(end - begin, most - before % most), piece.before = before;
      begin += piece.tokens;
    }
  }
}

// Returns the rank that holds a token.
int rank_of(const ShardLayout& layout, int64_t token) {
  const auto holds = [token](const std::vector<Interval>& intervals) {
    return std::ranges::any_of(intervals, [token](const Interval& each) {
      return each.begin <= token && token < each.end;
    });
  };
  return static_cast<int>(std::ranges::find_if(layout, holds) - layout.begin());
}

void append_empty(const Layout& layout, PieceLayout* out) {
  const std::vector<int64_t>& cu = layout.cu_seqlens;
  for (size_t n = 0; n + 1 < cu.size(); ++n) {
    if (cu[n] < cu[n + 1]) continue;
    const int owner =
        layout.length == 0 ? -1 : rank_of(layout.queries, std::min(cu[n], layout.length - 1));
    for (int rank = 0; rank < layout.world(); ++rank) {
      if (owner >= 0 && rank != owner) continue;
      SequencePiece& piece = out->ranks[rank].emplace_back();
      piece.rank = rank, piece.sequence = static_cast<int64_t>(n);
      piece.row = layout.query_tokens(rank);
    }
  }
}

}  // namespace

std::vector<int32_t> PieceLayout::offsets(int rank) const {
  std::vector<int32_t> out = {0};
  for (const SequencePiece& piece : ranks[rank]) {
    out.push_back(static_cast<int32_t>(piece.row + piece.tokens));
  }
  return out;
}

namespace {

PieceLayout pieces_of(const Layout& layout, int64_t most) {
  PieceLayout out;
  out.ranks.resize(layout.world());
  out.chains.resize(layout.cu_seqlens.size() - 1);
  for (int rank = 0; rank < layout.world(); ++rank) {
    int64_t row = 0;
    for (const Interval& interval : layout.queries[rank]) {
      append(layout.cu_seqlens, interval, row, rank, most, &out.ranks[rank]);
      row += interval.size();
    }
  }
  append_empty(layout, &out);
  for (std::vector<SequencePiece>& pieces : out.ranks) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].number = static_cast<int>(i);
      std::vector<SequencePiece>& chain = out.chains[pieces[i].sequence];
      // Without any token every rank has the same empty pieces; the first rank's is the chain.
      if (pieces[i].tokens > 0 || chain.empty()) chain.push_back(pieces[i]);
    }
  }
  for (std::vector<SequencePiece>& chain : out.chains) {
    std::ranges::sort(chain, {}, &SequencePiece::before);
    for (size_t i = 0; i < chain.size(); ++i) {
      chain[i].position = static_cast<int>(i);
      out.ranks[chain[i].rank][chain[i].number].position = static_cast<int>(i);
    }
  }
  return out;
}

}  // namespace

PieceLayout piece_layout(const Layout& layout) {
  return pieces_of(layout, std::numeric_limits<int64_t>::max());
}

Status check_capacity(const Layout& layout) {
  const Capacity& most = layout.capacity;
  const bool given = most.tokens != 0 || most.pieces != 0;
  const auto check = [given](const char* name, int64_t value, int64_t last) -> Status {
    if (!given || (value >= 1 && value <= last)) return {};
    return invalid(
        text(name, " is ", value, "; allowed are 1 to ", last, ", or 0 for both capacities"));
  };
  LATHE_TRY(check("capacity_tokens", most.tokens, std::numeric_limits<int32_t>::max()));
  LATHE_TRY(check("capacity_pieces", most.pieces, kMostCapacityPieces));
  if (!most) return {};
  if (layout.keys != layout.queries || layout.cu_seqlens_k != layout.cu_seqlens) {
    return invalid(
        "keys lie on an axis of their own; allowed with capacity_tokens are those of the queries' "
        "axis");
  }
  const PieceLayout pieces = piece_layout(layout);
  for (int rank = 0; rank < layout.world(); ++rank) {
    if (layout.query_tokens(rank) > most.tokens) {
      return invalid(text("rank ", rank, " holds ", layout.query_tokens(rank),
                          " tokens; capacity_tokens is ", most.tokens));
    }
    if (std::ssize(pieces.ranks[rank]) > most.pieces) {
      return invalid(text("rank ", rank, " holds ", pieces.ranks[rank].size(),
                          " pieces of sequences; capacity_pieces is ", most.pieces));
    }
  }
  return {};
}

Status check_canonical(const ShardLayout& ranks, const std::vector<int64_t>& cu_seqlens,
                       const char* axis, int64_t tokens) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Interval& each : ranks[rank]) {
      if (each.size() == 0) continue;
      for (const int64_t bound : {each.begin, each.end}) {
        const auto behind = std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), bound);
        if (behind == cu_seqlens.end()) continue;  // the end of all
        const int64_t before = bound - *(behind - 1);
        if (before % tokens == 0) continue;
        return invalid(text("rank ", rank, " holds ", axis, " [", each.begin, ", ", each.end,
                            "), and ", bound, " is ", before, " tokens into sequence ",
                            behind - cu_seqlens.begin() - 1,
                            "; allowed with LATHE_RANK_INVARIANT are bounds at multiples of ",
                            tokens, " tokens of a sequence"));
      }
    }
  }
  return {};
}

Result<PieceLayout> canonical_pieces(const Layout& layout, int64_t tokens) {
  LATHE_TRY(check_canonical(layout.queries, layout.cu_seqlens, "tokens", tokens));
  return pieces_of(layout, tokens);
}

}  // namespace lathe
