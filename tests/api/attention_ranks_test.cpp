// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over ranks equals one rank: every balance, rings and gathered keys, forward and
// backward, against float64 by the rule of one rank.
#include "tests/api/attention_ranks.h"

#include <doctest/doctest.h>

using namespace apitest;

namespace {

void equals_one_rank(const AttentionCase& attention, const RankOptions& options) {
  INFO(attention.text() << " " << options.text());
  const ref::Attention inputs = make_inputs(attention);
  check_attention(attention, inputs, run_attention_ranks(attention, inputs, options));
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
      const RankOptions options = {.world = 4, .balance = balance, .flags = flags};
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

}  // namespace
