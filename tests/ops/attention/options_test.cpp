// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over combinations of its options: the error is at most twice that of a plain
// computation of the same precision, forward and backward, under every checker.
//
// LATHE_TEST_SHARD=3/8 runs groups 3, 11, 19 ...; without it the first of eight.
#include "tests/ops/attention/options.h"

#include <doctest/doctest.h>

#include <set>

#include "tests/shard.h"

using namespace apitest;

namespace {

TEST_CASE("attention: at least 300 combinations of options") {
  size_t cases = 0;
  for (const auto& group : attention_options()) cases += group.size();
  CHECK(cases >= 300);
}

TEST_CASE("attention: combinations of options against float64") {
  const testing::Shard shard = testing::chosen_shard(8);
  const auto groups = attention_options();
  size_t cases = 0;
  std::set<std::string> kernels;
  for (size_t g = shard.index; g < groups.size(); g += shard.count) {
    for (const AttentionCase& attention : groups[g]) {
      INFO(attention.text());
      ++cases;
      try {
        for (const Kernel& kernel : checked(attention).kernels) kernels.insert(kernel.spec);
      } catch (const std::exception& error) {
        FAIL_CHECK(error.what());
      }
    }
  }
  MESSAGE("part ", shard.index, " of ", shard.count, ": ", cases, " combinations in ",
          kernels.size(), " kernels");
}

}  // namespace
