// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d over tables of ranges and balances equals one rank: y and states bit for bit, dx
// within one more rounding, in at most one group of messages each way.
#include <doctest/doctest.h>

#include "tests/harness/tables.h"
#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

void equals_one_rank(const ConvCase& conv, const Ranks& ranks, uint64_t seed = 1) {
  INFO(conv.text() << " " << ranks.text());
  const auto inputs = make_inputs(conv, seed);
  const auto one = run_conv(conv, inputs);
  const RanksAnswer many = run_conv_ranks(conv, inputs, ranks);
  std::vector<std::string> exact = {"y"};
  if (conv.states) exact.push_back("final_state");
  check_equal(many.outputs, one, exact);
  check_conv(conv, many.outputs, reference(conv, inputs), conv.backward ? 1 + ranks.world : 1);
  check_counts(many, ranks.world, conv.backward ? 2 : 1);
}

}  // namespace

TEST_CASE("pieces: random tables of ranges, packed") {
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) {
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 90);
    const auto cu = random_offsets(random, tokens, 1 + static_cast<int64_t>(random() % 60));
    ConvCase conv = packed_case(cu, 2 + i % 7, i % 3 != 0);
    if (i % 4 == 1) conv.x = conv.weight = LATHE_BF16;
    if (i % 5 == 2) conv.silu = false, conv.residual = true;
    Ranks ranks;
    ranks.world = 1 + static_cast<int>(random() % 5);
    ranks.ranges = random_table(random, ranks.world, 1 + static_cast<int64_t>(random() % 30), cu);
    if (i % 2 == 0) ranks.flags = LATHE_REDUCE_PARAMETER_GRADS;
    equals_one_rank(conv, ranks, static_cast<uint64_t>(i));
  }
}

TEST_CASE("pieces: random tables of ranges, rows of a batch in every dtype") {
  std::mt19937 random(2);
  for (int i = 0; i < 30; ++i) {
    const lathe_dtype dtype = std::array{LATHE_F32, LATHE_F16, LATHE_BF16}[i % 3];
    ConvCase conv{.x = dtype, .weight = dtype, .batch = 1 + i % 3, .channels = 24};
    conv.tokens = 1 + static_cast<int64_t>(random() % 150);
    conv.silu = conv.bias = conv.residual = true, conv.states = i % 2 == 0;
    Ranks ranks;
    ranks.world = 2 + static_cast<int>(random() % 3);
    ranks.ranges = random_table(random, ranks.world, 40, {0, conv.tokens});
    equals_one_rank(conv, ranks, static_cast<uint64_t>(i));
  }
}

TEST_CASE("pieces: every balance, with states and without") {
  for (const auto balance :
       {LATHE_BALANCE_HEAD_TAIL, LATHE_BALANCE_PER_DOCUMENT, LATHE_BALANCE_PTRR}) {
    for (int world = 1; world <= 4; ++world) {
      Ranks ranks;
      ranks.world = world, ranks.balance = balance;
      equals_one_rank(packed_case({0, 5, 5, 40, 41, 77}, 4, world % 2 == 0), ranks);
      ConvCase rows{.batch = 2, .tokens = 37};
      rows.bias = rows.states = true;
      equals_one_rank(rows, ranks);
    }
  }
}

TEST_CASE("pieces: graphs, tokens that nobody has, and forward alone") {
  ConvCase conv = packed_case({0, 5, 30}, 4, true);
  Ranks ranks;
  ranks.world = 2, ranks.graph = true;
  ranks.ranges = {{{0, 7}, {12, 14}, {20, 30}}, {{7, 12}, {14, 20}}};
  equals_one_rank(conv, ranks);
  conv.backward = false;
  equals_one_rank(conv, ranks);
  ranks = {.world = 3, .balance = LATHE_BALANCE_PER_DOCUMENT};
  equals_one_rank(packed_case({0, 0, 0}, 4, true), ranks);
}

TEST_CASE("pieces: rows of a batch that do not follow each other are refused") {
  ConvCase conv{.batch = 2, .tokens = 12};
  conv.placement.batch_gap = 8;
  Ranks ranks{.world = 2, .balance = LATHE_BALANCE_HEAD_TAIL};
  CHECK_THROWS_WITH(run_conv_ranks(conv, make_inputs(conv), ranks),
                    doctest::Contains("has a batch stride of"));
}
