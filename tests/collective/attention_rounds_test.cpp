// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover rounds against brute force: every row meets the keys it sees, once; what is
// sent is received; the gradients of keys come home whole.
#include "collective/plans/attention_rounds.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/collective/attention_draws.h"

using namespace lathe;
using namespace lathe::draws;

namespace {

// The contributions to the gradient of each key of a travelling block.
using Sums = std::vector<int64_t>;
Sums part_of(const Draw& draw, const AttentionRound& round, int64_t keys) {
  Sums out(static_cast<size_t>(keys), 0);
  for (const AttentionRange& range : round.ranges) {
    for (int64_t row = range.qa; row < range.qb; ++row) {
      for (int64_t key = range.ka; key < range.kb; ++key) {
        out[key] += keeps(range, draw.visible, row, key);
      }
    }
  }
  return out;
}

// Plays the backward: who holds which sum after each round. Returns the sums at home.
std::vector<Sums> play_gradients(const Draw& draw, const std::vector<AttentionRounds>& ranks) {
  const int world = draw.layout.world();
  std::vector<Sums> sums(world), home(world);
  for (size_t i = 0; i < ranks[0].rounds.size(); ++i) {
    for (int rank = 0; rank < world; ++rank) {
      const AttentionRound& round = ranks[rank].rounds[i];
      const Sums part = part_of(draw, round, draw.layout.key_tokens(round.owner));
      if (i == 0) sums[rank] = part;
      for (size_t j = 0; i > 0 && j < sums[rank].size(); ++j) sums[rank][j] += part[j];
      if (i == 0 && !round.receive_home) home[rank] = part;  // unless others have more to add
    }
    std::vector<Sums> next(world);
    for (int rank = 0; rank < world; ++rank) {
      const AttentionRound& round = ranks[rank].rounds[i];
      if (const KeyMessage& from = round.receive_gradients) {
        require_matched(ranks[from.peer].rounds[i].send_gradients, from.peer, from);
        REQUIRE(ranks[from.peer].rounds[i].send_gradients.peer == rank);
        REQUIRE(from.owner == ranks[rank].rounds[i + 1].owner);
        next[rank] = sums[from.peer];
      }
      if (const KeyMessage& from = round.receive_home) {
        require_matched(ranks[from.peer].rounds[i].send_gradients, from.peer, from);
        REQUIRE(ranks[from.peer].rounds[i].send_gradients.peer == rank);
        REQUIRE(from.owner == rank);
        home[rank] = sums[from.peer];
      }
      if (const KeyMessage& to = round.send_gradients) {
        const AttentionRound& there = ranks[to.peer].rounds[i];
        REQUIRE((there.receive_gradients.peer == rank || there.receive_home.peer == rank));
      }
    }
    sums = std::move(next);
  }
  return home;
}

int64_t sum_of(const std::vector<AttentionRounds>& ranks, int64_t ExchangeCounts::*what,
               bool backward) {
  int64_t sum = 0;
  for (const AttentionRounds& each : ranks) {
    sum += (backward ? backward_exchange(each, false) : forward_exchange(each)).*what;
  }
  return sum;
}

Layout even_layout(Balance balance, int world, int64_t length) {
  LayoutOptions options;
  options.world = world, options.balance = balance, options.length = length;
  auto layout = make_layout(options);
  REQUIRE(layout.ok());
  return std::move(*layout);
}

}  // namespace

TEST_CASE("ring rounds: 600 draws meet every visible pair once, and keys arrive in time") {
  std::mt19937 random(11);
  for (int i = 0; i < 600; ++i) {
    const Draw draw = random_draw(random);
    CAPTURE(words(draw));
    const auto ranks = all_ranks(draw, Rotation::ring);
    const int world = draw.layout.world();
    Met met;
    for (int rank = 0; rank < world; ++rank) {
      REQUIRE(ranks[rank].rounds.size() == ranks[0].rounds.size());
      int held = rank;  // whose keys are in the rank's buffer
      for (size_t step = 0; step < ranks[rank].rounds.size(); ++step) {
        const AttentionRound& round = ranks[rank].rounds[step];
        if (!round.ranges.empty()) REQUIRE(round.owner == held);
        meet(draw, round, tokens_of(draw.layout.queries[rank]),
             tokens_of(draw.layout.keys[round.owner]), &met);
        if (const KeyMessage& to = round.send_keys) {
          REQUIRE(to.owner == held);
          REQUIRE(to.tokens == draw.layout.key_tokens(to.owner));
          require_matched(to, rank, ranks[to.peer].rounds[step].receive_keys);
        }
        held = -1;
        if (const KeyMessage& from = round.receive_keys) {
          require_matched(ranks[from.peer].rounds[step].send_keys, from.peer, from);
          REQUIRE(ranks[from.peer].rounds[step].send_keys.peer == rank);
          held = from.owner;
        }
      }
    }
    require_all_met(draw, met);
  }
}

TEST_CASE("ring rounds: the gradients of keys come home from every rank that has a part") {
  std::mt19937 random(12);
  for (int i = 0; i < 300; ++i) {
    const Draw draw = random_draw(random);
    CAPTURE(words(draw));
    const auto ranks = all_ranks(draw, Rotation::ring);
    const std::vector<Sums> home = play_gradients(draw, ranks);
    for (int rank = 0; rank < draw.layout.world(); ++rank) {
      const std::vector<int64_t> keys = tokens_of(draw.layout.keys[rank]);
      REQUIRE(home[rank].size() == keys.size());
      for (size_t k = 0; k < keys.size(); ++k) {
        int64_t rows = 0;
        for (int64_t q = 0; q < draw.layout.length; ++q) rows += is_visible(draw, q, keys[k]);
        REQUIRE(home[rank][k] == rows);
      }
    }
  }
}

TEST_CASE("gathered keys: 600 draws meet every visible pair once, in keys that were sent") {
  std::mt19937 random(13);
  for (int i = 0; i < 600; ++i) {
    const Draw draw = random_draw(random);
    CAPTURE(words(draw));
    const auto ranks = all_ranks(draw, Rotation::allgather);
    const int world = draw.layout.world();
    Met met;
    for (int rank = 0; rank < world; ++rank) {
      const AttentionRounds& mine = ranks[rank];
      const std::vector<int64_t> rows = tokens_of(draw.layout.queries[rank]);
      std::vector<int64_t> keys;
      std::vector<bool> here;  // of the gathered buffer: what arrives
      for (int owner = 0; owner < world; ++owner) {
        const KeyMessage& from = mine.receive_keys[owner];
        const std::vector<int64_t> theirs = tokens_of(draw.layout.keys[owner]);
        REQUIRE(mine.key_offsets[owner] == static_cast<int64_t>(keys.size()));
        for (size_t k = 0; k < theirs.size(); ++k) {
          const int64_t at = static_cast<int64_t>(k) - from.begin;
          here.push_back(from && at >= 0 && at < from.tokens);
        }
        keys.insert(keys.end(), theirs.begin(), theirs.end());
        if (owner == rank) {
          REQUIRE((!from && !mine.send_keys[owner]));
          continue;
        }
        REQUIRE(static_cast<bool>(from) == static_cast<bool>(ranks[owner].send_keys[rank]));
        if (from) require_matched(ranks[owner].send_keys[rank], owner, from);
        if (from) REQUIRE(ranks[owner].send_keys[rank].peer == rank);
      }
      REQUIRE(mine.rounds.size() == (world > 1 ? 2 : 1));
      meet(draw, mine.own(), rows, tokens_of(draw.layout.keys[rank]), &met);
      if (world == 1) continue;
      meet(draw, mine.rounds[1], rows, keys, &met);
      for (const AttentionRange& range : mine.rounds[1].ranges) {
        for (int64_t key = range.ka; key < range.kb; ++key) REQUIRE(here[key]);
      }
    }
    require_all_met(draw, met);
  }
}

TEST_CASE("ring rounds: one causal sequence is the table of the method, on every rank") {
  for (int world = 1; world <= 8; ++world) {
    for (const Balance balance : {Balance::none, Balance::head_tail}) {
      const bool head_tail = balance == Balance::head_tail;
      const int own = 6, half = own / 2;
      const Layout layout = even_layout(balance, world, own * world);
      for (int rank = 0; rank < world; ++rank) {
        const auto rounds = attention_rounds(layout, rank, Rotation::ring, kCausal);
        REQUIRE(rounds.ok());
        REQUIRE(static_cast<int>(rounds->rounds.size()) == world);
        for (int step = 0; step < world; ++step) {
          CAPTURE(world);
          CAPTURE(rank);
          CAPTURE(step);
          const AttentionRound& round = rounds->rounds[step];
          CHECK(round.owner == (rank - step + world) % world);
          const bool later = round.owner > rank;
          if (later && !head_tail) {
            CHECK(round.ranges.empty());
            continue;
          }
          // A later owner's keys are seen by the second half of the rows, of an earlier owner's
          // keys the first half is seen.
          REQUIRE(round.ranges.size() == 1);
          const AttentionRange& range = round.ranges[0];
          const bool halves = head_tail && step > 0;
          CHECK(range.qa == (halves && later ? half : 0));
          CHECK(range.qb == own);
          CHECK(range.ka == 0);
          CHECK(range.kb == (halves && !later ? half : own));
          if (step == 0) CHECK(range.shift == 0);
          const int64_t all = int64_t{range.qb - range.qa} * (range.kb - range.ka);
          CHECK(round.visible == (step == 0 ? own * (own + 1) / 2 : all));
          if (!head_tail) continue;
          // Every block goes all the way round, and its gradients come home with the last hop.
          const int next = (rank + 1) % world, last = (rank - 1 + world) % world;
          const bool home = step == world - 1;
          CHECK(round.send_keys.peer == (home ? kNoRank : next));
          CHECK(round.receive_keys.peer == (home ? kNoRank : last));
          if (world == 1) continue;
          CHECK(round.send_gradients.peer == next);
          const KeyMessage& arrives = home ? round.receive_home : round.receive_gradients;
          CHECK(arrives.peer == last);
          CHECK(arrives.owner == (last - step + world) % world);
        }
      }
    }
  }
}

TEST_CASE("exchange counts are the method's formulas") {
  for (int world = 1; world <= 8; ++world) {
    const int own = 10, hops = world - 1;
    const Layout layout = even_layout(Balance::head_tail, world, own * world);
    for (int rank = 0; rank < world; ++rank) {
      const VisibleRange all;
      const auto ring = attention_rounds(layout, rank, Rotation::ring, all);
      const auto gather = attention_rounds(layout, rank, Rotation::allgather, all);
      REQUIRE((ring.ok() && gather.ok()));
      const int turns = world > 1 ? world : 0;
      CHECK(forward_exchange(*ring) == ExchangeCounts{hops, hops, hops, hops * own, 0});
      CHECK(backward_exchange(*ring, false) == ExchangeCounts{world > 1 ? world + 1 : 0,
                                                              hops + turns, hops + turns,
                                                              hops * own, turns * own});
      CHECK(backward_exchange(*ring, true) == ExchangeCounts{turns, turns, turns, 0, turns * own});
      const int one = world > 1 ? 1 : 0;
      CHECK(forward_exchange(*gather) == ExchangeCounts{one, hops, hops, hops * own, 0});
      CHECK(backward_exchange(*gather, true) == ExchangeCounts{one, hops, hops, 0, hops * own});
      CHECK(backward_exchange(*gather, false) ==
            ExchangeCounts{2 * one, 2 * hops, 2 * hops, hops * own, hops * own});
    }
  }
}

TEST_CASE("what no rank sees is not sent") {
  const auto ranks_of = [](const LayoutOptions& options, Rotation rotation, VisibleRange visible) {
    Draw draw;
    draw.options = options;
    draw.layout = *make_layout(options);
    draw.visible = visible;
    return all_ranks(draw, rotation);
  };
  LayoutOptions options;
  options.world = 4, options.length = 40;
  const VisibleRange causal = kCausal;
  // A causal gather of contiguous parts: the ranks behind need 3, 2, 1 and 0 times ten keys.
  auto ranks = ranks_of(options, Rotation::allgather, causal);
  CHECK(sum_of(ranks, &ExchangeCounts::key_tokens, false) == 60);
  // Head and tail: those behind need only the head, half of it. 3/4 of all.
  options.balance = Balance::head_tail;
  ranks = ranks_of(options, Rotation::allgather, causal);
  CHECK(sum_of(ranks, &ExchangeCounts::key_tokens, false) == 90);
  options.balance = Balance::none;
  // A window of ten reaches the neighbour: one hop, and gradients straight back.
  ranks = ranks_of(options, Rotation::ring, {10, 0});
  CHECK(ranks[0].rounds.size() == 2);
  CHECK(sum_of(ranks, &ExchangeCounts::key_tokens, false) == 30);
  CHECK(sum_of(ranks, &ExchangeCounts::gradient_tokens, true) == 60);
  // One of eleven reaches a key of the rank but one before.
  ranks = ranks_of(options, Rotation::ring, {11, 0});
  CHECK(ranks[0].rounds.size() == 3);
  // Documents that end at the cuts stay where they are.
  options.cu_seqlens = {0, 10, 20, 20, 30, 40};
  for (const Rotation rotation : {Rotation::ring, Rotation::allgather}) {
    ranks = ranks_of(options, rotation, {});
    for (const AttentionRounds& each : ranks) {
      CHECK(forward_exchange(each) == ExchangeCounts{});
      CHECK(backward_exchange(each, false) == ExchangeCounts{});
    }
  }
  CHECK(!attention_rounds(*make_layout(options), 4, Rotation::ring, causal).ok());
}
