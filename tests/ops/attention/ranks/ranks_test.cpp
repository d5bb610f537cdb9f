// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over ranks equals one rank: every balance, rings and gathered keys, forward and
// backward, against float64 by the rule of one rank.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "tests/harness/check.h"
#include "tests/harness/tables.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

void equals_one_rank(const AttentionCase& c, const ref::Attention& inputs, const Ranks& ranks) {
  INFO(c.text() << " " << ranks.text());
  check_attention(c, inputs, run_attention_ranks(c, inputs, ranks).outputs);
}
void equals_one_rank(const AttentionCase& c, const Ranks& ranks) {
  equals_one_rank(c, make_inputs(c), ranks);
}

constexpr unsigned kRing = 0, kGather = LATHE_ALLGATHER;
constexpr lathe_balance kBalances[] = {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL,
                                       LATHE_BALANCE_PER_DOCUMENT, LATHE_BALANCE_PTRR};

AttentionCase both_ways(std::vector<int64_t> queries, std::vector<int64_t> keys, bool causal) {
  AttentionCase out{.head_dim = 32, .value_dim = 32};
  out.queries = std::move(queries), out.keys = std::move(keys);
  out.causal = causal;
  out.backward = true;
  return out;
}
AttentionCase packed(std::vector<int64_t> queries, std::vector<int64_t> keys, bool causal) {
  AttentionCase out = both_ways(std::move(queries), std::move(keys), causal);
  out.packed = true;
  return out;
}

TEST_CASE("ranks: every balance and world, rings and gathered keys") {
  for (const unsigned flags : {kRing, kGather}) {
    for (const auto balance : kBalances) {
      for (const int world : {2, 3, 4, 8}) {
        if (balance == LATHE_BALANCE_PTRR && world == 8) continue;  // fewer blocks than ranks
        equals_one_rank(both_ways({97}, {97}, true),
                        {.world = world, .balance = balance, .flags = flags, .block_size = 16});
      }
    }
  }
}

TEST_CASE("ranks: packed lengths, empty documents and documents of one token") {
  for (const unsigned flags : {kRing, kGather}) {
    for (const auto balance : kBalances) {
      AttentionCase c = packed({0, 7, 40, 0, 1, 61, 0}, {0, 7, 40, 0, 1, 61, 0}, true);
      c.group = 2;
      c.cu_dtype = balance == LATHE_BALANCE_NONE ? LATHE_I64 : LATHE_I32;
      equals_one_rank(c, {.world = 3, .balance = balance, .flags = flags, .block_size = 16});
    }
    // As many keys as they like: rows without keys, keys without rows.
    for (const auto balance : {LATHE_BALANCE_NONE, LATHE_BALANCE_PER_DOCUMENT}) {
      AttentionCase c = packed({5, 30, 0, 20}, {25, 9, 13, 40}, true);
      equals_one_rank(c, {.world = 4, .balance = balance, .flags = flags});
      c.causal = false;
      equals_one_rank(c, {.world = 2, .balance = balance, .flags = flags});
    }
  }
}

TEST_CASE("ranks: windows, of which rings stop early") {
  for (const unsigned flags : {kRing, kGather}) {
    for (const auto balance : {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL}) {
      AttentionCase c = both_ways({120}, {120}, true);
      c.left = 12;
      equals_one_rank(c, {.world = 4, .balance = balance, .flags = flags});
      c.causal = false;
      c.right = 9;
      equals_one_rank(c, {.world = 4, .balance = balance, .flags = flags});
      c.keys = {150};
      c.left = -1, c.right = 20;
      equals_one_rank(c, {.world = 3, .balance = balance, .flags = flags});
    }
  }
}

TEST_CASE("ranks: fewer tokens than ranks, none at all, rows without keys") {
  for (const unsigned flags : {kRing, kGather}) {
    for (const auto balance : {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL}) {
      const Ranks options = {.world = 4, .balance = balance, .flags = flags};
      equals_one_rank(both_ways({3}, {3}, true), options);
      equals_one_rank(both_ways({1}, {1}, false), options);
      equals_one_rank(both_ways({2}, {40}, true), options);
      equals_one_rank(both_ways({40}, {6}, true), options);
      equals_one_rank(both_ways({40}, {0}, false), options);
    }
  }
}

TEST_CASE("ranks: what scores and rows may have") {
  for (const unsigned flags : {kRing, kGather}) {
    AttentionCase c = both_ways({70, 70}, {90, 90}, true);
    c.kv_heads = 2, c.group = 2;
    c.sinks = true, c.dlse = true;
    c.slopes = Slopes::per_sequence;
    c.placement = {.token_gap = 8, .batch_gap = 16, .offset = 8, .guard = 16};
    equals_one_rank(c, {.world = 3, .balance = LATHE_BALANCE_HEAD_TAIL, .flags = flags});
    c.slopes = Slopes::none;
    c.softcap = 15;
    c.saved_forward = true;
    equals_one_rank(c, {.world = 3, .flags = flags | LATHE_REDUCE_PARAMETER_GRADS});
    c = packed({33, 50, 2}, {40, 50, 9}, false);
    c.dtype = LATHE_F16;
    c.value_dim = 64;
    c.slopes = Slopes::per_head;
    c.placement = {.token_gap = 8, .offset = 8, .guard = 16};
    c.seed = 2;
    equals_one_rank(c, {.world = 2, .balance = LATHE_BALANCE_PER_DOCUMENT, .flags = flags});
  }
}

TEST_CASE("ranks: some gradients only, and the forward alone") {
  for (const unsigned flags : {kRing, kGather}) {
    AttentionCase c = both_ways({60}, {60}, true);
    for (const char* gradients : {"dq", "dk", "dv"}) {
      c.gradients = gradients;
      equals_one_rank(c, {.world = 2, .flags = flags});
    }
    c.backward = false;
    equals_one_rank(c, {.world = 3, .flags = flags});
  }
}

TEST_CASE("ranks: float32") {
  AttentionCase c = both_ways({50, 50}, {66, 66}, true);
  c.dtype = LATHE_F32;
  c.sinks = true;
  c.group = 2;
  const ref::Attention inputs = make_inputs(c);
  const Outputs one = checked(c, inputs).outputs;
  for (const unsigned flags : {kRing, kGather}) {
    const Ranks ranks = {.world = 3, .balance = LATHE_BALANCE_HEAD_TAIL, .flags = flags};
    const Outputs many = run_attention_ranks(c, inputs, ranks).outputs;
    for (const auto& [name, values] : one) {
      const double scale = name == "out" || name == "lse" ? 2e-6 : 2e-5;
      check_near(many.at(name), values, scale, 1e-5, name);
    }
  }
}

TEST_CASE("ranks: gradients that travel in 16 bits lose what their roundings lose") {
  AttentionCase c = both_ways({90}, {90}, true);
  const ref::Attention inputs = make_inputs(c);
  for (const unsigned flags : {kRing, kGather}) {
    const Ranks wide = {.world = 3, .balance = LATHE_BALANCE_HEAD_TAIL, .flags = flags};
    Ranks narrow = wide;
    narrow.flags |= LATHE_NARROW_GRADIENTS;
    const Outputs a = run_attention_ranks(c, inputs, wide).outputs;
    const Outputs b = run_attention_ranks(c, inputs, narrow).outputs;
    for (const char* name : {"dk", "dv"}) {
      double most = 0;
      for (const double value : a.at(name)) most = std::max(most, std::abs(value));
      check_near(b.at(name), a.at(name), 3 * 0x1p-9 * most, 0x1p-7, name);
      CHECK(a.at(name) != b.at(name));
    }
    CHECK(a.at("out") == b.at("out"));
  }
}

TEST_CASE("ranks: multiprocessors left to the exchange change no bit") {
  AttentionCase c = both_ways({80}, {80}, true);
  c.group = 2;
  c.deterministic = true;
  const ref::Attention inputs = make_inputs(c);
  for (const unsigned flags : {kRing, kGather}) {
    const Ranks ranks = {.world = 2, .balance = LATHE_BALANCE_HEAD_TAIL, .flags = flags};
    const Outputs all = run_attention_ranks(c, inputs, ranks).outputs;
    c.options["sm_margin"] = "8";
    CHECK(run_attention_ranks(c, inputs, ranks).outputs == all);
    c.options.clear();
  }
}

TEST_CASE("ranks: mods see positions in their sequence, and which it is") {
  Ranks ranks = {.world = 3, .balance = LATHE_BALANCE_HEAD_TAIL};
  const Values capture = {0.25, -0.5, 0.125};
  std::map<std::string, std::string> texts;
  texts["score_mod"] =
      "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx,\n"
      "                           const Captures& captures) {\n"
      "  return score + captures.get<0>(batch) * ((q_idx + 2 * kv_idx) % 5 + head);\n}\n"
      "__device__ float score_mod_bwd(float dscore, float score, int batch, int head,\n"
      "                               int q_idx, int kv_idx) { return dscore; }\n";
  texts["mask_mod"] =
      "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
      "  return (q_idx + kv_idx + batch) % 3 != 0;\n}\n";
  for (const bool is_packed : {false, true}) {
    AttentionCase c =
        is_packed ? packed({30, 0, 41}, {30, 12, 45}, true) : both_ways({50, 50}, {60, 60}, false);
    c.group = 2;
    c.texts = texts, c.capture = capture;
    ref::Attention inputs = make_inputs(c);
    inputs.score_mod = [&](double x, int64_t b, int64_t h, int64_t i, int64_t j) {
      return x + capture[static_cast<size_t>(b)] * static_cast<double>((i + 2 * j) % 5 + h);
    };
    inputs.score_slope = [](double, int64_t, int64_t, int64_t, int64_t) { return 1.0; };
    inputs.mask_mod = [](int64_t b, int64_t, int64_t i, int64_t j) { return (i + j + b) % 3 != 0; };
    for (const unsigned flags : {kRing, kGather}) {
      ranks.flags = flags;
      equals_one_rank(c, inputs, ranks);
    }
  }
}

TEST_CASE("ranks: keys gathered a few heads at a time") {
  AttentionCase c = both_ways({50, 50}, {60, 60}, true);
  c.kv_heads = 3, c.group = 2;
  c.sinks = c.dlse = true;
  Ranks options = {.world = 3, .balance = LATHE_BALANCE_HEAD_TAIL, .flags = kGather};
  c.options["gather_heads"] = "2";
  equals_one_rank(c, options);
  c.sinks = false;
  c.slopes = Slopes::per_sequence;
  c.saved_forward = true;
  c.options["gather_heads"] = "1";
  options.flags |= LATHE_NARROW_GRADIENTS;
  c.gradients = "dq";
  equals_one_rank(c, options);
}

TEST_CASE("ranks: random tables of ranges, every way for keys to travel") {
  std::mt19937 random(5);
  const unsigned methods[] = {kRing, kGather, LATHE_DISPATCH, LATHE_EXCHANGE_HEADS};
  for (int i = 0; i < 40; ++i) {
    const auto below = [&random](int64_t bound) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
    };
    std::vector<int64_t> documents, offsets = {0};
    for (int64_t n = 1 + below(4); n > 0; --n) {
      documents.push_back(below(50));
      offsets.push_back(offsets.back() + documents.back());
    }
    Ranks ranks = {.world = static_cast<int>(2 + below(3)), .flags = methods[i % 4]};
    AttentionCase c = packed(documents, documents, i % 3 > 0 || i % 4 == 2);
    if (i % 4 == 3) c.kv_heads = ranks.world;
    c.group = 2, c.seed = static_cast<uint64_t>(i);
    ranks.ranges = random_table(random, ranks.world, 1 + below(30), offsets);
    equals_one_rank(c, ranks);
  }
}

// LATHE_TEST_DRAWS: how many.
TEST_CASE("ranks: random lengths, cuts and masks") {
  const char* wanted = std::getenv("LATHE_TEST_DRAWS");
  const int draws = wanted ? std::atoi(wanted) : 10;
  std::mt19937 random(17);
  const auto draw = [&](int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random);
  };
  for (int i = 0; i < draws; ++i) {
    const bool is_packed = draw(0, 1) == 1;
    std::vector<int64_t> queries(static_cast<size_t>(is_packed ? draw(1, 6) : draw(1, 2)));
    std::vector<int64_t> keys(queries.size());
    const bool same = draw(0, 2) > 0;
    for (size_t n = 0; n < queries.size(); ++n) {
      const bool fresh = is_packed || n == 0;
      queries[n] = !fresh ? queries[0] : draw(0, 3) == 0 ? draw(0, 3) : draw(0, 70);
      keys[n] = same ? queries[n] : !fresh ? keys[0] : draw(0, 90);
    }
    AttentionCase c = is_packed ? packed(queries, keys, draw(0, 2) > 0)
                                : both_ways(queries, keys, draw(0, 2) > 0);
    c.kv_heads = draw(1, 2), c.group = draw(1, 2);
    if (draw(0, 2) == 0) c.left = draw(0, 40);
    if (draw(0, 3) == 0) c.right = draw(0, 40);
    c.seed = static_cast<uint64_t>(i);
    const Ranks options = {.world = static_cast<int>(draw(2, 6)),
                           .balance = kBalances[draw(0, 3)],
                           .flags = draw(0, 1) ? kRing : kGather,
                           .block_size = draw(0, 1) ? 16 : 5};
    equals_one_rank(c, options);
  }
}

}  // namespace
