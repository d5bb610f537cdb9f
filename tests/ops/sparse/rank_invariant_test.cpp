// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention with LATHE_RANK_INVARIANT: outputs and gradients have the bits of one
// rank, for any number of ranks, balance and table of ranges, and whatever else is in the pack.
#include "tests/harness/rank_invariant.h"

#include "tests/ops/sparse/ranks_case.h"

namespace {

using namespace apitest;

void same_for_all(const SparseCase& c, const std::vector<Ranks>& all) {
  const Call call = whole_call(c);
  const Outputs one = run_ranks(call, invariant({.world = 1})).outputs;
  check_equal(one, run(call).outputs);  // rows bit for bit, sums within their rounding
  for (const Ranks& ranks : all) {
    INFO(c.text() << " " << ranks.text());
    const RanksAnswer answer = run_ranks(call, ranks);
    check_same_bits(answer.outputs, one);
    int64_t groups = 0;  // and a collective, for the sum of sinks
    for (const HopCount& hop : answer.hops) groups += hop.collectives == 0 ? 1 : 0;
    CHECK(groups <= (ranks.world == 1 ? 0 : 2 * ranks.world));
  }
}

SparseCase whole(std::vector<int> lengths) {
  SparseCase c = packed(lengths, lengths);
  c.shape.causal = true;
  return c;
}

TEST_CASE("rank-invariant sparse attention: random tables, packed and batches") {
  std::mt19937 random(1);
  for (int i = 0; i < 4; ++i) {
    SparseCase c = whole({100, 0, 1, 150});
    if (i % 2 == 1) c.shape.rope_dim = 16;
    c.shape.sinks = i < 2;
    if (i == 2) c.shape.absolute = c.shape.values_in_keys = true;
    std::vector<int64_t> cu = {0, 100, 100, 101, 251};
    if (i == 3) {
      c = batch(2, 150, 150);
      c.shape.causal = true, cu = {0, 150};
    }
    same_for_all(c, random_invariant_ranks(random, cu));
  }
}

TEST_CASE("rank-invariant sparse attention: every balance, and a forward alone") {
  SparseCase c = whole({512, 0, 512});
  c.shape.kv_heads = 1, c.backward = false;
  same_for_all(c, balanced_invariant_ranks());
}

TEST_CASE("rank-invariant sparse attention: bounds elsewhere are refused") {
  SparseCase c = whole({100, 150});
  Ranks ranks = invariant({.world = 2});
  ranks.ranges = {{{0, 165}}, {{165, 250}}};
  CHECK_THROWS_WITH(run_ranks(whole_call(c), ranks),
                    doctest::Contains("165 is 65 tokens into sequence 1; allowed with "
                                      "LATHE_RANK_INVARIANT are bounds at multiples of 64"));
}

}  // namespace
