// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The race between candidates without a device: who can win, what ranks agree on, and how often
// they talk.
#include "api/tune/tune_race.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

using namespace lathe;

namespace {

constexpr double kOut = std::numeric_limits<double>::infinity();

Status failed(const std::string& why) { return Status(Code::compile_failed, why); }

// What one candidate does.
struct Script {
  double us = 10;
  std::string build, verify;         // why it fails; empty: it does not
  std::vector<double> samples = {};  // in place of `us`, in turns
  int fails_at = -1;                 // the run that fails
};

class FakeRunner : public TuneRunner {
 public:
  explicit FakeRunner(std::vector<Script> scripts) : scripts_(std::move(scripts)) {
    runs.resize(scripts_.size());
  }
  Status build(size_t i) override {
    log += 'b' + std::to_string(i) + ' ';
    return scripts_[i].build.empty() ? Status() : failed(scripts_[i].build);
  }
  Status verify(size_t i) override {
    log += 'v' + std::to_string(i) + ' ';
    return scripts_[i].verify.empty() ? Status() : failed(scripts_[i].verify);
  }
  Result<double> time(size_t i) override {
    log += 't' + std::to_string(i) + ' ';
    const Script& script = scripts_[i];
    const int run = runs[i]++;
    if (run == script.fails_at) return failed("it failed late");
    if (script.samples.empty()) return script.us;
    return script.samples[static_cast<size_t>(run) % script.samples.size()];
  }
  std::string log;
  std::vector<int> runs;

 private:
  std::vector<Script> scripts_;
};

// Ranks that are threads.
class Meeting {
 public:
  explicit Meeting(size_t world) : world_(world) {}
  Ballot::Votes meet(size_t rank, const std::vector<double>& mine) {
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
  Ballot::Votes votes_, done_;
};

class Seat : public Ballot {
 public:
  Seat(Meeting& meeting, size_t rank) : meeting_(meeting), rank_(rank) {}
  Result<Votes> exchange(const std::vector<double>& mine) override {
    ++exchanges;
    return meeting_.meet(rank_, mine);
  }
  int exchanges = 0;

 private:
  Meeting& meeting_;
  size_t rank_;
};

struct RankResult {
  Result<RaceResult> result = Status(Code::internal, "not run");
  int exchanges = 0;
};
std::vector<RankResult> race_of(std::vector<FakeRunner>& runners, const RaceOptions& options,
                                size_t candidates) {
  Meeting meeting(runners.size());
  std::vector<RankResult> all(runners.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < runners.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Seat seat(meeting, rank);
      all[rank].result = race(runners[rank], candidates, options, seat);
      all[rank].exchanges = seat.exchanges;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

RaceResult race_alone(FakeRunner& runner, size_t candidates, const RaceOptions& options = {}) {
  LoneBallot ballot;
  auto result = race(runner, candidates, options, ballot);
  REQUIRE_MESSAGE(result.ok(), result.status().text());
  return *result;
}

unsigned next(unsigned* seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

}  // namespace

TEST_CASE("votes: the candidate whose slowest rank is the fastest") {
  CHECK(voted({{3, 2, 1}}) == 2);
  CHECK(voted({{3, 2, 1}, {3, 2, 9}}) == 1);
  CHECK(voted({{3, 2, 1}, {3, kOut, kOut}}) == 0);
  CHECK(voted({{3, 2, 2}}) == 1);
  CHECK(voted({{kOut, kOut}}) == 0);
  CHECK(voted({{3, std::nan("")}, {3, 1}}) == 0);
  CHECK(voted({}) == 0);
}

TEST_CASE("votes: no order of ranks matters, and nothing that failed anywhere wins") {
  unsigned seed = 7;
  for (int i = 0; i < 3000; ++i) {
    const size_t world = 1 + next(&seed) % 5, candidates = 1 + next(&seed) % 6;
    Ballot::Votes votes(world, std::vector<double>(candidates));
    for (auto& vote : votes) {
      for (double& each : vote) each = next(&seed) % 8 == 0 ? kOut : 1 + next(&seed) % 5;
    }
    const size_t choice = voted(votes);
    REQUIRE(choice < candidates);
    double slowest = 0;
    for (const auto& vote : votes) slowest = std::max(slowest, vote[choice]);
    for (size_t other = 0; other < candidates; ++other) {
      double theirs = 0;
      for (const auto& vote : votes) theirs = std::max(theirs, vote[other]);
      CHECK(slowest <= theirs);
      if (other < choice) CHECK(slowest < theirs);
    }
    std::rotate(votes.begin(), votes.begin() + static_cast<long>(next(&seed) % world), votes.end());
    CHECK(voted(votes) == choice);
  }
}

TEST_CASE("race: the fastest that is right wins, if it saves more than noise") {
  RaceOptions options;
  options.rounds = 5;
  FakeRunner runner({{10}, {9}, {8}, {8.5}});
  const RaceResult result = race_alone(runner, 4, options);
  CHECK(result.winner == 2);
  CHECK(std::string(word(result.outcomes[2].kind)) == "won");
  CHECK(std::string(word(result.outcomes[0].kind)) == "slower");
  CHECK(result.outcomes[3].us == 8.5);
  // In turns, so that what warms up or slows down does so for all.
  CHECK(runner.log.find("t0 t1 t2 t3 t0") != std::string::npos);
  for (const int runs : runner.runs) CHECK(runs == 5);
}

TEST_CASE("race: two per cent, or what times vary by, is no gain") {
  const auto winner = [](double us, std::vector<double> usual = {}) {
    RaceOptions options;
    options.rounds = 8;
    FakeRunner runner({{100, "", "", std::move(usual)}, {us}});
    return race_alone(runner, 2, options).winner;
  };
  CHECK(winner(98.5) == 0);
  CHECK(winner(97.5) == 1);
  CHECK(winner(100) == 0);
  CHECK(winner(97.5, {90, 110, 90, 110}) == 0);
  CHECK(winner(85, {90, 110, 90, 110}) == 1);
}

TEST_CASE("race: nothing that failed wins, however fast") {
  FakeRunner runner(
      {{10}, {1, "it spills 8 bytes"}, {1, "", "out differs"}, {1, "", "", {}, 1}, {9}});
  RaceOptions options;
  options.rounds = 3;
  const RaceResult result = race_alone(runner, 5, options);
  CHECK(result.winner == 4);
  CHECK(result.outcomes[1].reason == "it spills 8 bytes");
  CHECK(result.outcomes[2].reason == "out differs");
  CHECK(result.outcomes[3].reason == "it failed late");
  for (const size_t i : {1, 2, 3}) {
    CHECK(result.outcomes[i].kind == Outcome::Kind::out);
    CHECK(result.outcomes[i].us == 0);
  }
  // What failed is left alone from there on.
  CHECK(runner.log.find("v1") == std::string::npos);
  CHECK(runner.log.find("t2") == std::string::npos);
  CHECK(runner.runs[3] == 2);
}

TEST_CASE("race: without the default there is no race") {
  for (int stage = 0; stage < 3; ++stage) {
    Script first;
    if (stage == 0) first.build = "no memory";
    if (stage == 1) first.verify = "no memory";
    if (stage == 2) first.fails_at = 0;
    FakeRunner runner({first, {1}});
    LoneBallot ballot;
    const auto result = race(runner, 2, {}, ballot);
    REQUIRE_FALSE(result.ok());
    CHECK(result.status().code() == Code::compile_failed);
    if (stage < 2) CHECK(result.status().text().find("no memory") != std::string::npos);
    CHECK((runner.log.find("v1") == std::string::npos) == (stage < 2));
  }
}

TEST_CASE("race: it can be ended between candidates") {
  for (size_t at = 1; at <= 12; ++at) {
    FakeRunner runner({{10}, {5}, {5}});
    RaceOptions options;
    options.rounds = 2;
    size_t calls = 0, total_seen = 0;
    options.cancelled = [&](const std::string&, size_t done, size_t total) {
      total_seen = total;
      CHECK(done == ++calls);
      return calls == at;
    };
    const RaceResult result = race_alone(runner, 3, options);
    CHECK(total_seen == 12);
    CHECK(result.cancelled);
    CHECK(result.winner == 0);
    CHECK(calls >= at);
  }
}

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
        Seat seat(meeting, rank);
        RaceOptions options;
        options.rounds = 2;
        options.cancelled = [&](const std::string& what, size_t, size_t) {
          return cancels && rank == 2 && what == "verifying";
        };
        all[rank].result = race(runners[rank], 2, options, seat);
        all[rank].exchanges = seat.exchanges;
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
