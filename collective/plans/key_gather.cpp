// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans gathered keys: runs of rows, prefixes of sequences, pieces between two ranks.
#include "collective/plans/key_gather.h"

#include <algorithm>

namespace lathe {
namespace {

std::vector<TokenRun> row_runs(const Layout& layout, int rank) {
  return token_runs(layout.queries[rank], layout.cu_seqlens);
}
int64_t keys_of(const Layout& layout, int64_t n) {
  return layout.cu_seqlens_k[n + 1] - layout.cu_seqlens_k[n];
}
// Returns the position of row `row` of sequence n among the keys of that sequence.
int64_t position(const Layout& layout, int64_t n, int64_t row) {
  return keys_of(layout, n) - (layout.cu_seqlens[n + 1] - layout.cu_seqlens[n]) + row;
}

// Says how many keys of each sequence the rank's rows may see; by sequence, ascending.
struct Prefix {
  int64_t sequence = 0, keys = 0, gathered = 0;  // `gathered`: where they begin
};
std::vector<Prefix> prefixes(const Layout& layout, int rank, bool causal) {
  std::vector<Prefix> out;
  for (const TokenRun& rows : row_runs(layout, rank)) {
    const int64_t all = keys_of(layout, rows.sequence);
    const int64_t end = position(layout, rows.sequence, rows.positions.end);
    out.push_back({rows.sequence, causal ? std::clamp<int64_t>(end, 0, all) : all});
  }
  std::sort(out.begin(), out.end(), [](const Prefix& a, const Prefix& b) {
    return a.sequence != b.sequence ? a.sequence < b.sequence : a.keys > b.keys;
  });
  const auto same = [](const Prefix& a, const Prefix& b) { return a.sequence == b.sequence; };
  out.erase(std::unique(out.begin(), out.end(), same), out.end());
  int64_t at = 0;
  for (Prefix& each : out) each.gathered = at, at += each.keys;
  return out;
}

// Holds an interval of the keys' axis, and its offset in a buffer.
struct Placed {
  int64_t begin = 0, end = 0, at = 0;
};
std::vector<Placed> placed_prefixes(const Layout& layout, const std::vector<Prefix>& of) {
  std::vector<Placed> out;
  for (const Prefix& each : of) {
    const int64_t begin = layout.cu_seqlens_k[each.sequence];
    if (each.keys > 0) out.push_back({begin, begin + each.keys, each.gathered});
  }
  return out;
}
std::vector<Placed> placed_keys(const Layout& layout, int rank) {
  std::vector<Placed> out;
  int64_t at = 0;
  for (const Interval& interval : layout.keys[rank]) {
    out.push_back({interval.begin, interval.end, at});
    at += interval.size();
  }
  std::sort(out.begin(), out.end(),
            [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  return out;
}

// Returns the intersection of both lists in the order of the axis. Each list is ascending and
// disjoint. Pieces that follow one another in both buffers are joined.
KeyPieces common(const std::vector<Placed>& owned, const std::vector<Placed>& read) {
  KeyPieces out;
  for (auto own = owned.begin(), other = read.begin(); own != owned.end() && other != read.end();) {
    const int64_t begin = std::max(own->begin, other->begin), end = std::min(own->end, other->end);
    if (begin < end) {
      const KeyPiece piece{own->at + begin - own->begin, other->at + begin - other->begin,
                           end - begin};
      const bool goes_on = !out.empty() &&
                           out.back().at_owner + out.back().tokens == piece.at_owner &&
                           out.back().at_reader + out.back().tokens == piece.at_reader;
      if (goes_on) {
        out.back().tokens += piece.tokens;
      } else {
        out.push_back(piece);
      }
    }
    if (own->end < other->end) {
      ++own;
    } else {
      ++other;
    }
  }
  return out;
}

int64_t tokens_of(const KeyPieces& pieces) {
  int64_t sum = 0;
  for (const KeyPiece& piece : pieces) sum += piece.tokens;
  return sum;
}

int64_t tokens_of_others(const std::vector<KeyPieces>& by_rank, int rank) {
  int64_t sum = 0;
  for (size_t other = 0; other < by_rank.size(); ++other) {
    if (static_cast<int>(other) != rank) sum += tokens_of(by_rank[other]);
  }
  return sum;
}

std::vector<KeyRun> runs_of(const Layout& layout, int rank, const std::vector<Prefix>& kept) {
  std::vector<KeyRun> out;
  for (const TokenRun& rows : row_runs(layout, rank)) {
    const auto own = std::lower_bound(
        kept.begin(), kept.end(), rows.sequence,
        [](const Prefix& prefix, int64_t sequence) { return prefix.sequence < sequence; });
    out.push_back({rows.sequence, rows.begin, rows.begin + rows.positions.size(), own->gathered,
                   own->gathered + own->keys, layout.cu_seqlens_k[rows.sequence]});
  }
  return out;
}

}  // namespace

int64_t KeyGather::received() const { return tokens_of_others(from, rank); }
int64_t KeyGather::sent() const { return tokens_of_others(to, rank); }

std::vector<KeyRun> key_runs(const Layout& layout, int rank, bool causal) {
  return runs_of(layout, rank, prefixes(layout, rank, causal));
}

KeyGather key_gather(const Layout& layout, int rank, bool causal) {
  KeyGather out;
  out.rank = rank;
  out.own_keys = layout.key_tokens(rank);
  const std::vector<Prefix> kept = prefixes(layout, rank, causal);
  for (const Prefix& each : kept) out.keys += each.keys;
  out.runs = runs_of(layout, rank, kept);
  const std::vector<Placed> read = placed_prefixes(layout, kept), own = placed_keys(layout, rank);
  out.returned = {0};
  for (int other = 0; other < layout.world(); ++other) {
    out.from.push_back(common(placed_keys(layout, other), read));
    out.to.push_back(common(own, placed_prefixes(layout, prefixes(layout, other, causal))));
    const int64_t tokens = other == rank ? 0 : tokens_of(out.to.back());
    out.returned.push_back(out.returned.back() + tokens);
  }
  return out;
}

std::vector<int32_t> row_positions(const Layout& layout, int rank) {
  std::vector<int32_t> out;
  for (const TokenRun& rows : row_runs(layout, rank)) {
    for (int64_t row = rows.positions.begin; row < rows.positions.end; ++row) {
      out.push_back(static_cast<int32_t>(position(layout, rows.sequence, row)));
    }
  }
  return out;
}

std::vector<int32_t> gradient_sources(const KeyGather& gather) {
  const auto world = static_cast<int64_t>(gather.to.size());
  std::vector<int32_t> out(static_cast<size_t>(world * gather.own_keys), -1);
  for (int64_t reader = 0; reader < world; ++reader) {
    int64_t next = gather.returned[reader];
    for (const KeyPiece& piece : gather.to[reader]) {
      for (int64_t i = 0; i < piece.tokens; ++i) {
        const int64_t row = reader == gather.rank ? piece.at_reader + i : next++;
        out[reader * gather.own_keys + piece.at_owner + i] = static_cast<int32_t>(row);
      }
    }
  }
  return out;
}

}  // namespace lathe
