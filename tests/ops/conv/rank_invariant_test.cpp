// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d with LATHE_RANK_INVARIANT: every output and gradient has the bits of one rank, for
// any number of ranks, balance and table of ranges, and whatever else is in the pack.
#include "tests/harness/rank_invariant.h"

#include <doctest/doctest.h>

#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

ConvCase packed(std::vector<int64_t> cu_seqlens, int64_t width, lathe_dtype dtype) {
  ConvCase conv{.x = dtype, .weight = dtype, .channels = 40, .width = width};
  conv.tokens = cu_seqlens.back(), conv.cu_seqlens = std::move(cu_seqlens);
  conv.silu = conv.bias = conv.states = true;
  return conv;
}

Outputs over(const ConvCase& conv, const ref::Conv& inputs, Ranks ranks) {
  INFO(conv.text() << " " << ranks.text());
  const RanksAnswer answer = run_conv_ranks(conv, inputs, ranks);
  check_counts(answer, ranks.world, conv.backward ? 2 : 1);
  return answer.outputs;
}

void same_for_all(const ConvCase& conv, const std::vector<Ranks>& all, uint64_t seed) {
  const ref::Conv inputs = make_inputs(conv, seed);
  const Outputs one = over(conv, inputs, invariant({.world = 1}));
  // A gradient of x at the end of 64 tokens is rounded twice.
  check_conv(conv, one, reference(conv, inputs), 2);
  for (const Ranks& ranks : all) {
    INFO(conv.text() << " " << ranks.text());
    check_same_bits(over(conv, inputs, ranks), one);
  }
}

}  // namespace

TEST_CASE("rank-invariant conv: random tables, packed and rows of a batch, in every dtype") {
  std::mt19937 random(1);
  for (int i = 0; i < 12; ++i) {
    const lathe_dtype dtype = std::array{LATHE_F32, LATHE_F16, LATHE_BF16}[i % 3];
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 700);
    ConvCase conv = packed(random_offsets(random, tokens, 400), 2 + i % 7, dtype);
    if (i % 4 == 3) {
      conv.cu_seqlens.clear(), conv.batch = 2, conv.tokens = 200;
      conv.residual = true, conv.silu = false;
    }
    if (i % 5 == 4) conv.bias = false, conv.states = false;
    const auto cu =
        conv.cu_seqlens.empty() ? std::vector<int64_t>{0, conv.tokens} : conv.cu_seqlens;
    same_for_all(conv, random_invariant_ranks(random, cu), static_cast<uint64_t>(i));
  }
}

TEST_CASE("rank-invariant conv: every balance") {
  const ConvCase conv = packed({0, 512, 512, 1536}, 4, LATHE_BF16);
  same_for_all(conv, balanced_invariant_ranks(), 1);
}

TEST_CASE("rank-invariant conv: a neighbour in the pack changes nothing") {
  ConvCase one = packed({0, 70, 400}, 4, LATHE_BF16),
           other = packed({0, 333, 403, 733}, 4, LATHE_BF16);
  one.bias = other.bias = false;
  const ref::Conv inputs = make_inputs(other, 5);
  // Sequences 1 and 2 of the longer pack are sequences 0 and 1 of the other one.
  ref::Conv fewer = make_inputs(one, 6);
  const auto take = [](const ref::Array& from, int64_t first, int64_t each, ref::Array* to) {
    std::copy_n(from.begin() + first * each, to->size(), to->begin());
  };
  for (const auto member : {&ref::Conv::x, &ref::Conv::dy}) {
    take(inputs.*member, 333, one.channels, &(fewer.*member));
  }
  for (const auto member : {&ref::Conv::initial_state, &ref::Conv::dfinal_state}) {
    take(inputs.*member, 1, one.channels * one.width, &(fewer.*member));
  }
  fewer.weight = inputs.weight;
  const Outputs many = over(other, inputs, invariant({.world = 1}));
  Ranks two = invariant({.world = 2});
  two.ranges = {{{0, 64}, {134, 400}}, {{64, 134}}};
  const Outputs few = over(one, fewer, two);
  for (const auto& [name, values] : few) {
    if (name == "dweight") continue;  // a sum over all sequences
    const bool tokens = name == "y" || name == "dx";
    const int64_t first = tokens ? 333 * one.channels : one.channels * one.width;
    const auto from = many.at(name).begin() + first;
    CHECK_MESSAGE(std::equal(values.begin(), values.end(), from), name);
  }
}

TEST_CASE("rank-invariant conv: packs, tables and balances over 1, 2, 3, 4 and 8 ranks") {
  const testing::Shard shard = testing::chosen_shard(kInvariantPacks);
  for (size_t number = 0; number < kInvariantPacks; ++number) {
    if (!shard.has(number)) continue;
    const InvariantPack pack = invariant_pack(number);
    const lathe_dtype dtype = std::array{LATHE_F32, LATHE_F16, LATHE_BF16}[number % 3];
    const int64_t width = 2 + static_cast<int64_t>(number % 7);
    same_for_all(packed(pack.cu_seqlens, width, dtype), pack.ranks, number);
  }
}

TEST_CASE("rank-invariant conv: a sum by rank is found") {
  const ConvCase conv = packed({0, 300, 1000}, 4, LATHE_F32);
  const ref::Conv inputs = make_inputs(conv, 3);
  const RunOver run = [&](const Ranks& ranks) { return over(conv, inputs, ranks); };
  check_sum_by_rank_is_found(run, "dweight", conv.cu_seqlens);
}

TEST_CASE("rank-invariant conv: bounds elsewhere are refused, with the bound") {
  const ConvCase conv = packed({0, 100, 300}, 4, LATHE_F32);
  Ranks ranks = invariant({.world = 2});
  ranks.ranges = {{{0, 165}}, {{165, 300}}};
  CHECK_THROWS_WITH(over(conv, make_inputs(conv), ranks),
                    doctest::Contains("165 is 65 tokens into sequence 1; allowed with "
                                      "LATHE_RANK_INVARIANT are bounds at multiples of 64"));
}
