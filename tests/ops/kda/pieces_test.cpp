// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda over tables of ranges and balances is kda on one rank, within the rounding of the states that
// ranks exchange, in at most one group of messages a call.
#include <doctest/doctest.h>

#include "tests/harness/tables.h"
#include "tests/ops/kda/rank_cases.h"

using namespace apitest;

namespace {

void equals_one_rank(const KdaCase& kda, Ranks ranks, uint64_t seed = 1) {
  ranks.flags = LATHE_REDUCE_PARAMETER_GRADS;
  INFO(kda.text() << " " << ranks.text());
  const KdaInputs inputs = lasting_inputs(kda, seed);
  std::vector<RanksAnswer> answers;
  check_ranks(kda, inputs, run_kda_ranks(kda, inputs, ranks, &answers));
  for (const RanksAnswer& answer : answers) check_counts(answer, ranks.world, 1);
}

}  // namespace

TEST_CASE("kda over pieces: random tables of ranges, packed") {
  std::mt19937 random(1);
  for (int i = 0; i < 40; ++i) {
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 150);
    const auto cu = random_offsets(random, tokens, 1 + static_cast<int64_t>(random() % 120));
    KdaCase kda = fused_case(cu);
    kda.segments = i % 4 == 0 ? 2 : 1;
    if (i % 3 == 1) kda.dht = false, kda.states = KdaCase::none;
    if (i % 8 == 2) kda.backward = kda.dht = false;
    if (i % 8 == 6) kda.apart = true, kda.saved = i % 16 == 6;
    Ranks ranks;
    ranks.world = 2 + static_cast<int>(random() % 4);
    ranks.ranges = random_table(random, ranks.world, 1 + static_cast<int64_t>(random() % 50), cu);
    equals_one_rank(kda, ranks, static_cast<uint64_t>(i));
  }
}

TEST_CASE("kda over pieces: random tables of ranges, rows of a batch") {
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    KdaCase kda = plain_case(1 + i % 3, 1 + static_cast<int64_t>(random() % 120));
    kda.segments = 1 + i % 2;
    kda.v_first = i % 3 > 0;
    if (i % 5 == 4) kda.forward = false, kda.gradients = "dinitial_state";
    Ranks ranks;
    ranks.world = 2 + static_cast<int>(random() % 3);
    ranks.ranges =
        random_table(random, ranks.world, 1 + static_cast<int64_t>(random() % 40), {0, kda.tokens});
    equals_one_rank(kda, ranks, static_cast<uint64_t>(i));
  }
}

TEST_CASE("kda over pieces: every balance") {
  for (const auto balance :
       {LATHE_BALANCE_HEAD_TAIL, LATHE_BALANCE_PER_DOCUMENT, LATHE_BALANCE_PTRR}) {
    for (int world = 1; world <= 4; ++world) {
      Ranks ranks;
      ranks.world = world, ranks.balance = balance, ranks.block_size = 16;
      equals_one_rank(fused_case({0, 5, 5, 80, 81, 130}, 0), ranks);
      equals_one_rank(plain_case(2, 90, 0), ranks);
    }
  }
}

TEST_CASE("kda over pieces: a tree of many ranks' pieces") {
  // Two pieces of rank 0 with eleven of others between them: two levels and the walk.
  Ranks ranks{.world = 12};
  ranks.ranges.resize(12);
  for (int64_t rank = 0; rank < 12; ++rank) ranks.ranges[rank] = {{8 * rank, 8 * rank + 8}};
  ranks.ranges[0].emplace_back(96, 110);
  equals_one_rank(fused_case({0, 110}, 0), ranks);
}

TEST_CASE("kda over pieces: states at the starts of chunks") {
  std::mt19937 random(3);
  for (int i = 0; i < 8; ++i) {
    const auto cu = random_offsets(random, 120, 90);
    KdaCase kda = i % 2 ? plain_case(2, 120, 0) : fused_case(cu, 0);
    kda.backward = kda.dht = false, kda.chunk_states = true, kda.chunk = 16;
    Ranks ranks{.world = 3};
    ranks.ranges =
        random_table(random, 3, 48, i % 2 ? std::vector<int64_t>{0, 120} : cu, kda.chunk);
    equals_one_rank(kda, ranks, static_cast<uint64_t>(i));
  }
  KdaCase kda = fused_case({0, 60}, 0);
  kda.backward = kda.dht = false, kda.chunk_states = true, kda.chunk = 16;
  Ranks ranks{.world = 2};
  ranks.ranges = {{{0, 20}, {40, 60}}, {{20, 40}}};
  CHECK_THROWS_WITH(run_kda_ranks(kda, lasting_inputs(kda, 1), ranks),
                    doctest::Contains("a piece of rank 0 begins 40 tokens into sequence 0"));
}

TEST_CASE("kda over pieces: repeatable, also as a graph; no token at all") {
  Ranks ranks{.world = 2};
  ranks.graph = true;
  ranks.ranges = {{{0, 30}, {50, 90}}, {{30, 50}, {90, 100}}};
  equals_one_rank(fused_case({0, 40, 100}, 0), ranks);
  ranks = {.world = 3, .balance = LATHE_BALANCE_HEAD_TAIL};
  equals_one_rank(plain_case(2, 0, 0), ranks);
}
