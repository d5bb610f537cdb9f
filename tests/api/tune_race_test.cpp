// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the race between candidates without a device: who can win, and what ranks agree
// on.
#include "api/tune/tune_race.h"

#include <algorithm>
#include <cmath>

#include "tests/api/tune_runner.h"

using namespace lathe;
using namespace races;

namespace {

Result<Votes> alone(const std::vector<double>& mine) { return Votes{mine}; }

RaceResult race_alone(FakeRunner& runner, size_t candidates, const RaceOptions& options = {}) {
  auto result = race(runner, candidates, options, alone);
  REQUIRE_MESSAGE(result.ok(), result.status().text());
  return *result;
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
    Votes votes(world, std::vector<double>(candidates));
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
  // A candidate that failed does not run again.
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
    const auto result = race(runner, 2, {}, alone);
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
