// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention over combinations of its options: the error is at most twice that of a
// plain computation of the same precision, under every checker.
//
// LATHE_TEST_SHARD=3/16 runs groups 3, 19, 35 ...; without it the first of sixteen.
#include "tests/api/sparse_options.h"

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
  const Context context = make_context();
  const auto groups = sparse_options();
  size_t cases = 0;
  std::set<std::string> kernels;
  for (size_t g = shard.index; g < groups.size(); g += shard.count) {
    for (const SparseCase& sparse : groups[g]) {
      INFO(sparse.text());
      ++cases;
      const ref::SparseAttention inputs = make_sparse(sparse);
      try {
        const SparseAnswer answer = run_sparse(context.get(), sparse, inputs);
        kernels.insert(answer.kernels.begin(), answer.kernels.end());
        check_sparse(sparse, inputs, answer.outputs);
      } catch (const std::exception& error) {
        FAIL_CHECK(error.what());
      }
    }
  }
  MESSAGE("part ", shard.index, " of ", shard.count, ": ", cases, " combinations in ",
          kernels.size(), " kernels");
}

}  // namespace
