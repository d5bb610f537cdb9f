// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One graph of causal_conv1d over ranks, captured once, replays for other lengths, documents and
// ranges of its capacity, and gives what a fresh plan for that layout gives.
#include <doctest/doctest.h>

#include "tests/harness/graph_client.h"
#include "tests/harness/tables.h"
#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

// Replays over `count` layouts of `sequences` sequences; `shape` says what the rest of a case is.
void replay(int count, const Ranks& ranks, int64_t sequences, uint32_t seed,
            ConvCase (*shape)(std::vector<int64_t> cu_seqlens)) {
  std::mt19937 random(seed);
  std::vector<ConvCase> cases;
  std::vector<ref::Conv> inputs;
  std::vector<LayoutCall> calls;
  for (int i = 0; i < count; ++i) {
    const DrawnLayout layout = random_layout(random, ranks, sequences);
    cases.push_back(shape(layout.cu_seqlens));
    inputs.push_back(make_inputs(cases.back(), static_cast<uint64_t>(i) + 1));
    calls.push_back({conv_call(cases.back(), inputs.back()), layout.ranks});
  }
  const std::vector<Outputs> replayed = replay_layouts(calls);
  for (size_t i = 0; i < calls.size(); ++i) {
    Ranks fresh = calls[i].ranks;
    fresh.capacity_tokens = fresh.capacity_pieces = 0;
    INFO(cases[i].text() << " " << fresh.text());
    const Outputs expected = run_conv_ranks(cases[i], inputs[i], fresh).outputs;
    std::vector<std::string> exact;
    for (const char* name : {"y", "dx", "final_state", "dinitial_state"}) {
      if (expected.contains(name)) exact.emplace_back(name);
    }
    check_equal(replayed[i], expected, exact);
    check_conv(cases[i], replayed[i], reference(cases[i], inputs[i]), 1 + fresh.world);
  }
}

ConvCase with_states(std::vector<int64_t> cu_seqlens) {
  return packed_case(std::move(cu_seqlens), 4, true);
}

}  // namespace

TEST_CASE("capacity: one graph replays over 50 random layouts") {
  const Ranks ranks{.world = 3,
                    .flags = LATHE_REDUCE_PARAMETER_GRADS,
                    .capacity_tokens = 60,
                    .capacity_pieces = 12};
  replay(50, ranks, 5, 1, with_states);
}

TEST_CASE("capacity: a wide window over short pieces, 16-bit, without states") {
  const Ranks ranks{.world = 4, .capacity_tokens = 24, .capacity_pieces = 9};
  replay(12, ranks, 2, 2, [](std::vector<int64_t> cu_seqlens) {
    ConvCase conv = packed_case(std::move(cu_seqlens), 8, false);
    conv.x = conv.weight = LATHE_BF16, conv.residual = true;
    return conv;
  });
}

TEST_CASE("capacity: forward alone, one sequence a row") {
  const Ranks ranks{.world = 2, .capacity_tokens = 40, .capacity_pieces = 8};
  replay(10, ranks, 1, 3, [](std::vector<int64_t> cu_seqlens) {
    ConvCase conv{.x = LATHE_F32, .weight = LATHE_F32, .tokens = cu_seqlens.back()};
    conv.states = true, conv.backward = false;
    return conv;
  });
}

TEST_CASE("capacity: what does not fit is refused, and the shard keeps its layout") {
  Ranks ranks{.world = 2, .capacity_tokens = 8, .capacity_pieces = 3};
  ranks.ranges = {{{0, 4}, {6, 8}}, {{4, 6}}};
  const auto call_of = [](std::vector<int64_t> cu_seqlens) {
    const ConvCase conv = packed_case(std::move(cu_seqlens), 4, false);
    return conv_call(conv, make_inputs(conv));
  };
  const Call first = call_of({0, 3, 8});
  on_ranks(first, ranks, [&](Rank& rank) {
    PlannedCall planned(rank.context(), rank.part(first), rank.seat());
    const auto refused = [&](const Call& call, const Ranks& other, const char* text) {
      CHECK_THROWS_WITH(rank.update(call, other, planned.stream()), doctest::Contains(text));
      CHECK(rank.queries == ranks.ranges[static_cast<size_t>(rank.number())]);
    };
    Ranks other = ranks;
    other.ranges = {{{0, 9}}, {{9, 10}}};
    refused(call_of({0, 3, 10}), other, "rank 0 holds 9 tokens; capacity_tokens is 8");
    other.ranges = {{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {{1, 2}, {3, 4}, {5, 6}, {7, 8}}};
    refused(call_of({0, 8, 8}), other, "rank 0 holds 4 pieces of sequences; capacity_pieces is 3");
    refused(call_of({0, 8}), ranks, "the number of sequences is 1; the shard was made with 2");
    other = ranks, other.capacity_tokens = 9;
    refused(first, other, "capacity_tokens is 9; the shard was made with 8");
    other = ranks, other.offsets = false;
    refused(first, other, "cu_seqlens is NULL, but the shard was made with it");
    other = ranks, other.ranges[0][1].second = 7;
    refused(first, other, "token 7 lies in no range");
    const CapturedGraph graph(rank.context(), planned.stream(), [&] {
      refused(first, ranks, "the stream is in a capture");
      planned.enqueue();
    });
    planned.run();
  });
  check_no_findings();
  ranks.capacity_tokens = ranks.capacity_pieces = 0;
  on_ranks(first, ranks, [&](Rank& rank) {
    CHECK_THROWS_WITH(rank.update(first, ranks, nullptr),
                      doctest::Contains("the shard has no capacity_tokens"));
  });
}

TEST_CASE("capacity: ranks that are given different layouts hear of it") {
  const Ranks ranks{.world = 2, .capacity_tokens = 8, .capacity_pieces = 3};
  const ConvCase conv = packed_case({0, 3, 8}, 4, false);
  const Call call = conv_call(conv, make_inputs(conv));
  on_ranks(call, ranks, [&](Rank& rank) {
    PlannedCall planned(rank.context(), rank.part(call), rank.seat());
    Ranks other = ranks;
    if (rank.number() == 1) other.bounds = {0, 3, 8};
    CHECK_THROWS_WITH(rank.update(call, other, planned.stream()),
                      doctest::Contains("the cut of queries must be equal on all ranks"));
    planned.run();
  });
  check_no_findings();
}

TEST_CASE("capacity: what has none is refused by name") {
  Ranks ranks{.world = 2, .capacity_tokens = 64, .capacity_pieces = 4};
  const ConvCase conv = packed_case({0, 64}, 4, false);
  const Call call = conv_call(conv, make_inputs(conv));
  ranks.flags = LATHE_RANK_INVARIANT;
  CHECK_THROWS_WITH(replay_layouts({{call, ranks}}),
                    doctest::Contains("the group has LATHE_RANK_INVARIANT"));
  ranks.flags = 0;
  ConvCase rows{.batch = 2, .tokens = 64};
  CHECK_THROWS_WITH(run_conv_ranks(rows, make_inputs(rows), ranks),
                    doctest::Contains("x has B = 2 rows; allowed"));
  ranks.capacity_pieces = 0;
  CHECK_THROWS_WITH(run_conv_ranks(conv, make_inputs(conv), ranks),
                    doctest::Contains("capacity_pieces is 0; allowed are 1 to 1024"));
}
