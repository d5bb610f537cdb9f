// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over ranks by exchanged heads equals one rank: bit for bit per head, whatever the
// balance, the mask, the batch and the layout of heads.
#include "tests/ops/attention/ranks/calls.h"

using namespace apitest;

namespace {

Ranks ranks_of(int world, lathe_balance balance) {
  return {.world = world,
          .balance = balance,
          .flags = LATHE_EXCHANGE_HEADS | LATHE_REDUCE_PARAMETER_GRADS};
}

// `exact`: of gradients of keys too, which are rounded more often where ranks share a key head.
RanksAnswer equals_one_rank(const Call& call, const Ranks& ranks, bool exact = true) {
  INFO(ranks.text());
  Outputs one = run(call).outputs;
  RanksAnswer many = run_ranks(call, ranks);
  if (!exact) {
    for (const char* name : {"dk", "dv"}) {
      check_near(many.outputs.at(name), one.at(name), 0x1p-5, 0, name);
      many.outputs.erase(name), one.erase(name);
    }
  }
  check_same(many.outputs, one);
  return many;
}

}  // namespace

TEST_CASE("heads: worlds and balances, batches and packed sequences") {
  for (const int world : {2, 4}) {
    CallShape s{.heads = 4, .kv_heads = 4, .batch = 2, .queries = 37, .keys = 37};
    s.dlse = s.sinks = true;
    Call call = make_call(s);
    call.options["causal"] = "1";
    equals_one_rank(call, ranks_of(world, LATHE_BALANCE_HEAD_TAIL));
    CallShape p{.queries = 50, .keys = 50, .cu_q = {0, 7, 7, 30, 50}};
    p.sinks = true;
    Call packed = make_call(p);
    packed.options["window_left"] = "9";
    equals_one_rank(packed, ranks_of(world, LATHE_BALANCE_NONE));
    equals_one_rank(packed, ranks_of(world, LATHE_BALANCE_PER_DOCUMENT));
  }
}

TEST_CASE("heads: keys of other lengths, ragged and empty parts, rows with gaps, again and again") {
  CallShape s{.heads = 6,
              .kv_heads = 3,
              .queries = 20,
              .keys = 31,
              .cu_q = {0, 5, 20},
              .cu_k = {0, 21, 31}};
  Ranks ranks = ranks_of(3, LATHE_BALANCE_NONE);
  ranks.runs = 3;
  Call call = make_call(s);
  call.place({.token_gap = 8, .guard = 32});
  equals_one_rank(call, ranks);
  CallShape few{.heads = 4, .queries = 2, .keys = 2};
  equals_one_rank(make_call(few), ranks_of(4, LATHE_BALANCE_NONE));
}

TEST_CASE("heads: key heads that several ranks need") {
  CallShape s{.heads = 8, .kv_heads = 2, .batch = 2, .queries = 24, .keys = 24};
  Call call = make_call(s);
  call.options["causal"] = "1";
  equals_one_rank(call, ranks_of(4, LATHE_BALANCE_HEAD_TAIL), false);
  CallShape one{.heads = 4, .kv_heads = 1, .queries = 24, .keys = 24, .cu_q = {0, 24}};
  equals_one_rank(make_call(one), ranks_of(4, LATHE_BALANCE_NONE), false);
}

TEST_CASE("heads: so many runs that messages are packed") {
  CallShape s{.heads = 2, .kv_heads = 2, .cu_q = {0}};
  for (int i = 1; i <= 40; ++i) s.cu_q.push_back(s.cu_q.back() + 5 + i % 3);
  s.queries = s.keys = s.cu_q.back();
  s.dlse = true;
  equals_one_rank(make_call(s), ranks_of(2, LATHE_BALANCE_PER_DOCUMENT));
}

TEST_CASE("heads: a backward of its own, and slopes of sequences") {
  CallShape s{.heads = 4, .kv_heads = 4, .batch = 2, .queries = 24, .keys = 24};
  s.sinks = true;
  CallShape forward_only = s;
  forward_only.backward = false;
  Call forward = make_call(forward_only), backward = make_call(s);
  for (Call* call : {&forward, &backward}) {
    call->draw("alibi_slopes", LATHE_F32, {2, 4}, 9);
    call->options["causal"] = "1";
  }
  const Ranks ranks = ranks_of(2, LATHE_BALANCE_HEAD_TAIL);
  const Answer one = run(forward);
  check_same(run_ranks(forward, ranks).outputs, one.outputs);
  for (const char* name : {"out", "lse"}) {
    backward.tensors.at(name).values = one.outputs.at(name);
  }
  backward.options["saved_forward"] = "1";
  equals_one_rank(backward, ranks);
}

TEST_CASE("heads: mods are told of all heads, not of those that are here") {
  CallShape s{.heads = 4, .kv_heads = 2, .batch = 2, .queries = 40, .keys = 40};
  Call call = make_call(s);
  call.texts["score_mod"] =
      "__device__ float score_mod(float score, int b, int h, int q, int k) {\n"
      "  return score + 0.25f * h + 0.125f * b * (q - k); }\n"
      "__device__ float score_mod_bwd(float dscore, float, int, int h, int, int) {\n"
      "  return dscore; }\n";
  call.texts["mask_mod"] =
      "__device__ bool mask_mod(int b, int h, int q, int k, const Captures& captures) {\n"
      "  return (q + k) % (h + 2) != 0 || captures.get<0>(h) == b; }\n";
  call.put("capture_0", LATHE_I32, {4}, {0, 1, 1, 0});
  equals_one_rank(call, ranks_of(2, LATHE_BALANCE_HEAD_TAIL));
}

TEST_CASE("heads: one group there, one back, and no byte of the own share") {
  CallShape s{.heads = 4, .kv_heads = 4, .batch = 2, .queries = 40, .keys = 40};
  const auto hops = equals_one_rank(make_call(s), ranks_of(4, LATHE_BALANCE_HEAD_TAIL)).hops;
  REQUIRE(hops.size() == 2 * 4);
  const int64_t rows = 2 * 10 * 3;  // of the batch, of a rank, heads of others
  const int64_t there = rows * (2 * 16 + 2 * 24) * 2, back = rows * ((2 * 16 + 2 * 24) * 2 + 4);
  int64_t all = 0;
  for (const HopCount& hop : hops) {
    CHECK((hop.sent == there || hop.sent == back));
    CHECK(hop.sent == hop.received);
    CHECK(hop.collectives == 0);
    all += hop.sent;
  }
  CHECK(all == 4 * (there + back));
}

TEST_CASE("heads: two levels, heads within a ring") {
  for (const lathe_balance balance : {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL}) {
    CallShape s{.heads = 2, .kv_heads = 2, .batch = 2, .queries = 45, .keys = 45};
    s.sinks = s.dlse = true;
    Call call = make_call(s);
    call.options["causal"] = "1";
    call.options["head_ranks"] = "2";
    CAPTURE(static_cast<int>(balance));
    const Answer one = run(call);
    const RanksAnswer many = run_ranks(call, ranks_of(4, balance));
    for (const auto& [name, values] : one.outputs) {
      check_near(many.outputs.at(name), values, name == "lse" ? 1e-5 : 0x1p-5, 0, name);
    }
  }
  CallShape p{.heads = 6, .kv_heads = 3, .cu_q = {0, 11, 50}};
  p.queries = p.keys = 50;
  Call call = make_call(p);
  call.options["head_ranks"] = "3";
  const Answer one = run(call);
  const RanksAnswer many = run_ranks(call, ranks_of(6, LATHE_BALANCE_PER_DOCUMENT));
  for (const auto& [name, values] : one.outputs) {
    check_near(many.outputs.at(name), values, name == "lse" ? 1e-5 : 0x1p-5, 0, name);
  }
}

TEST_CASE("heads: a method of attention is none of a chain's") {
  char id[LATHE_UNIQUE_ID_BYTES];
  API(lathe_unique_id(shared_context(), id));
  lathe_group* group = nullptr;
  API(lathe_group_create(&group, shared_context(), id, 1, 0, 0));
  const Group owner(group);
  for (const char* op : {"kda", "causal_conv1d"}) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, op));
    const Problem problem_owner(problem);
    CHECK(lathe_problem_group(problem, group, LATHE_EXCHANGE_HEADS) == LATHE_UNSUPPORTED);
    CHECK(std::string(lathe_last_error()).find(op) != std::string::npos);
  }
}

TEST_CASE("heads: what does not divide is refused with H, HK and W") {
  const auto refused = [](int64_t heads, int64_t kv_heads, int world) {
    CallShape s{.heads = heads, .kv_heads = kv_heads, .queries = 8, .keys = 8};
    s.backward = false;
    std::string message;
    try {
      run_ranks(make_call(s), ranks_of(world, LATHE_BALANCE_NONE));
    } catch (const std::exception& error) {
      message = error.what();
    }
    return message;
  };
  CHECK(refused(6, 6, 4).find("H = 6 and k has HK = 6, the group has 4 ranks") !=
        std::string::npos);
  CHECK(refused(12, 6, 4).find("H = 12 and k has HK = 6") != std::string::npos);
}
