// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda over combinations of its options, forward and backward, against the
// recurrence in double and its gradients, under every checker.
//
// LATHE_TEST_SHARD=3/15 runs groups 3 and 18; without it the first of fifteen.
#include "tests/ops/kda/options.h"

#include <set>

using namespace apitest;

namespace {

TEST_CASE("kda: at least 300 combinations of options, with every width and ratio") {
  size_t cases = 0;
  std::set<int64_t> keys, values, ratios, chunks, segments;
  for (const auto& group : kda_options()) {
    for (const KdaCase& kda : group) {
      ++cases;
      keys.insert(kda.key_dim), values.insert(kda.value_dim), ratios.insert(kda.group);
      chunks.insert(kda.chunk), segments.insert(kda.segments);
    }
  }
  CHECK(cases >= 300);
  const std::set<int64_t> widths = {8, 12, 32, 60, 64, 100, 128, 256};
  CHECK(keys == widths);
  CHECK(values == widths);
  CHECK(ratios == std::set<int64_t>{1, 2, 4});
  CHECK(chunks == std::set<int64_t>{16, 32, 64});
  CHECK(segments == std::set<int64_t>{0, 1, 2, 3, 8});
}

TEST_CASE("kda: combinations of options against float64") {
  run_combinations(kda_options(), 15, [](const KdaCase& kda, size_t group, size_t cases) {
    check_kda(kda, make_kda_inputs(kda, 100 * group + cases));
    return std::vector<Kernel>();
  });
}

}  // namespace
