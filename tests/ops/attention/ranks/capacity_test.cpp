// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One graph of flash_attention over ranks, captured once, replays for other lengths, documents and
// ranges of its capacity, and gives what a fresh plan for that layout gives.
#include <doctest/doctest.h>

#include "tests/harness/tables.h"
#include "tests/ops/attention/ranks/calls.h"

using namespace apitest;

namespace {

Call call_of(const std::vector<int64_t>& cu_seqlens, const CallShape& like, int64_t window) {
  CallShape s = like;
  s.queries = s.keys = cu_seqlens.back();
  s.cu_q = cu_seqlens;
  Call call = make_call(s);
  call.options["causal"] = "1";
  if (window >= 0) call.options["window_left"] = std::to_string(window);
  return call;
}

// Replays over `count` layouts of `sequences` sequences.
void replay(int count, const Ranks& ranks, int64_t sequences, uint32_t seed, const CallShape& like,
            int64_t window = -1) {
  std::mt19937 random(seed);
  std::vector<LayoutCall> calls;
  for (int i = 0; i < count; ++i) {
    const DrawnLayout layout = random_layout(random, ranks, sequences);
    calls.push_back({call_of(layout.cu_seqlens, like, window), layout.ranks});
  }
  const std::vector<Outputs> replayed = replay_layouts(calls);
  for (size_t i = 0; i < calls.size(); ++i) {
    Ranks fresh = calls[i].ranks;
    fresh.capacity_tokens = fresh.capacity_pieces = 0;
    INFO(fresh.text());
    // The same rows see the same keys, in ranges that are cut elsewhere: sums have another order.
    for (const auto& [name, values] : run_ranks(calls[i].call, fresh).outputs) {
      double most = 0;
      for (const double value : values) most = std::max(most, std::abs(value));
      const bool narrow = name != "lse" && like.dtype != LATHE_F32;
      const double bound = (narrow ? 0x1p-7 : 0x1p-18) * std::max(most, 1e-3);
      check_near(replayed[i].at(name), values, bound, 0, name);
    }
  }
}

}  // namespace

TEST_CASE("attention capacity: one graph of gathered keys replays over 50 random layouts") {
  const Ranks ranks{
      .world = 3, .flags = LATHE_ALLGATHER, .capacity_tokens = 60, .capacity_pieces = 10};
  replay(50, ranks, 4, 1, {.heads = 4, .kv_heads = 2});
}

TEST_CASE("attention capacity: a ring, float32, a window") {
  const Ranks ranks{.world = 4, .capacity_tokens = 40, .capacity_pieces = 8};
  replay(8, ranks, 3, 2, {.heads = 2, .kv_heads = 2, .dtype = LATHE_F32});
  replay(4, ranks, 3, 3, {.heads = 2, .kv_heads = 1, .backward = false}, 9);
}

TEST_CASE("attention capacity: what has none is refused by name") {
  Ranks ranks{.world = 2, .flags = LATHE_ALLGATHER, .capacity_tokens = 64, .capacity_pieces = 4};
  const CallShape like;
  CallShape sinks = like;
  sinks.sinks = true;
  CHECK_THROWS_WITH(run_ranks(call_of({0, 64}, sinks, -1), ranks),
                    doctest::Contains("dsinks is declared"));
  ranks.flags = LATHE_EXCHANGE_HEADS;
  CHECK_THROWS_WITH(run_ranks(call_of({0, 64}, like, -1), ranks),
                    doctest::Contains("the plan takes no shard with capacity_tokens"));
}
