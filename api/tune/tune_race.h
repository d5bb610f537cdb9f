// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// All ranks together decide which of several candidates is the fastest that is right. The race
// knows neither devices nor kernels: TuneRunner does things with candidates, and ranks tell each
// other things through Ballot.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/base/status.h"

namespace lathe {

// Does on this rank what can be done with candidates. Candidate 0 is the heuristic's.
class TuneRunner {
 public:
  virtual ~TuneRunner() = default;
  // Compiles it and looks at what it needs; a failure is why it is out.
  virtual Status build(size_t candidate) = 0;
  // Runs it once and compares what it wrote with what candidate 0 wrote, which comes first.
  virtual Status verify(size_t candidate) = 0;
  // Returns microseconds of one run.
  virtual Result<double> time(size_t candidate) = 0;
};

using Votes = std::vector<std::vector<double>>;  // [rank][thing]
// Every rank gives a number for each of the same things, and gets all ranks' numbers.
using Ballot = std::function<Result<Votes>(const std::vector<double>& mine)>;

// Returns the candidate whose slowest rank is the fastest, the first of several; 0 if each failed
// somewhere. votes[rank][candidate] is infinite where it failed.
size_t voted(const Votes& votes);

struct RaceOptions {
  int rounds = 1;           // runs of each candidate, in turns
  double margin = 0.02;     // of the heuristic's time, that the winner must save
  bool timed_once = false;  // times do not vary: one round
  // Between candidates: `done` of `total` steps; true ends the race. May be empty.
  std::function<bool(const std::string& what, size_t done, size_t total)> cancelled;
};

struct Outcome {
  enum class Kind { won, fallback, slower, out };  // fallback: the heuristic's, and nothing won
  Kind kind = Kind::out;
  std::string reason;         // why it is out
  double us = 0, spread = 0;  // median, and (third quartile - first) / median, on this rank
};
const char* word(Outcome::Kind kind);

struct RaceResult {
  size_t winner = 0;
  bool cancelled = false;
  std::vector<Outcome> outcomes;
};
// Returns the winner; exchanges the same number of times on every rank, whatever fails on which.
// Not ok if candidate 0 fails on any rank, or an exchange does.
Result<RaceResult> race(TuneRunner& runner, size_t candidates, const RaceOptions& options,
                        const Ballot& ballot);

}  // namespace lathe
