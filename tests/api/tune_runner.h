// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This runner of a race follows a script, without a device.
#pragma once

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "api/tune/tune_race.h"

namespace races {

using namespace lathe;

inline constexpr double kOut = std::numeric_limits<double>::infinity();

inline Status failed(const std::string& why) { return Status(Code::compile_failed, why); }

// A Script says what one candidate does.
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

inline unsigned next(unsigned* seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

}  // namespace races
