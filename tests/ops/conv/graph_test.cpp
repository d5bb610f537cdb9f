// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover a plan over ranks in a CUDA graph: captured once on every rank, replayed with
// other inputs, beside ranks that call it, and without anything left behind.
#include <doctest/doctest.h>

#include <barrier>
#include <optional>

#include "tests/harness/graph_client.h"
#include "tests/harness/ranks.h"
#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

constexpr int kRounds = 3;

ConvCase both_ways() {
  ConvCase conv{.channels = 8, .width = 4};
  conv.cu_seqlens = {0, 30, 31, 100};
  conv.tokens = 100;
  conv.silu = conv.bias = conv.states = true;
  return conv;
}

// One rank, set up: round r has the x of seed r + 1.
class RankRun {
 public:
  explicit RankRun(const Rank& rank)
      : rank_(rank), whole_(whole()), call_(rank.context(), rank.part(whole_), rank.seat()) {}
  static Call whole() { return conv_call(both_ways(), make_inputs(both_ways(), 1)); }

  void begin(int round) {
    const ref::Conv inputs = make_inputs(both_ways(), static_cast<uint64_t>(round) + 1);
    call_.upload("x", rank_.part(whole_, "x", inputs.x));
    call_.reset();
  }
  void capture(std::optional<CapturedGraph>* graph) {
    graph->emplace(rank_.context(), call_.stream(), [this] { call_.enqueue(); });
  }
  // The rank's y is the same as one rank's.
  void check_y(const Outputs& one) {
    call_.synchronize();
    CHECK(call_.outputs().at("y") == rank_.part(whole_, "y", one.at("y")));
  }
  PlannedCall& call() { return call_; }

 private:
  const Rank& rank_;
  const Call whole_;
  PlannedCall call_;
};

// Runs the same weights and states with the x of each round, on one rank.
std::vector<Outputs> on_one_rank() {
  PlannedCall call(shared_context(), RankRun::whole());
  std::vector<Outputs> out;
  for (int round = 0; round < kRounds; ++round) {
    call.upload("x", make_inputs(both_ways(), static_cast<uint64_t>(round) + 1).x);
    call.run();
    out.push_back(call.outputs());
  }
  return out;
}

void on_cuts(const std::vector<int64_t>& bounds, const std::function<void(Rank&)>& body) {
  const Ranks ranks{.world = static_cast<int>(bounds.size()) - 1,
                    .flags = LATHE_REDUCE_PARAMETER_GRADS,
                    .bounds = bounds};
  on_ranks(RankRun::whole(), ranks, body);
  check_no_findings();
}

// `captures(rank)` says who replays a graph; the others call.
void replay(const std::vector<int64_t>& bounds, const std::function<bool(int)>& captures) {
  const std::vector<Outputs> expected = on_one_rank();
  on_cuts(bounds, [&](Rank& rank) {
    RankRun mine(rank);
    std::optional<CapturedGraph> graph;
    if (captures(rank.number())) mine.capture(&graph);
    for (int round = 0; round < kRounds; ++round) {
      mine.begin(round);
      graph ? graph->launch() : mine.call().enqueue();
      mine.check_y(expected[static_cast<size_t>(round)]);
    }
  });
}

TEST_CASE("graphs: every rank replays what it captured once, with other inputs") {
  replay({0, 40, 100}, [](int) { return true; });
  replay({0, 40, 41, 100}, [](int) { return true; });
}

TEST_CASE("graphs: ranks that replay go together with ranks that call") {
  replay({0, 40, 60, 100}, [](int rank) { return rank != 1; });
}

TEST_CASE("graphs: a call and a replay on one rank, one after the other without a wait") {
  const std::vector<Outputs> expected = on_one_rank();
  on_cuts({0, 50, 100}, [&](Rank& rank) {
    RankRun mine(rank);
    mine.begin(0);
    std::optional<CapturedGraph> graph;
    mine.capture(&graph);
    for (int round = 0; round < 3; ++round) {
      mine.call().enqueue();
      graph->launch();
    }
    mine.check_y(expected[0]);
  });
}

TEST_CASE("graphs: captures that come and go leave no memory behind") {
  size_t before = 0, after = 0;
  std::barrier together(2);
  on_cuts({0, 50, 100}, [&](Rank& rank) {
    RankRun mine(rank);
    mine.begin(0);
    for (int round = 0; round < 6; ++round) {
      std::optional<CapturedGraph> graph;
      mine.capture(&graph);
      graph->launch();
      mine.call().synchronize();
      together.arrive_and_wait();
      if (rank.number() == 0) (round == 0 ? before : after) = graph->free_bytes();
      together.arrive_and_wait();
    }
  });
  CHECK(after == before);
}

}  // namespace
