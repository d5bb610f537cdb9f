// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover a dispatch executed on the host, token by token: every query meets exactly its
// keys once, results go home, gradients are summed by the order of ranks. Against the definition of
// a mask.
#include "collective/plans/dispatch_plan.h"

#include <doctest/doctest.h>

#include <map>
#include <numeric>

#include "tests/collective/cases.h"

using namespace lathe;

namespace {

constexpr int64_t kNothing = -1;
using Buffers = std::vector<std::vector<int64_t>>;  // [rank][row]

// Applies the messages of all ranks to the buffers, with the pairing that NCCL has: between two
// ranks the i-th send meets the i-th receive.
Buffers carry(const RowCopies& copies, const Buffers& from, const std::vector<int64_t>& rows,
              bool packs) {
  const int world = static_cast<int>(from.size());
  std::vector<RankCopies> of;
  for (int r = 0; r < world; ++r) of.push_back(copies_of_rank(copies, r, packs));
  std::map<std::pair<int, int>, std::vector<std::vector<int64_t>>> wires;
  for (int r = 0; r < world; ++r) {
    std::vector<int64_t> source = from[r];
    if (!of[r].send_rows.empty()) {
      source.clear();
      for (const int32_t row : of[r].send_rows) source.push_back(from[r].at(row));
    }
    for (const Piece& piece : of[r].sends) {
      CHECK(piece.rows > 0);
      CHECK(piece.peer != r);
      std::vector<int64_t> message;
      for (int64_t i = 0; i < piece.rows; ++i) message.push_back(source.at(piece.row + i));
      wires[{r, piece.peer}].push_back(message);
    }
  }
  Buffers out;
  for (int r = 0; r < world; ++r) {
    out.emplace_back(rows[r], kNothing);
    const bool scatters = !of[r].receive_rows.empty();
    std::vector<int64_t> staged(of[r].received());
    std::map<int, size_t> next;
    for (const Piece& piece : of[r].receives) {
      const auto& messages = wires[{piece.peer, r}];
      const size_t which = next[piece.peer]++;
      REQUIRE(which < messages.size());
      REQUIRE(static_cast<int64_t>(messages[which].size()) == piece.rows);
      for (int64_t i = 0; i < piece.rows; ++i) {
        int64_t& to = scatters ? staged.at(piece.row + i) : out[r].at(piece.row + i);
        if (!scatters) CHECK(to == kNothing);
        to = messages[which][i];
      }
    }
    for (size_t i = 0; i < of[r].receive_rows.size(); ++i) {
      int64_t& to = out[r].at(of[r].receive_rows[i]);
      CHECK(to == kNothing);
      to = staged[i];
    }
    for (size_t i = 0; i < of[r].own_from.size(); ++i) {
      int64_t& to = out[r].at(of[r].own_to[i]);
      CHECK(to == kNothing);
      to = from[r].at(of[r].own_from[i]);
    }
    for (const auto& [peer, count] : next) {
      CHECK(count == wires[{peer, r}].size());
      wires.erase({peer, r});
    }
  }
  for (const auto& [between, messages] : wires) {
    if (between.first != between.second) CHECK(messages.empty());
  }
  return out;
}

Buffers positions(const Layout& layout) {
  Buffers out;
  for (const auto& rank : layout.queries) out.push_back(cases::tokens_of(rank));
  return out;
}

bool sees(const VisibleRange& visible, int64_t row, int64_t key) {
  return (visible.left < 0 || key >= row - visible.left) &&
         (visible.right < 0 || key <= row + visible.right);
}

struct Drawn {
  Layout layout;
  DispatchRules rules;
};

Drawn draw(std::mt19937& random) {
  LayoutOptions options;
  options.world = 1 + static_cast<int>(random() % 8);
  options.length = static_cast<int64_t>(random() % 90);
  options.balance = static_cast<Balance>(random() % 4);
  options.block_size = 1 + static_cast<int64_t>(random() % 8);
  options.cu_seqlens =
      cases::random_offsets(random, options.length, 1 + static_cast<int>(random() % 6));
  if (options.balance == Balance::none && random() % 2 == 0) {
    options.bounds = cases::random_offsets(random, options.length, options.world);
  }
  auto layout = make_layout(options);
  REQUIRE_MESSAGE(layout.ok(), layout.status().text());
  DispatchRules rules;
  rules.choice = random() % 4 == 0 ? DispatchChoice::home : DispatchChoice::always;
  rules.limits = {1, 20, 1 + static_cast<int64_t>(random() % 4), 4, 2};
  const auto window = [&] { return static_cast<int64_t>(random() % 12) - 1; };
  if (random() % 2 == 0) rules.limits.visible = {window(), window()};
  return {*layout, rules};
}

}  // namespace

TEST_CASE("dispatch plan: every query meets exactly its keys, and results go home") {
  std::mt19937 random(21);
  int moved = 0;
  for (int turn = 0; turn < 600; ++turn) {
    CAPTURE(turn);
    const Drawn drawn = draw(random);
    const VisibleRange& visible = drawn.rules.limits.visible;
    const auto made = plan_dispatch(drawn.layout, drawn.rules);
    REQUIRE_MESSAGE(made.ok(), made.status().text());
    const DispatchPlan& plan = *made;
    moved += plan.moved ? 1 : 0;
    const Buffers home = positions(drawn.layout);
    const bool packs = random() % 2 == 0;
    const Buffers queries = carry(plan.queries, home, plan.query_tokens, packs);
    const Buffers keys = carry(plan.keys, home, plan.key_tokens, packs);
    const std::vector<int64_t>& cu = drawn.layout.cu_seqlens;
    std::vector<std::vector<int64_t>> seen(drawn.layout.length);
    for (size_t at = 0; at < queries.size(); ++at) {
      int64_t pairs = 0, last = 0;
      for (const int64_t token : queries[at]) CHECK(token != kNothing);
      for (const int64_t token : keys[at]) CHECK(token != kNothing);
      for (const AttentionRange& pair : plan.ranges[at]) {
        CHECK(pair.qa == last);  // ascending, one behind the other
        last = pair.qb;
        for (int64_t i = pair.qa; i < pair.qb; ++i) {
          const int64_t query = queries[at].at(i);
          const int64_t n = std::upper_bound(cu.begin(), cu.end(), query) - cu.begin() - 1;
          CHECK(pair.q0 + i - pair.qa == query - cu[n]);
          for (int64_t j = pair.ka; j < pair.kb; ++j) {
            CHECK(pair.k0 + j - pair.ka == keys[at].at(j) - cu[n]);
            if (!sees(visible, i - pair.qa + pair.shift, j - pair.ka)) continue;
            seen[query].push_back(keys[at][j]);
            ++pairs;
          }
        }
      }
      CHECK(last == plan.query_tokens[at]);
      CHECK(pairs == plan.load[at]);
    }
    for (size_t n = 0; n + 1 < cu.size(); ++n) {
      for (int64_t row = cu[n]; row < cu[n + 1]; ++row) {
        std::vector<int64_t> expected;
        for (int64_t key = cu[n]; key < cu[n + 1]; ++key) {
          if (sees(visible, row, key)) expected.push_back(key);
        }
        CHECK(seen[row] == expected);
      }
    }
    std::vector<int64_t> rows;
    for (const auto& rank : home) rows.push_back(static_cast<int64_t>(rank.size()));
    CHECK(carry(reversed(plan.queries), queries, rows, packs) == home);
  }
  CHECK(moved > 150);
}

TEST_CASE("dispatch plan: gradients of a key are summed once each, by attention rank") {
  std::mt19937 random(22);
  for (int turn = 0; turn < 500; ++turn) {
    CAPTURE(turn);
    const Drawn drawn = draw(random);
    const auto plan = plan_dispatch(drawn.layout, drawn.rules);
    REQUIRE_MESSAGE(plan.ok(), plan.status().text());
    const Buffers home = positions(drawn.layout);
    const bool packs = random() % 2 == 0;
    const Buffers keys = carry(plan->keys, home, plan->key_tokens, packs);
    // An arrived key's gradient says who found it and for which token.
    Buffers gradients = keys;
    for (size_t at = 0; at < gradients.size(); ++at) {
      for (int64_t& value : gradients[at]) value = value * 100 + static_cast<int64_t>(at);
    }
    const Buffers slots = carry(plan->gradients, gradients, plan->slot_tokens, packs);
    for (size_t rank = 0; rank < home.size(); ++rank) {
      const auto tokens = static_cast<int64_t>(home[rank].size());
      const DispatchSum sum = dispatch_sum(*plan, static_cast<int>(rank), tokens);
      REQUIRE(sum.first.size() == home[rank].size() + 1);
      for (int64_t t = 0; t < tokens; ++t) {
        std::vector<int64_t> found, expected;
        for (int32_t i = sum.first[t]; i < sum.first[t + 1]; ++i) {
          const int64_t row = sum.terms[i], own = row - plan->slot_tokens[rank];
          found.push_back(own < 0 ? slots[rank].at(row) : gradients[rank].at(own));
        }
        for (size_t at = 0; at < keys.size(); ++at) {
          const auto count = std::count(keys[at].begin(), keys[at].end(), home[rank][t]);
          CHECK(count <= 1);
          if (count == 1) expected.push_back(home[rank][t] * 100 + static_cast<int64_t>(at));
        }
        CHECK(found == expected);
      }
    }
  }
}

TEST_CASE("dispatch plan: what one document costs is spread, what is even stays") {
  LayoutOptions options;
  options.world = 8, options.length = 65536;
  auto layout = make_layout(options);
  REQUIRE(layout.ok());
  DispatchRules rules;
  rules.choice = DispatchChoice::always;
  rules.limits = {1, 20, dispatch_alignment(options.length, options.world), 4096, 1024};
  const auto spread = plan_dispatch(*layout, rules);
  REQUIRE(spread.ok());
  const auto most = [](const std::vector<int64_t>& load) {
    return *std::max_element(load.begin(), load.end());
  };
  const int64_t total = std::accumulate(spread->load.begin(), spread->load.end(), int64_t{0});
  CHECK(total == options.length * (options.length + 1) / 2);
  CHECK(most(spread->load_at_home) * 8 > total * 18 / 10);
  CHECK(most(spread->load) * 8 * 20 <= total * 21);

  // As many documents as ranks, all alike: nothing to move, and no key leaves its rank either.
  options.cu_seqlens.clear();
  for (int64_t n = 0; n <= 8; ++n) options.cu_seqlens.push_back(n * 8192);
  layout = make_layout(options);
  const auto even = plan_dispatch(*layout, rules);
  REQUIRE(even.ok());
  CHECK_FALSE(even->moved);
  for (const RowCopies* copies : {&even->queries, &even->keys, &even->gradients}) {
    for (const RowCopy& move : *copies) CHECK(move.from == move.to);
  }
}

TEST_CASE("dispatch plan: copies only where it pays, and never past the limit") {
  LayoutOptions options;
  options.world = 4, options.length = 4096;
  const auto layout = make_layout(options);
  REQUIRE(layout.ok());
  DispatchRules rules;
  rules.limits.q_bytes = rules.limits.kv_bytes = 1;
  rules.pair_cost = 1, rules.byte_cost = 1;
  auto plan = plan_dispatch(*layout, rules);
  REQUIRE(plan.ok());
  CHECK(plan->moved);
  rules.byte_cost = 1000000, rules.limits.q_bytes = 100;
  plan = plan_dispatch(*layout, rules);
  REQUIRE(plan.ok());
  CHECK_FALSE(plan->moved);
  CHECK(plan->load == plan->load_at_home);

  // At home the last rank receives what is before its part.
  rules.choice = DispatchChoice::home;
  rules.most_tokens = 3071;
  const auto refused = plan_dispatch(*layout, rules);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().text().find("rank 3 would receive 3072 tokens") != std::string::npos);
  rules.choice = DispatchChoice::always;
  int moved = 0;
  for (int64_t limit = 3072; limit < 6000; limit += 100) {
    rules.most_tokens = limit;
    plan = plan_dispatch(*layout, rules);
    REQUIRE(plan.ok());
    std::vector<int64_t> received(4);
    for (const RowCopies* copies : {&plan->queries, &plan->keys}) {
      for (const RowCopy& move : *copies) received[move.to] += move.from == move.to ? 0 : move.rows;
    }
    for (const int64_t tokens : received) CHECK(tokens <= limit);
    moved += plan->moved ? 1 : 0;
  }
  CHECK(moved > 0);
}

TEST_CASE("dispatch plan: keys of their own are refused") {
  LayoutOptions options;
  options.world = 2, options.length = 8, options.key_length = 12;
  const auto layout = make_layout(options);
  REQUIRE(layout.ok());
  const auto plan = plan_dispatch(*layout, {});
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.status().text().find("keys are 12 tokens and queries 8") != std::string::npos);
}
