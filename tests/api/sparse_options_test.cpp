// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention over combinations of its options: the error is at most twice that of a
// plain computation of the same precision, under every checker.
//
// LATHE_TEST_SHARD=3/16 runs groups 3, 19, 35 ...; without it the first of sixteen.
#include "tests/api/sparse_options.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <set>

using namespace apitest;

namespace {

struct ShardOfTests {
  unsigned index = 0, count = 16;
};

ShardOfTests chosen_shard() {
  ShardOfTests shard;
  const char* text = std::getenv("LATHE_TEST_SHARD");
  if (text == nullptr) return shard;
  const int found = std::sscanf(text, "%u/%u", &shard.index, &shard.count);
  REQUIRE_MESSAGE((found == 2 && shard.index < shard.count), "LATHE_TEST_SHARD is ", text);
  return shard;
}

TEST_CASE("sparse attention: at least 300 combinations of options") {
  size_t cases = 0;
  for (const auto& group : sparse_options()) cases += group.size();
  CHECK(cases >= 300);
}

TEST_CASE("sparse attention: combinations of options against float64") {
  const ShardOfTests shard = chosen_shard();
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
