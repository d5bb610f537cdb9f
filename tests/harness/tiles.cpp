// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds tiles that a test names, in place of the rules' and of what was tuned, for
// programs that link the library's own parts, as lathe.h has no function for it.
#include <algorithm>

#include "ops/problem.h"
#include "tests/harness/call.h"

namespace {

class NamedTiles : public lathe::Choices {
 public:
  explicit NamedTiles(std::map<std::string, std::string> tiles) : tiles_(std::move(tiles)) {}
  size_t choose(const lathe::TuningKey& question) const override {
    const auto named = tiles_.find(question.kernel);
    if (named == tiles_.end()) return 0;
    const auto& all = question.candidates;
    return static_cast<size_t>(std::find(all.begin(), all.end(), named->second) - all.begin());
  }

 private:
  const std::map<std::string, std::string> tiles_;
};

const bool kChosen = [] {
  apitest::choose_tiles = [](lathe_problem* problem,
                             const std::map<std::string, std::string>& tiles) {
    problem->choices = std::make_shared<NamedTiles>(tiles);
  };
  return true;
}();

}  // namespace
