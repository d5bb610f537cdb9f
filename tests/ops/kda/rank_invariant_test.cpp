// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda with LATHE_RANK_INVARIANT: every output and gradient has the bits of one rank, for any number
// of ranks, balance and table of ranges, and whatever else is in the pack.
#include "tests/harness/rank_invariant.h"

#include <doctest/doctest.h>

#include "tests/ops/kda/case.h"

using namespace apitest;

namespace {

KdaCase packed(std::vector<int64_t> cu_seqlens) {
  KdaCase kda;
  kda.group = 2;
  kda.key_dim = 32, kda.value_dim = 32;
  kda.cu_seqlens = std::move(cu_seqlens), kda.tokens = kda.cu_seqlens.back();
  kda.gate = 1, kda.dt_bias = kda.l2norm = kda.sigmoid = true;
  kda.backward = kda.dht = true;
  return kda;
}

KdaCase rows(int64_t batch, int64_t tokens) {
  KdaCase kda;
  kda.element = kda.beta_dtype = LATHE_F32;
  kda.key_dim = 16, kda.value_dim = 24;
  kda.batch = batch, kda.tokens = tokens;
  kda.weakest = -0.1;
  kda.l2norm = kda.v_first = true;
  kda.backward = kda.dht = true;
  return kda;
}

// The gates forget little, so that a state reaches through several pieces.
KdaInputs lasting_inputs(const KdaCase& kda, uint64_t seed) {
  KdaInputs inputs = make_kda_inputs(kda, seed);
  for (double& g : inputs.kda.g) {
    if (kda.gate > 0) g = static_cast<float>(0.3 * g - 4);
  }
  return inputs;
}

Outputs over(const KdaCase& kda, const KdaInputs& inputs, const Ranks& ranks) {
  INFO(kda.text() << " " << ranks.text());
  std::vector<RanksAnswer> answers;
  Outputs out = run_kda_ranks(kda, inputs, ranks, &answers);
  for (const RanksAnswer& answer : answers) check_counts(answer, ranks.world, 1);
  return out;
}

void same_for_all(const KdaCase& kda, const std::vector<Ranks>& all, uint64_t seed) {
  const KdaInputs inputs = lasting_inputs(kda, seed);
  const Outputs one = over(kda, inputs, invariant({.world = 1}));
  check_kda(kda, inputs, one, 1.5);
  for (const Ranks& ranks : all) {
    INFO(kda.text() << " " << ranks.text());
    check_same_bits(over(kda, inputs, ranks), one);
  }
}

}  // namespace

TEST_CASE("rank-invariant kda: random tables, packed and rows of a batch") {
  std::mt19937 random(1);
  for (int i = 0; i < 8; ++i) {
    const int64_t tokens = 200 + static_cast<int64_t>(random() % 500);
    const auto cu = random_offsets(random, tokens, 600);
    KdaCase kda = i % 3 == 2 ? rows(2, 300) : packed(cu);
    if (i % 4 == 1) kda.dht = false, kda.states = KdaCase::none;
    if (i == 4) kda.backward = kda.dht = false;
    if (i == 6) kda.forward = false;
    const auto offsets = kda.packed() ? cu : std::vector<int64_t>{0, kda.tokens};
    same_for_all(kda, random_invariant_ranks(random, offsets), static_cast<uint64_t>(i));
  }
}

TEST_CASE("rank-invariant kda: every balance") {
  same_for_all(packed({0, 512, 512, 1024}), balanced_invariant_ranks(), 1);
}

TEST_CASE("rank-invariant kda: a neighbour in the pack changes nothing") {
  KdaCase few = packed({0, 70, 400}), many = packed({0, 333, 403, 733});
  few.dt_bias = many.dt_bias = false, few.gate = many.gate = 0;
  const KdaInputs inputs = lasting_inputs(many, 5);
  KdaInputs fewer = lasting_inputs(few, 6);
  const auto take = [](const ref::Array& from, int64_t first, int64_t rows, ref::Array* to) {
    const int64_t each = std::ssize(from) / rows;
    std::copy_n(from.begin() + first * each, to->size(), to->begin());
  };
  for (const auto member : kPerToken) {
    take(inputs.kda.*member, 333, 733, &(fewer.kda.*member));
  }
  for (const auto member : {&ref::Kda::initial_state, &ref::Kda::dht}) {
    take(inputs.kda.*member, 1, 3, &(fewer.kda.*member));
  }
  const Outputs of_many = over(many, inputs, invariant({.world = 1}));
  Ranks two = invariant({.world = 2});
  two.ranges = {{{0, 64}, {134, 400}}, {{64, 134}}};
  for (const auto& [name, values] : over(few, fewer, two)) {
    const bool state = name == "final_state" || name == "dinitial_state";
    const int64_t each = std::ssize(of_many.at(name)) / (state ? 3 : 733);
    const auto from = of_many.at(name).begin() + (state ? 1 : 333) * each;
    CHECK_MESSAGE(std::equal(values.begin(), values.end(), from), name);
  }
}

TEST_CASE("rank-invariant kda: packs, tables and balances over 1, 2, 3, 4 and 8 ranks") {
  const testing::Shard shard = testing::chosen_shard(kInvariantPacks);
  for (size_t number = 0; number < kInvariantPacks; ++number) {
    if (!shard.has(number)) continue;
    const InvariantPack pack = invariant_pack(number);
    same_for_all(packed(pack.cu_seqlens), pack.ranks, number);
  }
}

TEST_CASE("rank-invariant kda: a sum by rank is found") {
  const KdaCase kda = packed({0, 200, 500});
  const KdaInputs inputs = lasting_inputs(kda, 3);
  const RunOver run = [&](const Ranks& ranks) { return over(kda, inputs, ranks); };
  check_sum_by_rank_is_found(run, "ddt_bias", kda.cu_seqlens);
}

TEST_CASE("rank-invariant kda: bounds elsewhere are refused, with the bound") {
  const KdaCase kda = packed({0, 100, 300});
  Ranks ranks = invariant({.world = 2});
  ranks.ranges = {{{0, 165}}, {{165, 300}}};
  CHECK_THROWS_WITH(over(kda, lasting_inputs(kda, 1), ranks),
                    doctest::Contains("165 is 65 tokens into sequence 1; allowed with "
                                      "LATHE_RANK_INVARIANT are bounds at multiples of 64"));
}
