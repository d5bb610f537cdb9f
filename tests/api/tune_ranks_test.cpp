// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the race between candidates on several ranks, which are threads: they choose
// alike, and talk as often as each other.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/api/tune_runner.h"

using namespace lathe;
using namespace races;

namespace {

// Ranks that are threads.
class Meeting {
 public:
  explicit Meeting(size_t world) : world_(world) {}
  Votes meet(size_t rank, const std::vector<double>& mine) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (arrived_ == 0) votes_.assign(world_, {});
    votes_[rank] = mine;
    const size_t turn = turn_;
    if (++arrived_ == world_) {
      arrived_ = 0, ++turn_, done_ = votes_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return turn_ != turn; });
    }
    return done_;
  }

 private:
  const size_t world_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  size_t arrived_ = 0, turn_ = 0;
  Votes votes_, done_;
};

struct RankResult {
  Result<RaceResult> result = Status(Code::internal, "not run");
  int exchanges = 0;
};
// Runs one rank's race and counts its votes.
RankResult run_rank(Meeting& meeting, size_t rank, FakeRunner& runner, size_t candidates,
                    const RaceOptions& options) {
  RankResult out;
  out.result = race(runner, candidates, options, [&](const std::vector<double>& mine) {
    ++out.exchanges;
    return meeting.meet(rank, mine);
  });
  return out;
}

std::vector<RankResult> race_of(std::vector<FakeRunner>& runners, const RaceOptions& options,
                                size_t candidates) {
  Meeting meeting(runners.size());
  std::vector<RankResult> all(runners.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < runners.size(); ++rank) {
    threads.emplace_back(
        [&, rank] { all[rank] = run_rank(meeting, rank, runners[rank], candidates, options); });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

}  // namespace

TEST_CASE("race: a rank that fails on one candidate votes as often as the others") {
  for (int stage = 0; stage < 4; ++stage) {
    std::vector<FakeRunner> runners;
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<Script> scripts = {{10}, {1}, {8}};
      if (rank == 1 && stage == 0) scripts[1].build = "thrown";
      if (rank == 1 && stage == 1) scripts[1].verify = "wrong";
      if (rank == 1 && stage == 2) scripts[1].fails_at = 1;
      runners.emplace_back(scripts);
    }
    RaceOptions options;
    options.rounds = 3;
    const auto all = race_of(runners, options, 3);
    for (const RankResult& each : all) {
      REQUIRE(each.result.ok());
      CHECK(each.exchanges == 1 + 1 + 3 + 1);
      CHECK(each.result->winner == (stage < 3 ? 2 : 1));
      if (stage < 3) CHECK(each.result->outcomes[1].kind == Outcome::Kind::out);
    }
    if (stage < 3) {
      CHECK(all[0].result->outcomes[1].reason == "it failed on rank 1");
      CHECK(all[1].result->outcomes[1].reason != "it failed on rank 1");
    }
  }
}

TEST_CASE("race: the default failing, or an end, on one rank is the end on all") {
  for (const bool cancels : {false, true}) {
    std::vector<FakeRunner> runners;
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<Script> scripts = {{10}, {1}};
      if (rank == 2 && !cancels) scripts[0].verify = "wrong";
      runners.emplace_back(scripts);
    }
    Meeting meeting(3);
    std::vector<std::thread> threads;
    std::vector<RankResult> all(3);
    for (size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        RaceOptions options;
        options.rounds = 2;
        options.cancelled = [&](const std::string& what, size_t, size_t) {
          return cancels && rank == 2 && what == "verifying";
        };
        all[rank] = run_rank(meeting, rank, runners[rank], 2, options);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const RankResult& each : all) {
      CHECK(each.exchanges == 2);
      CHECK(each.result.ok() == cancels);
      if (cancels) CHECK(each.result->cancelled);
    }
  }
}

TEST_CASE("race: ranks that measure differently choose alike, whatever fails where") {
  unsigned seed = 11;
  for (int i = 0; i < 200; ++i) {
    const size_t world = 1 + next(&seed) % 4, candidates = 1 + next(&seed) % 5;
    std::vector<FakeRunner> runners;
    for (size_t rank = 0; rank < world; ++rank) {
      std::vector<Script> scripts(candidates);
      for (Script& script : scripts) {
        script.us = 1 + next(&seed) % 20;
        if (next(&seed) % 9 == 0 && &script != scripts.data()) script.build = "b";
        if (next(&seed) % 9 == 0 && &script != scripts.data()) script.verify = "v";
        if (next(&seed) % 9 == 0 && &script != scripts.data()) script.fails_at = 1;
      }
      runners.emplace_back(std::move(scripts));
    }
    RaceOptions options;
    options.rounds = 2;
    const auto all = race_of(runners, options, candidates);
    for (const RankResult& each : all) {
      REQUIRE(each.result.ok());
      CHECK(each.exchanges == all[0].exchanges);
      CHECK(each.result->winner == all[0].result->winner);
      CHECK((each.result->winner == 0 ||
             each.result->outcomes[each.result->winner].kind == Outcome::Kind::won));
    }
  }
}
