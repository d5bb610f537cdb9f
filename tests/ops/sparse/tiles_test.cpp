// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover sparse_flash_attention with tiles that are not the default, on sm_80 and under
// several schedules: random rows and lists for each of a set of configurations that covers every
// width, tile, type and flag; what must hold whatever the numbers are; and what the kernels read
// and multiply.
#include "tests/ops/sparse/tiles.h"

using namespace apitest;

namespace {

const std::vector<Row> kForward = {
    {LATHE_BF16, 64, 0, 64, "m=64 n=64 groups=1 stages=3 warps=4", {64}, ""},
    {LATHE_F16, 64, 32, 64, "m=16 n=32 groups=2 stages=3 warps=2", {8}, "packed sinks"},
    {LATHE_BF16, 128, 64, 128, "m=16 n=64 groups=4 stages=3 warps=4", {1}, "packed wide"},
    {LATHE_F16, 72, 8, 120, "m=48 n=32 groups=2 stages=3 warps=6", {40}, "sinks"},
    {LATHE_BF16, 256, 64, 256, "m=64 n=32 groups=1 stages=3 warps=4", {128}, "packed sinks"},
    {LATHE_BF16, 512, 64, 512, "m=64 n=32 groups=2 stages=2 warps=8", {64}, "values_in_keys"},
    {LATHE_F16, 512, 64, 512, "m=16 n=16 groups=4 stages=2 warps=4", {16}, "packed wide sinks"},
    {LATHE_BF16, 512, 0, 448, "m=32 n=32 groups=2 stages=3 warps=4", {24}, "packed values_in_keys"},
    {LATHE_F16, 576, 0, 512, "m=32 n=32 groups=2 stages=3 warps=4", {128}, "values_in_keys sinks"},
};

}  // namespace

TEST_CASE("sparse forward: random rows and lists on every kind of tile, under every check") {
  check_all(random_cases(kForward, 6, forward_of));
}

TEST_CASE("sparse forward: positions that are given are those that it derives, or see nothing") {
  SparseCase c = forward_of(
      {LATHE_BF16, 128, 64, 128, "m=32 n=32 groups=2 stages=3 warps=4", {24}, "packed sinks"});
  auto& s = c.shape;
  s.rows = {3, 0, 4}, s.keys = {40, 7, 90}, s.padding_q = 1;
  s.kv_heads = 2, s.topk = 130, s.causal = true, c.seed = 5;
  ref::SparseAttention a = make_sparse(c);
  const auto answers = on_sm80([&](const Give& give) {
    give([&] { return run_here(c, a); });
    s.q_pos = true;
    for (size_t n = 0; n < s.rows.size(); ++n) {
      for (int i = 0; i < s.rows[n]; ++i) a.q_pos.push_back(s.keys[n] - s.rows[n] + i);
    }
    a.q_pos.push_back(1000);  // of padding
    give([&] { return run_here(c, a); });
    a.q_pos.assign(a.q_pos.size(), -1);
    a.sinks.assign(a.sinks.size(), -ref::kInfinity);
    give([&] { return run_here(c, a); });
  });
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].outputs == answers[1].outputs);
  for (const double x : answers[2].at("lse")) CHECK(x == -ref::kInfinity);
}

TEST_CASE("sparse forward: values of ones give ones, and more keys than a tile or a list has") {
  const std::tuple<int, int, Lists> calls[] = {
      {2048, 592, Lists::all}, {2048, 1521, Lists::mixed}, {700, 700, Lists::all}};
  for (const auto& [topk, keys, lists] : calls) {
    SparseCase c;
    c.shape.group = 2, c.shape.rows = {2}, c.shape.keys = {keys};
    c.shape.topk = topk, c.shape.lists = lists, c.splits = 1, c.seed = 3;
    ref::SparseAttention a = make_sparse(c);
    const auto answers = on_sm80([&](const Give& give) {
      give([&] { return run_here(c, a); });
      for (double& x : a.v) x = std::isnan(x) ? x : 1.0;
      for (const int splits : {1, 4}) {
        c.splits = splits;
        give([&] { return run_here(c, a); });
      }
    });
    REQUIRE(answers.size() == 3);
    check_sparse(c, make_sparse(c), answers[0]);
    for (const size_t i : {1, 2}) {
      for (const double x : answers[i].at("out")) REQUIRE(x == 1);
    }
  }
}

TEST_CASE("sparse forward: more rows than a grid has in y") {
  SparseCase c;
  c.shape.rows = {66'000}, c.shape.keys = {5}, c.shape.topk = 1, c.shape.lists = Lists::nothing;
  c.splits = 1;
  ref::SparseAttention a = make_sparse(c);
  for (double& x : a.k) x = 1;
  for (double& x : a.v) x = 2;
  a.indices.back() = 4;
  const auto answers = on_sm80([&](const Give& give) { give([&] { return run_here(c, a); }); });
  const Values& out = answers.at(0).at("out");
  size_t wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) wrong += out[i] != (i / 64 == 65'999 ? 2 : 0);
  CHECK(wrong == 0);
}

TEST_CASE("sparse forward: what it reads and multiplies, at 64 heads of 512 + 64 columns") {
  constexpr int kTopk = 512;
  SparseCase c;
  auto& s = c.shape;
  s.head_dim = 512, s.rope_dim = 64, s.value_dim = 512, s.group = 64, s.values_in_keys = true;
  s.rows = {1}, s.keys = {2048}, s.topk = kTopk, c.splits = 1;
  ref::SparseAttention a = make_sparse(c);
  for (auto* x : {&a.k, &a.k_rope, &a.v}) {
    for (double& value : *x) value = std::isnan(value) ? 0.5 : value;
  }
  for (int i = 0; i < kTopk; ++i) a.indices[static_cast<size_t>(i)] = i * 1031 % 2048;
  const auto answers = on_sm80([&](const Give& give) {
    give([&] { return run_here(c, a); });
    // The same keys as blocks: the list is read once, not for every key.
    s.topk = 4, s.block = 128;
    a.topk = 4, a.block = 128, a.indices = {3, 0, 9, 15};
    give([&] { return run_here(c, a); });
    // Blocks that are not there cost nothing but their entries.
    s.topk = 64, a.topk = 64, a.indices.assign(64, -1);
    a.indices[40] = 3, a.indices[41] = 16;
    give([&] { return run_here(c, a); });
  });
  REQUIRE(answers.size() == 3);
  const Answer &single = answers[0], &blocks = answers[1];
  const auto key_bytes = [](const Answer& of) {
    return 32.0 * static_cast<double>(of.total("unique_load_sectors")) - 64 * 576 * 2 - kTopk * 4;
  };
  constexpr double kKeyBytes = kTopk * 576 * 2, kOps = 2.0 * 64 * kTopk * (576 + 512);
  CHECK(single.launches.size() == 1);
  CHECK(key_bytes(single) <= 1.1 * kKeyBytes);
  // Every key is asked for once, and q.
  const double asked = 32.0 * static_cast<double>(single.total("global_load_sectors"));
  CHECK(asked <= 1.1 * (kKeyBytes + 64 * 576 * 2));
  CHECK(static_cast<double>(single.total("tensor_ops")) <= 1.15 * kOps);
  CHECK(single.total("local_load_requests") + single.total("local_store_requests") == 0);
  CHECK(key_bytes(blocks) <= 1.1 * kKeyBytes - kTopk * 4);
  CHECK(blocks.total("global_load_requests") <= single.total("global_load_requests"));
  CHECK(static_cast<double>(blocks.total("tensor_ops")) <= 1.15 * kOps);
  CHECK(answers[2].total("tensor_ops") * 4 == blocks.total("tensor_ops"));
}
