// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs the race: build all, verify all, time them in turns, vote.
#include "api/tune/tune_race.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr double kOut = std::numeric_limits<double>::infinity();

// Returns a quantile of sorted samples: `share` is 0.25 for a quarter and so on.
double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Returns the time of the slowest rank. A time that is no number was not measured.
double slowest_of(const Votes& votes, size_t candidate) {
  double slowest = 0;
  for (const std::vector<double>& vote : votes) {
    slowest = std::max(slowest, std::isnan(vote[candidate]) ? kOut : vote[candidate]);
  }
  return slowest;
}

class Race {
 public:
  Race(TuneRunner& runner, size_t candidates, const RaceOptions& options, const Ballot& ballot)
      : runner_(runner), options_(options), ballot_(ballot) {
    result_.outcomes.resize(candidates);
    samples_.resize(candidates);
    out_.resize(candidates, false);
    rounds_ = options.timed_once ? 1 : std::max(options.rounds, 1);
    total_ = candidates * static_cast<size_t>(2 + rounds_);
  }

  Result<RaceResult> go() {
    const auto build = [&](size_t i) { return runner_.build(i); };
    const auto verify = [&](size_t i) { return runner_.verify(i); };
    const auto time = [&](size_t i) -> Status {
      LATHE_ASSIGN(const double us, runner_.time(i));
      samples_[i].push_back(us);
      return {};
    };
    LATHE_TRY(stage("building", build));
    if (!result_.cancelled) LATHE_TRY(stage("verifying", verify));
    for (int round = 0; round < rounds_ && !result_.cancelled; ++round) {
      LATHE_TRY(stage("timing", time));
    }
    if (!result_.cancelled) LATHE_TRY(decide());
    return std::move(result_);
  }

 private:
  // One thing for each candidate that is left; then all ranks agree on who is.
  template <typename Each>
  Status stage(const char* what, Each each) {
    std::vector<double> mine;
    bool stop = false;
    for (size_t i = 0; i < out_.size(); ++i) {
      ++done_;
      stop = stop || (options_.cancelled && options_.cancelled(what, done_, total_));
      if (!out_[i] && !stop) {
        if (const Status status = each(i); !status.ok()) {
          drop(i, status.text());
          if (i == 0) code_ = status.code();
        }
      }
      mine.push_back(out_[i] ? kOut : 0);
      // Without the default's outputs there is nothing to compare with.
      if (i == 0 && out_[0]) stop = true;
    }
    mine.push_back(stop && !out_[0] ? kOut : 0);
    LATHE_ASSIGN(const Votes votes, ballot_(mine));
    return take(votes);
  }

  void drop(size_t i, const std::string& why) {
    out_[i] = true;
    if (result_.outcomes[i].reason.empty()) result_.outcomes[i].reason = why;
  }

  Status take(const Votes& votes) {
    for (size_t rank = 0; rank < votes.size(); ++rank) {
      for (size_t i = 0; i < out_.size(); ++i) {
        if (votes[rank][i] == kOut) drop(i, text("it failed on rank ", rank));
      }
      if (votes[rank][out_.size()] == kOut) result_.cancelled = true;
    }
    if (!out_[0]) return {};
    return Status(code_, text("the heuristic's own choice failed, so there is nothing to "
                              "compare with: ",
                              result_.outcomes[0].reason));
  }

  // The times, and in the last place how much they vary: what may be chance on one rank is no
  // reason on any.
  Status decide() {
    std::vector<double> mine;
    double noise = options_.margin;
    for (size_t i = 0; i < out_.size(); ++i) {
      Outcome& outcome = result_.outcomes[i];
      if (!out_[i]) {
        std::vector<double>& samples = samples_[i];
        std::sort(samples.begin(), samples.end());
        outcome.us = quantile(samples, 0.5);
        if (outcome.us > 0) {
          outcome.spread = (quantile(samples, 0.75) - quantile(samples, 0.25)) / outcome.us;
        }
      }
      mine.push_back(out_[i] ? kOut : outcome.us);
    }
    mine.push_back(std::max(noise, result_.outcomes[0].spread / 2));
    LATHE_ASSIGN(Votes votes, ballot_(mine));
    for (std::vector<double>& vote : votes) {
      noise = std::max(noise, vote.back());
      vote.pop_back();
    }
    const size_t best = voted(votes);
    const bool saves = slowest_of(votes, best) < slowest_of(votes, 0) * (1 - noise);
    result_.winner = saves ? best : 0;
    for (size_t i = 0; i < out_.size(); ++i) {
      result_.outcomes[i].kind = out_[i]                         ? Outcome::Kind::out
                                 : i == result_.winner && i > 0  ? Outcome::Kind::won
                                 : i == 0 && result_.winner == 0 ? Outcome::Kind::fallback
                                                                 : Outcome::Kind::slower;
    }
    return {};
  }

  TuneRunner& runner_;
  const RaceOptions& options_;
  const Ballot& ballot_;
  RaceResult result_;
  std::vector<std::vector<double>> samples_;
  std::vector<bool> out_;
  Code code_ = Code::internal;  // of the default's failure; elsewhere: another rank's
  int rounds_ = 1;
  size_t done_ = 0, total_ = 0;
};

}  // namespace

const char* word(Outcome::Kind kind) {
  constexpr const char* kWords[] = {"won", "default", "slower", "out"};
  return kWords[static_cast<int>(kind)];
}

size_t voted(const Votes& votes) {
  size_t best = 0;
  for (size_t i = 1; !votes.empty() && i < votes[0].size(); ++i) {
    if (slowest_of(votes, i) < slowest_of(votes, best)) best = i;
  }
  return best;
}

Result<RaceResult> race(TuneRunner& runner, size_t candidates, const RaceOptions& options,
                        const Ballot& ballot) {
  return Race(runner, candidates, options, ballot).go();
}

}  // namespace lathe
