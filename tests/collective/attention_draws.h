// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file serves tests of attention's rounds: random layouts and masks, which keys a row sees by
// going through all of them, and which of these the ranges of a round meet.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "collective/plans/attention_rounds.h"
#include "tests/collective/cases.h"

namespace lathe::draws {

struct Draw {
  LayoutOptions options;
  Layout layout;
  VisibleRange visible;
};

// Draws documents, many of them empty, of a ragged axis; half of the time keys are on an axis of
// their own.
inline Draw random_draw(std::mt19937& random) {
  const auto any = [&](int64_t below) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  };
  Draw draw;
  LayoutOptions& options = draw.options;
  options.world = static_cast<int>(1 + any(8));
  options.balance = static_cast<Balance>(any(4));
  options.length = any(42);
  options.block_size = 1 + any(5);
  const int documents = static_cast<int>(1 + any(5));
  if (any(3) > 0) options.cu_seqlens = cases::random_offsets(random, options.length, documents);
  if (any(2) > 0) {
    options.key_length = any(42);
    if (!options.cu_seqlens.empty()) {
      options.cu_seqlens_k = cases::random_offsets(random, options.key_length, documents);
    }
  }
  auto layout = make_layout(options);
  REQUIRE(layout.ok());
  draw.layout = std::move(*layout);
  const auto window = [&] { return any(2) == 0 ? -1 : any(15); };
  const int64_t left = window(), right = window();
  draw.visible = {left, any(2) == 0 ? 0 : right, any(2) == 0};
  return draw;
}

inline std::string words(const Draw& draw) {
  std::ostringstream out;
  out << "world " << draw.options.world << " balance " << static_cast<int>(draw.options.balance)
      << " block " << draw.options.block_size << " cu " << cases::words(draw.layout.cu_seqlens)
      << "cu_k " << cases::words(draw.layout.cu_seqlens_k) << "left " << draw.visible.left
      << " right " << draw.visible.right << " positions " << draw.visible.positions;
  return out.str();
}

using cases::tokens_of;

inline int sequence_of(const std::vector<int64_t>& cu_seqlens, int64_t token) {
  int n = 0;
  while (cu_seqlens[n + 1] <= token) ++n;
  return n;
}

// Returns whether row `q` of the whole axis sees key `k`.
inline bool is_visible(const Draw& draw, int64_t q, int64_t k) {
  const auto& cu_q = draw.layout.cu_seqlens;
  const auto& cu_k = draw.layout.cu_seqlens_k;
  const int n = sequence_of(cu_q, q);
  if (n != sequence_of(cu_k, k)) return false;
  // The distance counts from the ends of the sequence, where the last row is at the last key.
  const int64_t ahead = (cu_q[n + 1] - q) - (cu_k[n + 1] - k);
  if (draw.visible.right >= 0 && ahead > draw.visible.right) return false;
  return draw.visible.left < 0 || -ahead <= draw.visible.left;
}

inline bool keeps(const AttentionRange& range, const VisibleRange& visible, int64_t row,
                  int64_t key) {
  const int64_t away = (key - range.ka) - (row - range.qa) - range.shift;
  return (visible.right < 0 || away <= visible.right) &&
         (visible.left < 0 || away >= -visible.left);
}

// Counts how often each (row, key) of the whole axes was met.
using Met = std::map<std::pair<int64_t, int64_t>, int>;

// Meets the ranges of a round; the keys that each token of the round's buffer stands for.
inline void meet(const Draw& draw, const AttentionRound& round, const std::vector<int64_t>& rows,
                 const std::vector<int64_t>& keys, Met* met) {
  int64_t count = 0;
  int last = 0;
  for (const AttentionRange& range : round.ranges) {
    REQUIRE(range.qa >= last);
    last = range.qa;
    REQUIRE((range.qa < range.qb && range.qb <= static_cast<int>(rows.size())));
    REQUIRE((range.ka >= 0 && range.ka < range.kb && range.kb <= static_cast<int>(keys.size())));
    bool first_row = false, last_row = false, first_key = false, last_key = false;
    for (int64_t row = range.qa; row < range.qb; ++row) {
      for (int64_t key = range.ka; key < range.kb; ++key) {
        if (!keeps(range, draw.visible, row, key)) continue;
        ++(*met)[{rows[row], keys[key]}];
        ++count;
        first_row = first_row || row == range.qa, last_row = last_row || row == range.qb - 1;
        first_key = first_key || key == range.ka, last_key = last_key || key == range.kb - 1;
      }
    }
    REQUIRE((first_row && last_row && first_key && last_key));
    if (!draw.visible.positions) continue;
    const int n = sequence_of(draw.layout.cu_seqlens, rows[range.qa]);
    const int64_t q_begin = draw.layout.cu_seqlens[n], k_begin = draw.layout.cu_seqlens_k[n];
    const int64_t more =
        draw.layout.cu_seqlens_k[n + 1] - k_begin - (draw.layout.cu_seqlens[n + 1] - q_begin);
    REQUIRE(range.shift == range.q0 + more - range.k0);
    for (int64_t row = range.qa; row < range.qb; ++row) {
      REQUIRE(rows[row] == q_begin + range.q0 + row - range.qa);
    }
    for (int64_t key = range.ka; key < range.kb; ++key) {
      REQUIRE(keys[key] == k_begin + range.k0 + key - range.ka);
    }
  }
  REQUIRE(round.visible == count);
}

inline void require_all_met(const Draw& draw, const Met& met) {
  int64_t visible = 0;
  for (int64_t q = 0; q < draw.layout.length; ++q) {
    for (int64_t k = 0; k < draw.layout.key_length; ++k) visible += is_visible(draw, q, k);
  }
  REQUIRE(static_cast<int64_t>(met.size()) == visible);
  for (const auto& [range, times] : met) {
    REQUIRE(times == 1);
    REQUIRE(is_visible(draw, range.first, range.second));
  }
}

inline std::vector<AttentionRounds> all_ranks(const Draw& draw, Rotation rotation) {
  std::vector<AttentionRounds> out;
  for (int rank = 0; rank < draw.layout.world(); ++rank) {
    auto rounds = attention_rounds(draw.layout, rank, rotation, draw.visible);
    REQUIRE(rounds.ok());
    out.push_back(std::move(*rounds));
  }
  return out;
}

// Requires that one side sends a message as the other expects it.
inline void require_matched(const KeyMessage& send, int from, const KeyMessage& receive) {
  REQUIRE(receive.peer == from);
  REQUIRE(receive.owner == send.owner);
  REQUIRE(receive.begin == send.begin);
  REQUIRE(receive.tokens == send.tokens);
}

}  // namespace lathe::draws
