// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover gathered keys against brute force over random documents: every row finds the
// keys that it may see, where its run says, and nothing else is sent; gradients find their way
// home.
#include "collective/plans/key_gather.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/collective/cases.h"

namespace lathe {
namespace {

using cases::tokens_of;
using Tokens = std::vector<int64_t>;

Layout draw(std::mt19937& random) {
  const auto below = [&](int most) { return static_cast<int64_t>(random() % most); };
  LayoutOptions options;
  options.world = 1 + static_cast<int>(below(8));
  options.balance = static_cast<Balance>(below(4));
  options.block_size = 1 + below(4);
  if (below(4) == 0) {
    options.length = below(30), options.key_length = below(40);
  } else {
    Tokens cu = {0}, cu_k = {0};
    for (int64_t n = below(6); n >= 0; --n) {
      const int64_t rows = below(3) == 0 ? below(2) : below(20);
      cu.push_back(cu.back() + rows);
      cu_k.push_back(cu_k.back() + (below(2) == 0 ? rows : below(24)));
    }
    options.length = cu.back(), options.key_length = cu_k.back();
    options.cu_seqlens = cu, options.cu_seqlens_k = cu_k;
  }
  const auto layout = make_layout(options);
  REQUIRE_MESSAGE(layout.ok(), layout.status().text());
  return *layout;
}

// Key j of a sequence for a row, as a token of the keys' axis.
struct Seen {
  int64_t first = 0, count = 0, position = 0;
};
Seen seen_by(const Layout& layout, int64_t row, bool causal) {
  size_t n = 0;
  while (layout.cu_seqlens[n + 1] <= row) ++n;
  const int64_t first = layout.cu_seqlens_k[n], keys = layout.cu_seqlens_k[n + 1] - first;
  const int64_t rows = layout.cu_seqlens[n + 1] - layout.cu_seqlens[n];
  const int64_t position = keys - rows + row - layout.cu_seqlens[n];
  return {first, causal ? std::clamp<int64_t>(position + 1, 0, keys) : keys, position};
}

std::set<int64_t> visible(const Layout& layout, int rank, bool causal) {
  std::set<int64_t> out;
  for (const int64_t row : tokens_of(layout.queries[rank])) {
    const Seen seen = seen_by(layout, row, causal);
    for (int64_t j = 0; j < seen.count; ++j) out.insert(seen.first + j);
  }
  return out;
}

// Returns the gathered keys as tokens, by carrying the pieces out; each is written once.
Tokens carry_out(const Layout& layout, const KeyGather& plan) {
  Tokens gathered(static_cast<size_t>(plan.keys), -1);
  for (int owner = 0; owner < layout.world(); ++owner) {
    const Tokens own = tokens_of(layout.keys[owner]);
    for (const KeyPiece& piece : plan.from[owner]) {
      CHECK(piece.tokens > 0);
      for (int64_t i = 0; i < piece.tokens; ++i) {
        int64_t& to = gathered.at(static_cast<size_t>(piece.at_reader + i));
        CHECK(to == -1);
        to = own.at(static_cast<size_t>(piece.at_owner + i));
      }
    }
  }
  return gathered;
}

void check_rows(const Layout& layout, const KeyGather& plan, const Tokens& gathered, bool causal) {
  const Tokens rows = tokens_of(layout.queries[plan.rank]);
  const auto positions = row_positions(layout, plan.rank);
  REQUIRE(positions.size() == rows.size());
  int64_t next = 0;
  for (const KeyRun& run : plan.runs) {
    CHECK(run.rows_begin == next);
    next = run.rows_end;
    for (int64_t row = run.rows_begin; row < run.rows_end; ++row) {
      const Seen seen = seen_by(layout, rows[row], causal);
      CHECK(positions[row] == seen.position);
      CHECK(run.origin == seen.first);
      CHECK(run.keys_end - run.keys_begin >= seen.count);
      for (int64_t j = run.keys_begin; j < run.keys_end; ++j) {
        if (gathered.at(j) != seen.first + j - run.keys_begin) FAIL_CHECK("key ", j);
      }
    }
  }
  CHECK(next == static_cast<int64_t>(rows.size()));
}

// A gradient is named by the rank whose rows made it and its key.
using Gradient = std::pair<int, int64_t>;

void check_way_home(const Layout& layout, const std::vector<KeyGather>& plans,
                    const std::vector<Tokens>& gathered, bool causal) {
  std::vector<std::set<int64_t>> wanted;
  for (int rank = 0; rank < layout.world(); ++rank) {
    wanted.push_back(visible(layout, rank, causal));
  }
  for (const KeyGather& plan : plans) {
    std::vector<Gradient> returned;
    for (const KeyGather& reader : plans) {
      if (reader.rank == plan.rank) continue;
      CHECK(static_cast<int64_t>(returned.size()) == plan.returned[reader.rank]);
      for (const KeyPiece& piece : reader.from[plan.rank]) {
        for (int64_t i = 0; i < piece.tokens; ++i) {
          returned.emplace_back(reader.rank, gathered[reader.rank][piece.at_reader + i]);
        }
      }
    }
    CHECK(static_cast<int64_t>(returned.size()) == plan.returned.back());
    const Tokens own = tokens_of(layout.keys[plan.rank]);
    const auto sources = gradient_sources(plan);
    for (int rank = 0; rank < layout.world(); ++rank) {
      for (size_t j = 0; j < own.size(); ++j) {
        const int32_t source = sources[rank * own.size() + j];
        const bool there = wanted[rank].count(own[j]) > 0;
        CHECK((source >= 0) == there);
        if (!there || source < 0) continue;
        if (rank == plan.rank) {
          CHECK(gathered[rank].at(source) == own[j]);
        } else {
          CHECK(returned.at(source) == Gradient(rank, own[j]));
        }
      }
    }
  }
}

TEST_CASE("gathered keys: each row finds its keys, and gradients their way home") {
  std::mt19937 random(7);
  for (int i = 0; i < 600; ++i) {
    CAPTURE(i);
    const Layout layout = draw(random);
    const bool causal = random() % 2 == 0;
    std::vector<KeyGather> plans;
    std::vector<Tokens> gathered;
    for (int rank = 0; rank < layout.world(); ++rank) {
      plans.push_back(key_gather(layout, rank, causal));
      gathered.push_back(carry_out(layout, plans.back()));
      check_rows(layout, plans.back(), gathered.back(), causal);
      const std::set<int64_t> needed = visible(layout, rank, causal);
      CHECK(
          std::equal(needed.begin(), needed.end(), gathered.back().begin(), gathered.back().end()));
    }
    int64_t sent = 0, received = 0;
    for (const KeyGather& plan : plans) {
      sent += plan.sent(), received += plan.received();
      for (const KeyGather& other : plans) CHECK(plan.to[other.rank] == other.from[plan.rank]);
    }
    CHECK(sent == received);
    check_way_home(layout, plans, gathered, causal);
  }
}

TEST_CASE("gathered keys: one sequence is one message between two ranks, all of it or its part") {
  LayoutOptions options;
  options.world = 4, options.length = 32;
  for (const Balance balance : {Balance::none, Balance::head_tail}) {
    options.balance = balance;
    const auto layout = make_layout(options);
    REQUIRE(layout.ok());
    for (int rank = 0; rank < 4; ++rank) {
      const KeyGather all = key_gather(*layout, rank, false);
      CHECK(all.received() == 24);
      const KeyGather causal = key_gather(*layout, rank, true);
      // Up to the rank's last row: chunk `rank` of 4, or 7 - rank of 8.
      CHECK(causal.keys == (balance == Balance::none ? 8 * (rank + 1) : 4 * (8 - rank)));
      for (int owner = 0; owner < 4; ++owner) {
        CHECK(all.from[owner].size() == layout->keys[owner].size());
      }
    }
  }
}

TEST_CASE("gathered keys: of contiguous rows they are the slice that packed attention takes") {
  const Tokens cu = {0, 5, 7, 7, 11, 12, 40};
  LayoutOptions options;
  options.length = cu.back(), options.cu_seqlens = cu;
  for (options.world = 1; options.world <= 5; ++options.world) {
    for (const bool causal : {false, true}) {
      const auto layout = make_layout(options);
      REQUIRE(layout.ok());
      for (int rank = 0; rank < options.world; ++rank) {
        const KeyGather plan = key_gather(*layout, rank, causal);
        REQUIRE(!plan.runs.empty());
        const int64_t start = plan.runs.front().origin;
        CHECK(carry_out(*layout, plan) == tokens_of({{start, start + plan.keys}}));
        int64_t row = layout->queries[rank].front().begin, keys = 0;
        for (const KeyRun& run : plan.runs) {
          // Sequence after sequence, each from its start; the last row is at the last key.
          CHECK(run.origin == cu[run.sequence]);
          CHECK(run.origin == start + run.keys_begin);
          CHECK(run.keys_begin == keys);
          keys = run.keys_end;
          row += run.rows_end - run.rows_begin;
          CHECK(start + run.keys_end == (causal ? row : cu[run.sequence + 1]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe
