// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention on several ranks equals one rank, however rows and keys are dealt out.
#include "tests/harness/tables.h"
#include "tests/ops/sparse/ranks_case.h"

namespace {

using namespace apitest;

constexpr lathe_balance kBalances[] = {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL,
                                       LATHE_BALANCE_PER_DOCUMENT, LATHE_BALANCE_PTRR};

void equals_one_rank(const SparseCase& c, const std::vector<Ranks>& all) {
  const Call call = whole_call(c);
  const Answer one = run(call);
  for (const Ranks& ranks : all) {
    INFO(c.text() << " " << ranks.text());
    check_equal(run_ranks(call, ranks).outputs, one.outputs);
  }
}

void equals_one_rank(const SparseCase& c, std::initializer_list<int> worlds) {
  std::vector<Ranks> all;
  for (const int world : worlds) {
    for (const lathe_balance balance : kBalances) {
      if (world == 1 && balance != LATHE_BALANCE_NONE) continue;
      all.push_back(ranks_of(world, balance));
    }
  }
  equals_one_rank(c, all);
}

TEST_CASE("sparse ranks: a batch, by positions derived and given") {
  for (const bool given : {false, true}) {
    SparseCase c = batch(2, 13, 29);
    c.shape.causal = true, c.shape.q_pos = given, c.shape.sinks = true;
    equals_one_rank(c, {1, 2, 3, 8});
  }
}

TEST_CASE("sparse ranks: packed sequences of every length, with rotary columns") {
  SparseCase c = packed({5, 0, 1, 17, 2}, {9, 3, 1, 30, 0});
  c.shape.causal = c.shape.sinks = true, c.shape.rope_dim = 16;
  equals_one_rank(c, {2, 4});
}

TEST_CASE("sparse ranks: rows before the first key, fewer rows than ranks, and none") {
  SparseCase c = packed({11, 6}, {4, 9});
  c.shape.causal = true;
  equals_one_rank(c, {3});
  equals_one_rank(batch(1, 3, 20), {8});
  SparseCase empty = batch(1, 0, 6);
  empty.shape.causal = true;
  equals_one_rank(empty, {2});
}

TEST_CASE("sparse ranks: blocks of keys, absolute entries, values in keys") {
  SparseCase blocks = packed({7, 12}, {40, 21});
  blocks.shape.block = 4, blocks.shape.topk = 12, blocks.shape.causal = true;
  equals_one_rank(blocks, {3});
  for (const bool causal : {false, true}) {
    SparseCase absolute = packed({7, 12, 3}, {11, 21, 8});
    absolute.shape.absolute = true, absolute.shape.causal = causal;
    equals_one_rank(absolute, {3});
    SparseCase latent = batch(2, 9, 17);
    latent.shape.absolute = latent.shape.values_in_keys = true, latent.shape.causal = causal;
    latent.shape.rope_dim = 16;
    equals_one_rank(latent, {4});
  }
}

TEST_CASE("sparse ranks: parts as the caller cuts them, some empty") {
  SparseCase c = packed({5, 20, 1}, {5, 20, 1});
  c.shape.causal = true, c.shape.sinks = true;
  std::vector<Ranks> all;
  for (const std::vector<int64_t>& bounds :
       {std::vector<int64_t>{0, 26, 26}, {0, 0, 4, 4, 6, 26}, {0, 25, 26}}) {
    all.push_back(ranks_of(static_cast<int>(bounds.size()) - 1, LATHE_BALANCE_NONE));
    all.back().bounds = bounds;
    all.back().runs = 2;  // the second finds the buffers of the first
  }
  equals_one_rank(c, all);
}

TEST_CASE("sparse ranks: random tables of ranges") {
  std::mt19937 random(6);
  SparseCase c = packed({5, 20, 1, 0, 33}, {5, 20, 1, 0, 33});
  c.shape.causal = true, c.shape.sinks = true;
  std::vector<Ranks> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(ranks_of(2 + i % 4, LATHE_BALANCE_NONE));
    all.back().ranges = random_table(random, 2 + i % 4, 1 + i, {0, 5, 25, 26, 26, 59});
  }
  equals_one_rank(c, all);
}

TEST_CASE("sparse ranks: keys with gaps between rows and heads") {
  for (const bool tokens : {false, true}) {
    SparseCase c = tokens ? packed({9, 14}, {9, 20}) : batch(2, 9, 13);
    c.shape.causal = true, c.shape.rope_dim = 16;
    c.placement = {.token_gap = 24, .batch_gap = 48, .offset = 8, .guard = 64};
    equals_one_rank(c, std::vector{ranks_of(3, LATHE_BALANCE_HEAD_TAIL)});
  }
}

TEST_CASE("sparse ranks: captured once, replayed") {
  SparseCase c = packed({9, 14}, {9, 20});
  c.shape.causal = c.shape.sinks = true;
  const Ranks once = ranks_of(3, LATHE_BALANCE_HEAD_TAIL);
  Ranks ranks = once;
  ranks.graph = true, ranks.runs = 3;
  equals_one_rank(c, std::vector{ranks});
  // Sums over ranks too repeat bit for bit, however their threads are scheduled.
  const Call call = whole_call(c);
  CHECK(run_ranks(call, ranks).outputs == run_ranks(call, once).outputs);
}

// A backward on its own gathers once more.
TEST_CASE("sparse ranks: saved forward, and sums in any order") {
  SparseCase c = packed({9, 14}, {9, 14});
  c.shape.causal = c.shape.sinks = true;
  const Ranks ranks = ranks_of(3, LATHE_BALANCE_HEAD_TAIL);
  const Answer one = run(whole_call(c));
  const RanksAnswer answer =
      run_ranks(sparse_call(c, make_sparse(c), SparsePart::backward, one.outputs), ranks);
  CHECK(answer.hops.size() == 6);
  for (const auto& [name, values] : answer.outputs) {
    if (name.starts_with("dq")) {
      CHECK(values == one.at(name));
    } else {
      check_sums(name, values, one.at(name));
    }
  }
  c.deterministic = false, c.splits = 1;
  check_equal(run_ranks(whole_call(c), ranks).outputs, one.outputs);
}

// Sinks that are not summed on request are shares; gradients that travel narrow are rounded once
// more for each rank.
TEST_CASE("sparse ranks: shares of sinks, narrow gradients, gradients one by one") {
  SparseCase c = packed({9, 14}, {9, 14});
  c.shape.causal = c.shape.sinks = true, c.shape.rope_dim = 16;
  const Answer one = run(whole_call(c));
  Ranks ranks = ranks_of(3, LATHE_BALANCE_HEAD_TAIL);
  ranks.flags = 0;
  check_equal(run_ranks(whole_call(c), ranks).outputs, one.outputs);
  ranks.flags = LATHE_ALLGATHER | LATHE_NARROW_GRADIENTS;
  const RanksAnswer narrow = run_ranks(whole_call(c), ranks);
  for (const char* name : {"dk", "dv", "dk_rope"}) {
    double most = 0;
    for (const double value : one.at(name)) most = std::max(most, std::abs(value));
    check_near(narrow.outputs.at(name), one.at(name), most / 64, 0, name);
  }
  for (const char* alone : {"dq", "dk", "dv", "dk_rope", "dsinks"}) {
    CAPTURE(alone);
    Call few = whole_call(c);
    for (const char* name : {"dq", "dk", "dv", "dq_rope", "dk_rope", "dsinks"}) {
      if (std::string(name) != alone) few.tensors.erase(name);
    }
    ranks.flags = LATHE_REDUCE_PARAMETER_GRADS;
    const RanksAnswer answer = run_ranks(few, ranks);
    check_equal(answer.outputs, run(few).outputs);
    // Gradients of rows stay where they are.
    CHECK(answer.hops.size() == (std::string(alone) == "dq" ? 3u : 6u));
  }
}

}  // namespace
