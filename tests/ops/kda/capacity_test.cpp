// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One graph of kda over ranks, captured once, replays for other lengths, documents and ranges of
// its capacity, and gives what a fresh plan for that layout gives.
#include <doctest/doctest.h>

#include "tests/harness/tables.h"
#include "tests/ops/kda/rank_cases.h"

using namespace apitest;

namespace {

// Replays over `count` layouts of `sequences` sequences; `shape` says what the rest of a case is.
void replay(int count, Ranks ranks, int64_t sequences, uint32_t seed,
            KdaCase (*shape)(std::vector<int64_t> cu_seqlens)) {
  ranks.flags = LATHE_REDUCE_PARAMETER_GRADS;
  std::mt19937 random(seed);
  std::vector<KdaCase> cases;
  std::vector<KdaInputs> inputs;
  std::vector<LayoutCall> calls;
  for (int i = 0; i < count; ++i) {
    const DrawnLayout layout = random_layout(random, ranks, sequences);
    cases.push_back(shape(layout.cu_seqlens));
    inputs.push_back(lasting_inputs(cases.back(), static_cast<uint64_t>(i) + 1));
    calls.push_back({kda_call(cases.back(), inputs.back()), layout.ranks});
  }
  const std::vector<Outputs> replayed = replay_layouts(calls);
  int pieces = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    Ranks fresh = calls[i].ranks;
    fresh.capacity_tokens = fresh.capacity_pieces = 0;
    INFO(cases[i].text() << " " << fresh.text());
    const RanksAnswer expected = run_ranks(calls[i].call, fresh);
    // Over parts that follow each other a fresh plan is of another program.
    const bool same =
        std::ranges::any_of(expected.queries, [](const Intervals& own) { return own.size() > 1; });
    pieces += same ? 1 : 0;
    for (const auto& [name, values] : expected.outputs) {
      if (!same) break;
      // Sums over all chunks are made in an order that follows from how many there may be.
      if (name == "dA_log" || name == "ddt_bias") continue;
      CHECK_MESSAGE(replayed[i].at(name) == values, name);
    }
    check_ranks(cases[i], inputs[i], replayed[i]);
  }
  CHECK(4 * pieces >= count);  // not parts alone
}

}  // namespace

TEST_CASE("kda capacity: one graph replays over 50 random layouts") {
  const Ranks ranks{.world = 3, .capacity_tokens = 60, .capacity_pieces = 10};
  replay(50, ranks, 4, 1,
         [](std::vector<int64_t> cu_seqlens) { return fused_case(std::move(cu_seqlens)); });
}

TEST_CASE("kda capacity: long chains over five ranks, in segments, without given states") {
  const Ranks ranks{.world = 5, .capacity_tokens = 30, .capacity_pieces = 12};
  replay(8, ranks, 2, 2, [](std::vector<int64_t> cu_seqlens) {
    KdaCase kda = fused_case(std::move(cu_seqlens), 2);
    kda.dht = false, kda.states = KdaCase::none;
    return kda;
  });
}

TEST_CASE("kda capacity: forward alone, one sequence a row") {
  const Ranks ranks{.world = 2, .capacity_tokens = 40, .capacity_pieces = 8};
  replay(8, ranks, 1, 3, [](std::vector<int64_t> cu_seqlens) {
    KdaCase kda = plain_case(1, cu_seqlens.back());
    kda.backward = kda.dht = false;
    return kda;
  });
}

TEST_CASE("kda capacity: what has none is refused by name") {
  const Ranks ranks{.world = 2, .capacity_tokens = 64, .capacity_pieces = 4};
  KdaCase kda = fused_case({0, 64}, 0);
  kda.backward = kda.dht = false, kda.chunk_states = true, kda.chunk = 16;
  CHECK_THROWS_WITH(run_ranks(kda_call(kda, lasting_inputs(kda, 1)), ranks),
                    doctest::Contains("chunk_states is declared"));
  const KdaCase rows = plain_case(2, 64);
  CHECK_THROWS_WITH(run_ranks(kda_call(rows, lasting_inputs(rows, 1)), ranks),
                    doctest::Contains("q has B = 2 rows; allowed"));
}
