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

TEST_CASE("rank-invariant sparse attention: a neighbour in the pack changes nothing") {
  // Sequences 1 and 2 of the longer pack are sequences 0 and 1 of the other one.
  SparseCase more = whole({333, 70, 330}), less = whole({70, 330});
  more.shape.sinks = less.shape.sinks = false;
  const Call many = whole_call(more);
  Call few = whole_call(less);
  const auto share = [&](const std::string& name, const Values& all) {
    const std::vector<int64_t>& shape = many.tensors.at(name).shape;
    const auto axis = static_cast<int>(std::ranges::find(shape, 733) - shape.begin());
    Values out(Call::count(few.tensors.at(name).shape));
    each_piece(shape, axis, {{333, 733}}, [&](int64_t from, int64_t to, int64_t count) {
      std::copy_n(all.begin() + from, count, out.begin() + to);
    });
    return out;
  };
  for (auto& [name, tensor] : few.tensors) {
    const bool tokens = std::ranges::find(tensor.shape, 400) != tensor.shape.end();
    if (tokens && !tensor.values.empty()) tensor.values = share(name, many.tensors.at(name).values);
  }
  Ranks two = invariant({.world = 2});
  two.ranges = {{{0, 64}, {134, 400}}, {{64, 134}}};
  Outputs shared = run_ranks(many, invariant({.world = 1})).outputs;
  for (auto& [name, values] : shared) values = share(name, values);
  check_same_bits(run_ranks(few, two).outputs, shared);
}

TEST_CASE(
    "rank-invariant sparse attention: packs, tables and balances over 1, 2, 3, 4 and 8 ranks") {
  const testing::Shard shard = testing::chosen_shard(kInvariantPacks);
  for (size_t number = 0; number < kInvariantPacks; ++number) {
    if (!shard.has(number)) continue;
    const InvariantPack pack = invariant_pack(number);
    std::vector<int> lengths;
    for (size_t n = 0; n + 1 < pack.cu_seqlens.size(); ++n) {
      lengths.push_back(static_cast<int>(pack.cu_seqlens[n + 1] - pack.cu_seqlens[n]));
    }
    SparseCase c = whole(lengths);
    c.shape.topk = 20, c.shape.sinks = number % 2 == 0;
    same_for_all(c, pack.ranks);
  }
}

TEST_CASE("rank-invariant sparse attention: a sum by rank is found") {
  SparseCase c = whole({100, 0, 150});
  c.shape.sinks = true, c.shape.group = 32;  // 64 sums
  const Call call = whole_call(c);
  const RunOver run = [&](const Ranks& ranks) { return run_ranks(call, ranks).outputs; };
  check_sum_by_rank_is_found(run, "dsinks", {0, 100, 100, 250});
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
