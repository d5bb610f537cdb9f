// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes lists of copies, and extracts one rank's part of a list.
#include "collective/plans/row_copies.h"

#include <algorithm>
#include <map>

namespace lathe {
namespace {

bool goes_on(const RowCopy& first, const RowCopy& next) {
  return first.from == next.from && first.to == next.to &&
         first.from_row + first.rows == next.from_row && first.to_row + first.rows == next.to_row;
}

void append_rows(int64_t first, int64_t count, std::vector<int32_t>* rows) {
  for (int64_t i = 0; i < count; ++i) rows->push_back(static_cast<int32_t>(first + i));
}

// ByPeer holds the rows of one side by peer, each peer's in the order of the list.
using ByPeer = std::map<int, std::vector<int32_t>>;

// Makes one message for each peer. If every peer's rows are one run the buffer is sent as it is,
// and the list is cleared.
void pack(const ByPeer& peers, std::vector<Piece>* pieces, std::vector<int32_t>* rows) {
  bool runs = true;
  for (const auto& [peer, list] : peers) {
    for (size_t i = 1; i < list.size(); ++i) runs = runs && list[i] == list[i - 1] + 1;
  }
  int64_t next = 0;
  for (const auto& [peer, list] : peers) {
    const auto count = static_cast<int64_t>(list.size());
    pieces->push_back({peer, runs ? list.front() : next, count});
    if (!runs) rows->insert(rows->end(), list.begin(), list.end());
    next += count;
  }
}

int64_t rows_of(const std::vector<Piece>& pieces) {
  int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.rows;
  return sum;
}

}  // namespace

RowCopies joined(const RowCopies& copies) {
  RowCopies out;
  for (const RowCopy& move : copies) {
    if (move.rows == 0) continue;
    if (!out.empty() && goes_on(out.back(), move)) {
      out.back().rows += move.rows;
    } else {
      out.push_back(move);
    }
  }
  return out;
}

RowCopies reversed(const RowCopies& copies) {
  RowCopies out = copies;
  for (RowCopy& move : out) {
    std::swap(move.from, move.to);
    std::swap(move.from_row, move.to_row);
  }
  return out;
}

int64_t most_between(const RowCopies& copies) {
  std::map<std::pair<int, int>, int64_t> counts;
  int64_t most = 0;
  for (const RowCopy& move : copies) {
    if (move.from == move.to || move.rows == 0) continue;
    most = std::max(most, ++counts[{move.from, move.to}]);
  }
  return most;
}

int64_t RankCopies::sent() const { return rows_of(sends); }
int64_t RankCopies::received() const { return rows_of(receives); }

RankCopies copies_of_rank(const RowCopies& copies, int rank, bool packed) {
  RankCopies out;
  ByPeer to_peers, from_peers;
  const auto add = [packed](int peer, int64_t row, int64_t rows, ByPeer* peers,
                            std::vector<Piece>* pieces) {
    if (packed) {
      append_rows(row, rows, &(*peers)[peer]);
    } else {
      pieces->push_back({peer, row, rows});
    }
  };
  for (const RowCopy& move : copies) {
    if (move.rows == 0) continue;
    if (move.from == rank && move.to == rank) {
      append_rows(move.from_row, move.rows, &out.own_from);
      append_rows(move.to_row, move.rows, &out.own_to);
    } else if (move.from == rank) {
      add(move.to, move.from_row, move.rows, &to_peers, &out.sends);
    } else if (move.to == rank) {
      add(move.from, move.to_row, move.rows, &from_peers, &out.receives);
    }
  }
  pack(to_peers, &out.sends, &out.send_rows);
  pack(from_peers, &out.receives, &out.receive_rows);
  return out;
}

Interval shares_of(int64_t shares, int rank, int world) { return chunk(rank, 0, shares, world); }

RowCopies axis_copies(const ShardLayout& layout, int64_t shares) {
  const int world = static_cast<int>(layout.size());
  int64_t all = 0;
  for (const std::vector<Interval>& intervals : layout) all += total_size(intervals);
  RowCopies out;
  const auto add = [&](int from, int to, int64_t from_row, int64_t to_row) {
    for (const Interval& interval : layout[from]) {
      out.push_back({from, to, from_row, to_row + interval.begin, interval.size()});
      from_row += interval.size();
    }
  };
  for (int from = 0; from < world; ++from) {
    const int64_t tokens = total_size(layout[from]);
    for (int to = 0; to < world; ++to) {
      if (from == to) add(from, to, 0, 0);  // it is no message and needs no place among them
      const Interval its = shares_of(shares, to, world);
      for (int64_t s = its.begin; from != to && s < its.end; ++s) {
        add(from, to, s * tokens, (s - its.begin) * all);
      }
    }
  }
  return out;
}

ShardLayout joined_parts(const ShardLayout& layout, int count) {
  ShardLayout out;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    if (rank % count == 0) out.emplace_back();
    out.back().insert(out.back().end(), layout[rank].begin(), layout[rank].end());
  }
  for (std::vector<Interval>& part : out) {
    std::sort(part.begin(), part.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    part = joined_intervals(part);
  }
  return out;
}

ShardLayout inside_part(const ShardLayout& layout, int first, int count) {
  ShardLayout out(layout.begin() + first, layout.begin() + first + count);
  const std::vector<Interval> part = joined_parts(out, count).front();
  for (std::vector<Interval>& rank : out) {
    for (Interval& interval : rank) {
      int64_t before = 0;  // rows of earlier runs
      for (const Interval& run : part) {
        if (interval.begin < run.end) {
          const int64_t shift = before - run.begin;
          interval = {interval.begin + shift, interval.end + shift};
          break;
        }
        before += run.size();
      }
    }
  }
  return out;
}

}  // namespace lathe
