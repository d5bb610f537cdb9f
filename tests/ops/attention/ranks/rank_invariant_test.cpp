// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention with LATHE_RANK_INVARIANT: every output and gradient has the bits of one rank,
// for any number of ranks, balance and table of ranges, and whatever else is in the pack.
#include "tests/harness/rank_invariant.h"

#include "tests/ops/attention/ranks/calls.h"

using namespace apitest;

namespace {

CallShape packed(std::vector<int64_t> cu, int64_t heads, int64_t kv_heads) {
  CallShape s{.heads = heads, .kv_heads = kv_heads, .queries = cu.back(), .keys = cu.back()};
  s.cu_q = std::move(cu);
  s.sinks = true;
  return s;
}

Outputs over(const Call& call, const Ranks& ranks) {
  INFO(ranks.text());
  const RanksAnswer answer = run_ranks(call, ranks);
  std::vector<int64_t> groups(static_cast<size_t>(ranks.world));
  for (const HopCount& hop : answer.hops) groups[static_cast<size_t>(hop.rank)] += 1;
  CHECK(*std::ranges::max_element(groups) <= (ranks.world == 1 ? 0 : 2));
  return answer.outputs;
}

void same_for_all(const Call& call, const std::vector<Ranks>& all) {
  const Outputs one = over(call, invariant({.world = 1}));
  // Without ranks other tiles may add up in another order.
  const Outputs plain = run(call).outputs;
  for (const auto& [name, values] : plain) {
    double most = 0;
    for (const double value : values) most = std::max(most, std::abs(value));
    check_near(one.at(name), values, 0x1p-5 * std::max(most, 1e-3), 0, name);
  }
  for (const Ranks& ranks : all) {
    INFO(ranks.text());
    check_same_bits(over(call, ranks), one);
  }
}

}  // namespace

TEST_CASE("rank-invariant attention: random tables, groups of heads, windows, packed and batches") {
  std::mt19937 random(1);
  const std::pair<int64_t, int64_t> heads[] = {{4, 4}, {8, 2}, {4, 1}, {3, 3}, {6, 3}, {16, 1}};
  for (size_t i = 0; i < std::size(heads); ++i) {
    const int64_t tokens = 200 + static_cast<int64_t>(random() % 300);
    CallShape s = packed(random_offsets(random, tokens, 300), heads[i].first, heads[i].second);
    std::vector<int64_t> cu = s.cu_q;
    if (i % 3 == 2) s.cu_q.clear(), s.batch = 2, s.queries = s.keys = 200, cu = {0, 200};
    s.dlse = i % 2 == 0;
    Call call = make_call(s);
    if (i % 4 != 3) call.options["causal"] = "1";
    if (i == 1) call.options["window_left"] = "70";
    auto all = random_invariant_ranks(random, cu);
    if (i > 1) all.erase(all.begin() + 1, all.begin() + 3);
    same_for_all(call, all);
  }
}

TEST_CASE("rank-invariant attention: every balance") {
  CallShape s = packed({0, 512, 512, 1024}, 4, 2);
  s.width = s.value_width = 16;
  Call call = make_call(s);
  call.options["causal"] = "1";
  same_for_all(call, balanced_invariant_ranks());
}

TEST_CASE("rank-invariant attention: a neighbour in the pack changes nothing") {
  // Sequences 1 and 2 of the longer pack are sequences 0 and 1 of the other one.
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{4, 2}, {4, 1}}) {
    CallShape more = packed({0, 333, 403, 733}, heads, kv_heads);
    CallShape less = packed({0, 70, 400}, heads, kv_heads);
    more.sinks = less.sinks = false;
    Call many = make_call(more), few = make_call(less);
    const auto tokens_of = [](const std::vector<int64_t>& shape, int64_t tokens) {
      return std::ranges::find(shape, tokens) - shape.begin();
    };
    const auto share = [&](const std::string& name, const Values& whole) {
      Values out(Call::count(few.tensors.at(name).shape));
      each_piece(many.tensors.at(name).shape,
                 static_cast<int>(tokens_of(many.tensors.at(name).shape, 733)), {{333, 733}},
                 [&](int64_t from, int64_t to, int64_t count) {
                   std::copy_n(whole.begin() + from, count, out.begin() + to);
                 });
      return out;
    };
    for (const char* name : {"q", "k", "v", "dout"}) {
      few.tensors.at(name).values = share(name, many.tensors.at(name).values);
    }
    many.options["causal"] = few.options["causal"] = "1";
    Ranks two = invariant({.world = 2});
    two.ranges = {{{0, 64}, {134, 400}}, {{64, 134}}};
    const Outputs of_many = over(many, invariant({.world = 1}));
    Outputs shared;
    for (const auto& [name, values] : of_many) shared[name] = share(name, values);
    check_same_bits(over(few, two), shared);
  }
}

TEST_CASE("rank-invariant attention: forward, backward by itself, mods that know heads") {
  CallShape s = packed({0, 100, 300}, 4, 2);
  CallShape forward_only = s;
  forward_only.backward = false;
  Call forward = make_call(forward_only), backward = make_call(s), mods = make_call(s);
  std::mt19937 random(2);
  const auto all = random_invariant_ranks(random, s.cu_q);
  same_for_all(forward, all);
  const Answer one = run(forward);
  for (const char* name : {"out", "lse"}) {
    backward.tensors.at(name).values = one.outputs.at(name);
  }
  backward.options["saved_forward"] = "1";
  same_for_all(backward, all);
  mods.texts["score_mod"] =
      "__device__ float score_mod(float score, int b, int h, int q, int k) {\n"
      "  return score + 0.25f * h + 0.125f * b * (q - k); }\n"
      "__device__ float score_mod_bwd(float dscore, float, int, int h, int, int) {\n"
      "  return dscore; }\n";
  same_for_all(mods, {all[1], all[4]});
}

TEST_CASE("rank-invariant attention: packs, tables and balances over 1, 2, 3, 4 and 8 ranks") {
  const testing::Shard shard = testing::chosen_shard(kInvariantPacks);
  for (size_t number = 0; number < kInvariantPacks; ++number) {
    if (!shard.has(number)) continue;
    const InvariantPack pack = invariant_pack(number);
    const std::pair<int64_t, int64_t> heads[] = {{4, 4}, {8, 2}, {4, 1}, {6, 3}};
    const auto& [all, kv] = heads[number % 4];
    Call call = make_call(packed(pack.cu_seqlens, all, kv));
    if (number % 5 != 3) call.options["causal"] = "1";
    same_for_all(call, pack.ranks);
  }
}

TEST_CASE("rank-invariant attention: gradients of keys that are summed by rank are found") {
  // Gathered keys without the mode: their owner adds up the shares of the ranks.
  CallShape s = packed({0, 100, 300}, 4, 2);
  s.sinks = false, s.dtype = LATHE_F32;
  Call call = make_call(s);
  call.options["causal"] = "1";
  const auto gathered = [&](std::vector<Intervals> ranges) {
    Ranks ranks{.world = static_cast<int>(ranges.size()), .flags = LATHE_ALLGATHER};
    ranks.ranges = std::move(ranges);
    return run_ranks(call, ranks).outputs;
  };
  const Outputs two = gathered({{{0, 164}}, {{164, 300}}});
  const Outputs three = gathered({{{0, 164}}, {{164, 228}}, {{228, 300}}});
  CHECK(bits_that_differ(two.at("dk"), three.at("dk")) > 0);
  CHECK(bits_that_differ(two.at("dv"), three.at("dv")) > 0);
}

TEST_CASE("rank-invariant attention: bounds elsewhere and other ways are refused") {
  const Call call = make_call(packed({0, 100, 300}, 4, 2));
  Ranks ranks = invariant({.world = 2});
  ranks.ranges = {{{0, 165}}, {{165, 300}}};
  CHECK_THROWS_WITH(over(call, ranks),
                    doctest::Contains("165 is 65 tokens into sequence 1; allowed with "
                                      "LATHE_RANK_INVARIANT are bounds at multiples of 64"));
  ranks.flags |= LATHE_ALLGATHER;
  CHECK_THROWS_WITH(over(call, ranks), doctest::Contains("group flags are 35; with "
                                                         "LATHE_RANK_INVARIANT (32)"));
  ranks = invariant({.world = 2});
  Call two_levels = call;
  two_levels.options["head_ranks"] = "2";
  CHECK_THROWS_WITH(over(two_levels, ranks), doctest::Contains("option head_ranks is 2; allowed"));
}
