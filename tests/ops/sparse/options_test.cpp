// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention over combinations of its options: the error is at most twice that of a
// plain computation of the same precision, under every checker.
//
// LATHE_TEST_SHARD=3/16 runs groups 3, 19, 35 ...; without it the first of sixteen.
#include "tests/ops/sparse/options.h"

#include <doctest/doctest.h>

#include <set>

#include "tests/shard.h"

using namespace apitest;

namespace {

TEST_CASE("sparse attention: at least 300 combinations of options") {
  size_t cases = 0;
  for (const auto& group : sparse_options()) cases += group.size();
  CHECK(cases >= 300);
}

TEST_CASE("sparse attention: combinations of options against float64") {
  const testing::Shard shard = testing::chosen_shard(16);
  const auto groups = sparse_options();
  size_t cases = 0;
  std::set<std::string> kernels;
  for (size_t g = shard.index; g < groups.size(); g += shard.count) {
    for (const SparseCase& sparse : groups[g]) {
      INFO(sparse.text());
      ++cases;
      try {
        const Answer answer = checked(sparse, make_sparse(sparse));
        for (const Kernel& kernel : answer.kernels) kernels.insert(kernel.spec);
      } catch (const std::exception& error) {
        FAIL_CHECK(error.what());
      }
    }
  }
  MESSAGE("part ", shard.index, " of ", shard.count, ": ", cases, " combinations in ",
          kernels.size(), " kernels");
}

}  // namespace
