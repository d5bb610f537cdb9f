// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file describes rings of ranks: which tokens each rank holds, and the attention ranges of one
// rank's rows over another's keys.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/call.h"

namespace apitest {

enum class Balance { none, head_tail, per_document };

struct Ring {
  Balance balance;
  int64_t ranks;
  std::vector<int64_t> documents;  // offsets
  int64_t window_left, window_right;
  bool softcap = false, alibi = false, sinks = false;
  int64_t width = 64;

  int64_t tokens() const { return documents.back(); }
  std::map<std::string, std::string> options() const {
    std::map<std::string, std::string> out = {{"window_left", std::to_string(window_left)},
                                              {"window_right", std::to_string(window_right)}};
    if (softcap) out["softcap"] = "5";
    return out;
  }
};

// Returns more documents than lanes: attention ranges are searched 32 at a time.
inline std::vector<int64_t> many_documents() {
  std::vector<int64_t> begin = {0};
  for (int64_t i = 0; i < 45; ++i) begin.push_back(begin.back() + 2 + i * 7 % 6);
  return begin;
}

inline const std::vector<Ring> kRings = {
    {Balance::head_tail, 2, {0, 205}, -1, 0, false, false, true, 72},
    {Balance::head_tail, 4, {0, 403}, -1, 0},
    {Balance::none, 3, {0, 217}, 50, 0},
    {Balance::per_document, 4, {0, 37, 37, 160, 330}, -1, 0, false, false, true},
    {Balance::head_tail, 2, {0, 5, 140, 270}, 64, 20},
    {Balance::head_tail, 2, {0, 200}, -1, 0, true, true},
    {Balance::per_document, 2, {0, 130, 133}, -1, -1},
    {Balance::per_document, 2, many_documents(), -1, 0},
};

// An Interval is tokens [begin, end) of the whole axis, all of one document.
struct Interval {
  int64_t begin, end, document;
  int64_t size() const { return end - begin; }
};
using Intervals = std::vector<Interval>;

// Returns the intervals of a rank in the order in which the rank holds them, cut where documents
// end.
inline Intervals intervals_of(const Ring& ring, int64_t rank) {
  Intervals out;
  const auto count = static_cast<int64_t>(ring.documents.size()) - 1;
  const auto document = [&](int64_t d) { return ring.documents[static_cast<size_t>(d)]; };
  const auto add = [&](int64_t c, int64_t begin, int64_t end, int64_t parts) {
    const int64_t first = begin + c * (end - begin) / parts;
    const int64_t last = begin + (c + 1) * (end - begin) / parts;
    for (int64_t d = 0; d < count; ++d) {
      const int64_t from = std::max(first, document(d)), to = std::min(last, document(d + 1));
      if (from < to) out.push_back({from, to, d});
    }
  };
  const auto both_ends = [&](int64_t begin, int64_t end) {
    add(rank, begin, end, 2 * ring.ranks);
    add(2 * ring.ranks - 1 - rank, begin, end, 2 * ring.ranks);
  };
  if (ring.balance == Balance::none) add(rank, 0, ring.tokens(), ring.ranks);
  if (ring.balance == Balance::head_tail) both_ends(0, ring.tokens());
  for (int64_t d = 0; ring.balance == Balance::per_document && d < count; ++d) {
    both_ends(document(d), document(d + 1));
  }
  return out;
}
inline std::vector<int64_t> tokens_of(const Ring& ring, int64_t rank) {
  std::vector<int64_t> tokens;
  for (const Interval& each : intervals_of(ring, rank)) {
    for (int64_t t = each.begin; t < each.end; ++t) tokens.push_back(t);
  }
  return tokens;
}

// Lists the attention ranges of `rank` over the keys of `owner`. Those that a window masks may be
// left out.
inline Values pairs_of(const Ring& ring, int64_t rank, int64_t owner, bool all = false) {
  Values words;
  int64_t qa = 0;
  for (const Interval& q : intervals_of(ring, rank)) {
    int64_t ka = 0;
    for (const Interval& k : intervals_of(ring, owner)) {
      const int64_t least = k.begin - (q.end - 1), most = k.end - 1 - q.begin;
      const bool none = (ring.window_right >= 0 && least > ring.window_right) ||
                        (ring.window_left >= 0 && most < -ring.window_left);
      if (q.document == k.document && (all || !none)) {
        const int64_t first = ring.documents[static_cast<size_t>(q.document)];
        for (const int64_t word : {qa, qa + q.size(), ka, ka + k.size(), q.begin - k.begin,
                                   q.begin - first, k.begin - first}) {
          words.push_back(static_cast<double>(word));
        }
      }
      ka += k.size();
    }
    qa += q.size();
  }
  return words;
}

}  // namespace apitest
