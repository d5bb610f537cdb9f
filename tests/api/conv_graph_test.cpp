// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A plan over ranks in a CUDA graph: captured once on every rank, replayed with other inputs,
// beside ranks that call it, and without anything left behind.
#include <doctest/doctest.h>

#include <array>
#include <barrier>
#include <exception>
#include <thread>

#include "tests/api/conv_case.h"
#include "tests/harness/graph_client.h"

using namespace apitest;

namespace {

constexpr int kRounds = 3;

// One rank, set up: inputs of round r have seed r + 1.
class RankRun {
 public:
  RankRun(const ConvCase& conv, const std::array<char, LATHE_UNIQUE_ID_BYTES>& id,
          const std::vector<int64_t>& bounds, int rank)
      : conv_(conv), context_(make_context()), bounds_(bounds), rank_(rank) {
    const int world = static_cast<int>(bounds.size()) - 1;
    lathe_group* group = nullptr;
    API(lathe_group_create(&group, context_.get(), id.data(), world, rank, 20000));
    group_.reset(group);
    lathe_shard* shard = nullptr;
    API(lathe_shard_create(&shard, world, rank, conv.tokens, bounds.data()));
    shard_.reset(shard);
    run_ = std::make_unique<ConvRun>(context_.get(), conv, make_inputs(conv, 1), group_.get(),
                                     shard_.get(), LATHE_REDUCE_PARAMETER_GRADS);
    API(lathe_shard_prepare(shard_.get(), run_->plan()));
  }

  void begin(int round) {
    const ref::Conv inputs = make_inputs(conv_, static_cast<uint64_t>(round) + 1);
    const int64_t begin = bounds_[static_cast<size_t>(rank_)] * conv_.channels;
    const int64_t end = bounds_[static_cast<size_t>(rank_) + 1] * conv_.channels;
    run_->set_x({inputs.x.begin() + begin, inputs.x.begin() + end});
    run_->poison_outputs();
  }
  ConvRun& run() { return *run_; }
  lathe_context* context() const { return context_.get(); }
  void check_group() const { API(lathe_group_error(group_.get())); }

 private:
  ConvCase conv_;
  Context context_;
  std::vector<int64_t> bounds_;
  int rank_;
  Group group_;
  Shard shard_;
  std::unique_ptr<ConvRun> run_;
};

// The same weights and states with the x of each round, on one rank.
std::vector<Values> on_one_rank(const ConvCase& conv) {
  const Context context = make_context();
  ConvRun run(context.get(), conv, make_inputs(conv, 1));
  std::vector<Values> out;
  for (int round = 0; round < kRounds; ++round) {
    run.set_x(make_inputs(conv, static_cast<uint64_t>(round) + 1).x);
    out.push_back(run());
  }
  return out;
}

void check_part(const ConvCase& conv, const Values& part, const Values& whole,
                const std::vector<int64_t>& bounds, int rank) {
  const auto& y = whole.at("y");
  const size_t r = static_cast<size_t>(rank);
  CHECK(part.at("y") == std::vector<double>(y.begin() + bounds[r] * conv.channels,
                                            y.begin() + bounds[r + 1] * conv.channels));
}

// Every rank runs `body`; throws what one of them threw.
void on_ranks(int world, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

ConvCase both_ways() {
  ConvCase conv{.channels = 8, .width = 4};
  conv.cu_seqlens = {0, 30, 31, 100};
  conv.tokens = 100;
  conv.silu = conv.bias = conv.states = true;
  return conv;
}

// `captures(rank)` says who replays a graph; the others call.
void replay(const std::vector<int64_t>& bounds, const std::function<bool(int)>& captures) {
  const ConvCase conv = both_ways();
  const std::vector<Values> expected = on_one_rank(conv);
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  API(lathe_unique_id(make_context().get(), id.data()));
  on_ranks(static_cast<int>(bounds.size()) - 1, [&](int rank) {
    RankRun mine(conv, id, bounds, rank);
    std::unique_ptr<CapturedGraph> graph;
    if (captures(rank)) {
      graph = std::make_unique<CapturedGraph>(mine.context(), mine.run().stream(),
                                              [&] { mine.run().enqueue(); });
    }
    for (int round = 0; round < kRounds; ++round) {
      mine.begin(round);
      if (graph) {
        graph->launch();
      } else {
        mine.run().enqueue();
      }
      check_part(conv, mine.run().outputs(), expected[static_cast<size_t>(round)], bounds, rank);
    }
    mine.check_group();
  });
  check_no_findings();
}

TEST_CASE("graphs: every rank replays what it captured once, with other inputs") {
  replay({0, 40, 100}, [](int) { return true; });
  replay({0, 40, 41, 100}, [](int) { return true; });
}

TEST_CASE("graphs: ranks that replay go together with ranks that call") {
  replay({0, 40, 60, 100}, [](int rank) { return rank != 1; });
}

TEST_CASE("graphs: a call and a replay on one rank, one after the other without a wait") {
  const ConvCase conv = both_ways();
  const std::vector<Values> expected = on_one_rank(conv);
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  API(lathe_unique_id(make_context().get(), id.data()));
  const std::vector<int64_t> bounds = {0, 50, 100};
  on_ranks(2, [&](int rank) {
    RankRun mine(conv, id, bounds, rank);
    mine.begin(0);
    const CapturedGraph graph(mine.context(), mine.run().stream(), [&] { mine.run().enqueue(); });
    for (int round = 0; round < 3; ++round) {
      mine.run().enqueue();
      graph.launch();
    }
    check_part(conv, mine.run().outputs(), expected[0], bounds, rank);
  });
  check_no_findings();
}

TEST_CASE("graphs: captures that come and go leave no memory behind") {
  const ConvCase conv = both_ways();
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  API(lathe_unique_id(make_context().get(), id.data()));
  size_t before = 0, after = 0;
  std::barrier together(2);
  on_ranks(2, [&](int rank) {
    RankRun mine(conv, id, {0, 50, 100}, rank);
    mine.begin(0);
    for (int round = 0; round < 6; ++round) {
      const CapturedGraph graph(mine.context(), mine.run().stream(), [&] { mine.run().enqueue(); });
      graph.launch();
      (void)mine.run().outputs();
      together.arrive_and_wait();
      if (rank == 0) (round == 0 ? before : after) = graph.free_bytes();
      together.arrive_and_wait();
    }
  });
  CHECK(after == before);
  check_no_findings();
}

}  // namespace
