// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Processes that start cold and at once compile each key once, through the C API and with the real
// compiler; and what becomes of the others when the one that compiles dies, or stops.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "tests/cache/crowd.h"
#include "tests/cache/support.h"

using namespace lathe::test;

namespace {

constexpr const char* kLight = "causal_conv1d_update";

lathe_status make(int number, lathe_problem** out) {
  return crowd::make_problem(kLight, number, out);
}

// Asked in a child: this process must stay without libraries and threads, since it forks.
bool no_compiler() {
  const TemporaryDirectory place;
  const int status =
      wait_for(in_child([&] { return crowd::one_process(place.path(), make, {0}).failed; }));
  if (status == 0) return false;
  MESSAGE("skipped: nothing can be compiled here");
  return true;
}

// The compiler runs in each process itself, so that its maps tell who opened it.
crowd::Outcome run(int processes, int keys, const std::string& cache) {
  const Environment here("LATHE_COMPILE_PROCESS", "off");
  return crowd::run(processes, cache, make, [keys](int index) {
    std::vector<int> numbers(keys);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::rotate(numbers.begin(), numbers.begin() + index % keys, numbers.end());
    return numbers;
  });
}

}  // namespace

TEST_CASE("64 processes and one key: one compile") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  const crowd::Outcome outcome = run(64, 1, place.path());
  CHECK(outcome.failed == 0);
  CHECK(outcome.compiled == 1);
  CHECK(outcome.hits == 63);
  // The others learn from the cache which compiler it is, and have no need of it.
  CHECK(outcome.opened >= 1);
  CHECK(outcome.opened <= 4);
  CHECK(count_files(place.path(), ".lathe") == 1);
  CHECK(count_files(place.path(), ".tmp.") == 0);
}

TEST_CASE("64 processes and 64 keys: 64 compiles") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  const crowd::Outcome outcome = run(64, 64, place.path());
  CHECK(outcome.failed == 0);
  CHECK(outcome.compiled == 64);
  CHECK(outcome.hits == 64 * 63);
  CHECK(count_files(place.path(), ".lathe") == 64);
  CHECK(count_files(place.path(), ".tmp.") == 0);
  const crowd::Outcome again = run(8, 64, place.path());
  CHECK(again.compiled == 0);
  CHECK(again.hits == 8 * 64);
}
